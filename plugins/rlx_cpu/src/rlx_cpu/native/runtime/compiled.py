"""The code of a program's native steps: what each calls, and its words in the table of addresses.

Importing this module takes no compiler, because programs from packages have none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import field

from rlx_core.errors import Fact
from rlx_core.ir.lir import Lir, Step
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.machine import CpuMachine, assumed

if TYPE_CHECKING:
    from rlx_core.tuning.tuner import TunedProblem
    from rlx_cpu.native.llvm import jit
    from rlx_cpu.native.llvm.isa import Isa
    from rlx_cpu.native.runtime.code import ProgramCode
    from rlx_cpu.native.tuning import NativeTuning


@frozen
class RunSettings:
    """Settings with which a program runs.

    Attributes:
        threads: The number of threads that run it.
        spin_us: Microseconds that a waiting worker spins before it parks.
    """

    threads: int = 1
    spin_us: int = 200

    @property
    def machine(self) -> CpuMachine:
        """The sizes and speeds that the program's schedules assume."""
        return assumed()


@frozen
class Settings(RunSettings):
    """Settings with which a program is compiled and runs.

    Attributes:
        isa: The instruction set that it is compiled for.
        tuning: Selects the schedules of functions; `None` for the default schedules.
    """

    isa: Isa = field(kw_only=True)
    tuning: NativeTuning | None = field(default=None, kw_only=True)

    @property
    def machine(self) -> CpuMachine:
        return self.isa.machine


@frozen(eq=False)
class NativeStep:
    """A step with its function, the indices of its buffers' addresses in the table, and its other requirements.

    Attributes:
        step: The step; `None` for one that was read from a package.
        code: The code that contains the function; `None` if it is only written to a file.
        arena: Index of the address of the plan's workspace in the table, which nested graphs use.
        words: Its run-time sizes: they precede its first address, the last one first.
        node: The node and the user's line for errors, for a step from a package.
    """

    step: Step | None
    emitted: Emitted
    code: ProgramCode | None
    first: int
    workspace: int | None
    packs: tuple[int, ...]
    status: int | None
    arena: int | None = None
    words: tuple[int, ...] = ()
    node: Fact | None = None

    @property
    def where(self) -> Fact:
        """The node and the user's line, for errors."""
        if self.step is None:
            assert self.node is not None, "a step of a package says which node it was"
            return self.node
        return Fact("node", self.step.node.label, self.step.node.origin.source)

    def address_of(self, name: str) -> int:
        """Return the address of one of its functions, once it is compiled."""
        assert self.code is not None, "what runs has code"
        return self.code.address(name)


@frozen(eq=False)
class CompiledSteps:
    """The code of a program and its steps: everything that clones share.

    Attributes:
        codes: Code with the functions of its steps.
        packed_constants: Packed once, when they are first needed; packed parameters are kept with their binding.
        for_all: The steps of a bound template, by number, whose functions another size calls too.
        tuned: The problems with several schedules, each with the selected one.
    """

    codes: tuple[jit.JitCode, ...]
    steps: Mapping[int, NativeStep]
    table_words: int
    settings: RunSettings
    packed_constants: dict[Hashable, np.ndarray] = field(factory=dict)
    for_all: frozenset[int] = frozenset()
    tuned: Sequence[TunedProblem] = ()

    def flush(self) -> None:
        """Wait until the code is in the cache, if that is where it goes."""
        for code in self.codes:
            code.flush()

    @property
    def origin(self) -> str | None:
        """See `Program.code_origin`."""
        if not self.codes:
            return None
        origin = "cached" if all(code.is_cached for code in self.codes) else "compiled"
        return f"{origin}, {len(self.for_all)} of {len(self.steps)} steps for all sizes" if self.for_all else origin

    @property
    def uses_threads(self) -> bool:
        """Whether threads can share a step, be it worth it or not."""
        return any(each.emitted.uses_threads or each.emitted.shares for each in self.steps.values())

    def on(self, lir: Lir) -> CompiledSteps:
        """The same code for an equal plan, with nothing that a program made for itself."""
        steps = {number: evolve(each, step=lir.steps[number]) for number, each in self.steps.items()}
        return evolve(self, steps=steps, packed_constants={})

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory of all threads; steps follow one another and share them."""
        emitted = (each.emitted for each in self.steps.values())
        return max((e.workspace_stride * self.settings.threads + e.shared_stride for e in emitted), default=0)

    def scratch_of(self, number: int) -> int:
        """The bytes of scratch memory that a step by its number may use: all threads' together."""
        if number not in self.steps:
            return 0
        emitted = self.steps[number].emitted
        return emitted.workspace_stride * self.settings.threads + emitted.shared_workspace
