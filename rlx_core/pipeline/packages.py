"""The interface between backends and packages: the code that goes into the file, and the access to its blobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlx_core.errors import ConfigError, Fact, NoKernelError
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import leaf_name
from rlx_core.ir.lir import Lir, Step
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.pipeline.backend import Program

Keep = Callable[[np.ndarray], int]
"""Puts the bytes of a dense array into a package, equal ones once; the number of the blob."""


@frozen
class PackedCode:
    """A backend's data to load programs again, for one variant of its target.

    Attributes:
        variant: Its name, as users write it after the target's: an instruction set, an architecture.
        summary: The machines that run it, for people.
        form: All else, as the backend likes it; weights and code are blobs that it names by number.
    """

    variant: str
    summary: str
    form: Json


def expect_packable(lir: Lir, reason_against: Callable[[int, Step], str | None]) -> None:
    """Require that every step of a plan is code that a package can hold, and that no run writes to its arguments.

    Args:
        reason_against: Returns the reason why a step, with its number, is not; `None` if it is.

    Raises:
        NoKernelError: A step is not; the error has the reason for each.
        ConfigError: Something is donated.
    """
    if lir.donated:
        names = ", ".join(sorted(leaf_name(value) for value in lir.donated))
        raise ConfigError(f"package: {names} would be overwritten by a run, which no package does")
    reasons = [(step, reason_against(number, step)) for number, step in enumerate(lir.steps)]
    others = [
        Fact(step.node.op.name, reason, step.node.origin.source) for step, reason in reasons if reason is not None
    ]
    if others:
        raise NoKernelError(
            f"package: {len(others)} of {len(lir.steps)} steps are run from Python, which no package holds",
            *others[:5],
            hint="rlx.save writes the program itself, which is compiled where it is loaded",
        )


class Blobs(Protocol):
    """The blobs of a package: each is verified with its digest before its first byte is returned."""

    def nbytes(self, number: int) -> int:
        """Return the bytes of a blob.

        Raises:
            FormatError: No blob has that number.
        """

    def arrays(self, numbers: list[int]) -> list[np.ndarray]:
        """The bytes of some blobs, read-only, where they lie: each begins at a multiple of 64.

        Raises:
            FormatError: One is damaged, or not there.
        """


class Unpack(Protocol):
    """Makes the programs of a package."""

    def __call__(self, number: int, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> Program:
        """The program of a number.

        Args:
            inputs, outputs: The types of arguments and results, which are checked for arrays and must match the program.

        Raises:
            FormatError: Its types differ, or it is malformed.
        """
