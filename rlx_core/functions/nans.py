"""`debug.nans`: the op, the package and the source line that produce a NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlx_core.hints.keywords import checked_call
from rlx_core.ir.nonfinite import Check, checking
from rlx_core.ops.arguments import flag
from rlx_core.system.context import watching


@checked_call
@contextmanager
def nans(*, infinities: bool = False) -> Iterator[None]:
    """Raise an error inside `with` when a call returns a NaN, with the op and the source line that produced it.

    Calls of compiled functions and of ops are checked, on every target; intermediate values of a program are not. Each call
    waits for its results, and arguments that a call donates are copied before it. The search for the op evaluates the program
    again with NumPy, only after a NaN was seen; in a gradient it names the line of the forward computation.

    Args:
        infinities: Whether infinities are errors too.

    Raises (by calls inside `with`):
        NonFiniteError: A result has a NaN.

    >>> with rlx.debug.nans():
    ...     rlx.sqrt(np.float32(4))
    Array(2., dtype=float32)
    """
    check = Check(flag("nans: infinities", infinities))
    with watching(), checking(check):
        yield
