"""The standard ops by family: each module is one family, whose ops `families.py` lists.

Families are imported on first use, because creating the attrs classes of about two hundred ops takes longer than everything
else in `import rlx_core`. The families are themselves a plugin, offered through the same hooks as any other.

The functions of ops and the names that a package needs to define ops are here. They take an op's operands and attributes, under
the names that `rlx ops` lists; `rlx_core` has the functions for users (`rlx.scatter`, `rlx.layer_norm`). A name that is also the
name of a family (`softmax`, `attention`, …) is the module here, which contains the function: `rlx_core.ops.attention.attention`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlx_core.ops.families import FAMILIES, Family
from rlx_core.public import FUNCTIONS, PLUGIN_KIT, lazy_names

if TYPE_CHECKING:  # rlx's own plugin reads its table of names below this package, and must stay as light as anyone's
    from rlx_core.ir.op import Op

_FAMILIES = {place.partition(":")[0].rpartition(".")[2] for place in FUNCTIONS.values()}

if not TYPE_CHECKING:  # type checkers read __init__.pyi
    __getattr__, __dir__, __all__ = lazy_names(
        __name__, {name: place for name, place in FUNCTIONS.items() if name not in _FAMILIES}, PLUGIN_KIT
    )
    __all__ += ["family_names", "standard_ops"]


@cache
def family_names() -> tuple[str, ...]:
    """Return the modules of this package and its folders, in alphabetical order, without importing them."""
    import pkgutil  # imported here, because reading a package or a file of arrays does not need the list of ops

    prefix = f"{__name__}."
    modules = pkgutil.walk_packages(__path__, prefix)
    return tuple(sorted(m.name.removeprefix(prefix) for m in modules if not m.ispkg))


@cache
def standard_ops() -> tuple[type[Op], ...]:
    """Return every standard op, family by family; imports them all."""
    return tuple(op for module in sorted(FAMILIES) for op in Family(module))
