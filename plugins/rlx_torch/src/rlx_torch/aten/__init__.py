"""ATen in rlx: a handler for each overload, in a file for each family.

A handler implements the semantics of an op; it depends neither on torch, which these files do not import, nor on the origin of
its operands. `rlx_torch.walk` traverses graphs, and `rlx_torch.exported` reads exported programs.
"""

from rlx_torch.aten import (  # each fills the table
    activations,
    algebra,
    bags,
    comparison,
    control,
    convolution,
    creation,
    distances,
    elementwise,
    factors,
    groups,
    indexing,
    normalization,
    padding,
    pooling,
    products,
    randomness,
    recurrent,
    reductions,
    resizing,
    shapes,
    sizes,
    sorting,
    special,
    spectra,
)
from rlx_torch.aten.table import DRAWS, TABLE

__all__ = [
    "DRAWS",
    "TABLE",
    "activations",
    "algebra",
    "bags",
    "comparison",
    "control",
    "convolution",
    "creation",
    "distances",
    "elementwise",
    "factors",
    "groups",
    "indexing",
    "normalization",
    "padding",
    "pooling",
    "products",
    "randomness",
    "recurrent",
    "reductions",
    "resizing",
    "shapes",
    "sizes",
    "sorting",
    "special",
    "spectra",
]
