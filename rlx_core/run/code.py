"""The interface between the executor and a target's code: its steps, and how its calls get the addresses of their buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx_core.ir.lir import Lir
from rlx_core.ir.placed import At
from rlx_core.run.plan import BufferId
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    import numpy as np

    from rlx_core.pipeline.profile import Profile
    from rlx_core.run.frames import Frame
    from rlx_core.run.program import PlannedProgram
    from rlx_core.tuning.tuner import TunedProblem


@frozen(eq=False)
class Calls:
    """Consecutive steps, by number, that the program's code runs."""

    steps: tuple[int, ...]


class Code(ABC):
    """The compiled calls of a program. It is shared by clones, and nothing in it changes.

    Attributes:
        steps: The numbers of the steps that it runs; the others run on the host, or have nothing to compute.
        arguments: Buffer → which arguments of which calls are addresses in it, as `place` understands it.
        workspace_nbytes: Bytes of memory that calls need in addition to the plan's.
        origin: See `Program.code_origin`.
        tuned: See `Program.tuned`.
    """

    steps: frozenset[int]
    arguments: Mapping[BufferId, Any]
    workspace_nbytes: int = 0
    origin: str | None = None
    tuned: Sequence[TunedProblem] = ()

    @abstractmethod
    def prepare(self, frame: Frame) -> Any:
        """The calls of a frame, with the addresses of all buffers that the frame has bound.

        Raises:
            OutOfMemoryError: Memory that they need in addition to the plan's is not available.
        """

    @abstractmethod
    def place(self, calls: Any, arguments: Any, address: At) -> None:
        """Set the arguments that are addresses in one buffer."""

    @abstractmethod
    def run(self, part: Calls, frame: Frame, profile: Profile | None) -> None:
        """Run the calls of consecutive steps, or submit them to a device."""

    def is_submitted_alone(self, number: int) -> bool:
        """Whether a step is submitted separately from the steps around it."""
        return False

    def begin(self, frame: Frame, *, waits: bool) -> Any:
        """Called when a run has its frame; the result is passed to `end`.

        Args:
            waits: Whether the call returns when the run has ended.

        Raises:
            OutOfMemoryError: There is not enough memory for the status of the run.
        """
        return None

    def end(self, frame: Frame, inputs: Sequence[Any], begun: Any, *, waits: bool) -> Any:
        """Called after the last part of a run; its results refer to the returned object.

        Raises:
            RlxError: A step reported a fault.
        """
        return None

    def poison_scratch(self, frame: Frame) -> None:
        """Fill the scratch memory of calls, for poison mode."""
        return

    def unused_scratch(self, frame: Frame, number: int) -> np.ndarray | None:
        """The scratch memory that a step does not use, for poison mode."""
        return None

    def entry(self, program: PlannedProgram, name: str) -> Callable[..., Any] | None:
        """See `Program.entry`."""
        return None

    def reason_without_entry(self, program: PlannedProgram) -> str | None:
        """See `Program.reason_without_entry`."""
        return None

    def shared(self, lir: Lir) -> object | None:
        """See `Program.code`."""
        return None


class HostCode(Code):
    """No code: every step runs as a function of the host."""

    steps = frozenset()
    arguments: Mapping[BufferId, Any] = {}

    def prepare(self, frame: Frame) -> None:
        return None

    def place(self, calls: Any, arguments: Any, address: At) -> None:
        raise AssertionError("no calls, no arguments")

    def run(self, part: Calls, frame: Frame, profile: Profile | None) -> None:
        raise AssertionError("no calls, no parts of calls")
