"""Hints of error messages: names of other libraries with their equivalents in rlx, and install commands of packages.

Imported only when an error is raised.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.hints import expected, packages

__all__ = ["expected", "packages"]

if not TYPE_CHECKING:  # for errors
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
