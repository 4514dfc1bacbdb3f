"""Configuration: the settings of a compilation, the places where they can be set, and the trust in each of them.

The records are in `records.py`. `reading.py` merges files, variables and tables of the program, `structure.py` makes records of
them, `settings.py` lists the variables, `trust.py` refuses code that another user may have named, and `words.py` refuses words
that match no op.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.pipeline.config import trust

__all__ = ["trust"]

if not TYPE_CHECKING:  # most programs have no file
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
