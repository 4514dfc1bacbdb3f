"""Cells around a tensor, by number or from the tensor itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core.ir.dims import Dim
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def pad_ends(x: Any, pad: Sequence[Any], mode: Any = "constant", value: Any = 0) -> Any:
    """`x` with cells around it, given from the last axis on, as torch gives them."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [*[(0, 0)] * (x.ndim - len(pairs)), *reversed(pairs)]
    if mode == "constant":
        return rlx.pad(x, widths, mode="constant", constant_values=as_value(value, x.dtype))
    return rlx.pad(x, widths, mode=mode)


rows(
    {
        "constant_pad_nd": lambda x, pad, value=0: pad_ends(x, pad, value=value),
        "reflection_pad1d reflection_pad2d reflection_pad3d": lambda x, pad: pad_ends(x, pad, "reflect"),
        "replication_pad1d replication_pad2d replication_pad3d": lambda x, pad: pad_ends(x, pad, "edge"),
    }
)


def _pad_backward(mode: str) -> Any:
    return lambda g, x, pad: pulled(lambda x: pad_ends(x, pad, mode), g, (x,))[0]


for _axes in (1, 2, 3):
    aten(f"reflection_pad{_axes}d_backward")(_pad_backward("reflect"))
    aten(f"replication_pad{_axes}d_backward")(_pad_backward("edge"))

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("pad")
def pad(x: Any, pad: Sequence[Dim], mode: str = "constant", value: float | None = None) -> Any:
    return pad_ends(x, pad, _MODES[mode], value or 0)
