"""Operations of ai.onnx.ml: models of classical machine learning, as scikit-learn's exporter writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_onnx.walking.node import Node
from rlx_onnx.walking.table import handles

DOMAIN = "ai.onnx.ml"


@handles("Scaler", domain=DOMAIN)
def scaler(node: Node, x: Any) -> Any:
    """(x − offset) · scale of each feature, in f32."""
    offset, scale = (
        np.asarray(node.get(name, default), np.float32) for name, default in (("offset", [0.0]), ("scale", [1.0]))
    )
    for name, given in (("offset", offset), ("scale", scale)):
        if given.size not in (1, x.shape[-1]):
            raise FormatError(f"{node}: {name} has {given.size} numbers for {x.shape[-1]} features")
    return (rlx.astype(x, rlx.f32) - offset) * scale
