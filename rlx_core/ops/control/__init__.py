"""Control flow as ops that contain graphs: a choice (`If`), a loop with a condition (`While`), a loop over steps (`Scan`).

A body sees only its operands; a capture of a Python function becomes an operand. Derivatives and batches of these ops are again
such ops, over derivatives and batches of their bodies, so a program's size does not depend on the number of iterations.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.ops.control import conditional, loop, scan

__all__ = ["conditional", "loop", "scan"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
