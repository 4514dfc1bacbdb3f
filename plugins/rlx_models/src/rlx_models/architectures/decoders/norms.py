"""Norms of decoders: their tensors by `NormSpec` or `HeadNormSpec`, and the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core import nn
from rlx_models.architectures.decoders.spec import HeadNormSpec, NormSpec
from rlx_models.layers.linear import Parameters


def norm_shapes(spec: NormSpec, name: str, size: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a norm."""
    return {f"{name}.{part}": (size,) for part in (("weight", "bias") if spec.has_bias else ("weight",))}


def head_norm_shapes(spec: HeadNormSpec, name: str, num_heads: int, head_size: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the norm of queries or keys."""
    if spec.over == "listed":
        return {f"{name}.norms.{n}.weight": (head_size,) for n in range(num_heads)}
    shapes = {"head": (head_size,), "heads": (num_heads, head_size), "features": (num_heads * head_size,)}
    return {f"{name}.weight": shapes[spec.over]}


def norm_function(spec: NormSpec) -> Callable[..., Any]:
    """Return `nn.rms_norm` or `nn.layer_norm`."""
    return nn.rms_norm if spec.kind == "rms" else nn.layer_norm


def apply_norm(spec: NormSpec, parameters: Parameters, name: str, x: Any, eps: float) -> Any:
    """Return the norm `name` of `x`."""
    weight = parameters[f"{name}.weight"]
    weight = weight + spec.offset if spec.offset else weight
    return norm_function(spec)(x, weight, parameters.get(f"{name}.bias"), eps=eps)
