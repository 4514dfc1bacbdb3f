"""The standard ops by family: each module is one family and ends with `OPS`, the tuple of its op classes.

Nothing is imported until it is asked for, because making the attrs classes of about two hundred ops takes longer than
everything else in `import rlx_core`. The families are themselves a plugin, offered through the same hooks as anyone's.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rlx's own plugin reads its table of names below this package, and must stay as light as anyone's
    from rlx_core.ir.op import Op

__all__ = ["standard_ops"]


@cache
def standard_ops() -> tuple[type[Op], ...]:
    """Every standard op, family by family; imports them all."""
    found = sorted(m.name for m in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in found]
    ops = tuple(dict.fromkeys(op for module in modules for op in getattr(module, "OPS", ())))
    names = [op.name for op in ops]
    assert len(set(names)) == len(names), f"two ops are called {sorted({n for n in names if names.count(n) > 1})}"
    return ops
