"""rlx: an ML compiler and runtime whose ops, passes and devices are all plugins.

`jit`, `compile`, `grad` and the functions of the Python Array API are here; blocks for models are in `rlx_core.nn`. Importing
this package imports none of its parts: each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from rlx_core.public import CORE, FUNCTIONS, lazy_names

__version__ = "0.1.0"

if not TYPE_CHECKING:  # type checkers read __init__.pyi
    __getattr__, __dir__, __all__ = lazy_names(__name__, FUNCTIONS, CORE)
