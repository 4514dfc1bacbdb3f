"""Running programs: executables with bound parameters, compiled functions, sessions and the compile caches.

This layer passes arguments to compiled programs and caches the programs. Compilation belongs to the pipeline; the device
belongs to the backend.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.runtime import donations, references

__all__ = ["donations", "references"]

if not TYPE_CHECKING:  # for pickles, and for arguments that are overwritten
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
