"""Running a plan natively: its steps linked and called (`steps`, `program`), by several threads (`pool`), from Python (`entry`).

`work` estimates how long steps take, `interpreter` is what native code may count on in this Python, and `result_memory` is the
allocator of large results.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_cpu.native.runtime import entry, entry_plan, entry_words, interpreter, sizing

__all__ = ["entry", "entry_plan", "entry_words", "interpreter", "sizing"]

if (
    not TYPE_CHECKING
):  # the first run of a program has no entry, most programs have no unknown sizes, and few loops are polled
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
