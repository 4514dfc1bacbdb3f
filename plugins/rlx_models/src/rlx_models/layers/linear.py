"""Linear layers, layer norms and activations by the names and layouts of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import rlx_core as rlx
from rlx_core import nn
from rlx_core.quantization import QuantizedArray

Parameters = Mapping[str, Any]
"""Tensors by name."""

ACTIVATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "gelu": nn.gelu,
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: nn.gelu(x, approximate=True),
    "silu": rlx.silu,
    "swish": rlx.silu,
    "relu": rlx.relu,
    "quick_gelu": lambda x: x * rlx.sigmoid(1.702 * x),
}
"""Activations by their names in configurations."""


def dense(weight: Any) -> Any:
    """Return an array: a quantised one is decoded, which products and lookups do where they read it."""
    return weight.dequantize() if isinstance(weight, QuantizedArray) else weight


def linear(parameters: Parameters, name: str, x: Any, *, is_transposed: bool = False) -> Any:
    """Return the linear layer `name` of `x`, with a bias if the parameters have one.

    Weights are `[outputs, inputs]` as in `torch.nn.Linear`, or `[inputs, outputs]` if `is_transposed`.
    """
    weight = dense(parameters[f"{name}.weight"])
    product = x @ (weight if is_transposed else rlx.matrix_transpose(weight))
    return product + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else product


def linear_shapes(name: str, outputs: int, inputs: int, *, has_bias: bool = True) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a linear layer."""
    bias: dict[str, tuple[int, ...]] = {f"{name}.bias": (outputs,)} if has_bias else {}
    return {f"{name}.weight": (outputs, inputs), **bias}


def layer_norm(parameters: Parameters, name: str, x: Any, eps: float) -> Any:
    """Return the layer norm `name` of `x`, with a bias if the parameters have one."""
    return nn.layer_norm(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"), eps=eps)


def layer_norm_shapes(name: str, size: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer norm."""
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}
