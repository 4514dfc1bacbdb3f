"""The target of code, as LLVM is asked for it."""

from __future__ import annotations

from rlx_core.system.records import frozen


@frozen
class Processor:
    """The target of code.

    Attributes:
        features: LLVM's feature string.
        cpu: LLVM's name of the processor; `None` for this machine's.
        triple: LLVM's name of the system, for portable code that is linked later; `None` for this machine's.
    """

    features: str
    cpu: str | None = None
    triple: str | None = None
