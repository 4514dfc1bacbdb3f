"""ATen in rlx: a handler for each overload, in a file for each family.

A handler knows what an op means; it knows nothing of torch, which these files do not import, nor of where its operands come from.
What walks a graph and what reads an exported program is `rlx_torch.walk` and `rlx_torch.exported`.
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
