"""What a printer is: a loop kernel in, source in a target's language out. CPU and GPU backends implement the same interface."""

from __future__ import annotations

from typing import Protocol, TypeVar

from rlx_core.codegen.loops import Kernel
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op

__all__ = ["Printer"]

Source_co = TypeVar("Source_co", covariant=True)


class Printer(Protocol[Source_co]):
    """Prints kernels for one target. What it cannot print it refuses before a program is planned, never while it prints."""

    def refusal(self, op: Op, dtypes: tuple[DType, ...]) -> str | None:
        """Why the target has no code for a scalar op on these dtypes, as "needs …" would continue; `None` if it has."""

    def print(self, kernel: Kernel, name: str) -> Source_co:
        """The kernel as a function called `name`; the kernel obeys `check_kernel`."""
