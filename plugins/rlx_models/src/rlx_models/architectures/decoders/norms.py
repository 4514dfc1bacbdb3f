"""Norms of decoders: their tensors by a row's `Norm` or `HeadNorm`, and the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core import nn
from rlx_models.architectures.decoders.spec import HeadNorm, Norm
from rlx_models.layers.linear import Parameters

__all__ = ["head_norm_shapes", "norm_shapes", "normed", "plain_norm"]


def norm_shapes(kind: Norm, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a norm."""
    return {f"{name}.{part}": shape for part in (("weight", "bias") if kind.has_bias else ("weight",))}


def head_norm_shapes(kind: HeadNorm, name: str, heads: int, head: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the norm of queries or keys."""
    if kind.over == "listed":
        return {f"{name}.norms.{n}.weight": (head,) for n in range(heads)}
    return {f"{name}.weight": {"head": (head,), "heads": (heads, head), "features": (heads * head,)}[kind.over]}


def plain_norm(kind: Norm) -> Callable[..., Any]:
    return nn.rms_norm if kind.kind == "rms" else nn.layer_norm


def normed(kind: Norm, parameters: Parameters, name: str, x: Any, eps: float) -> Any:
    """Return `x` normed with the stored gain, and bias where there is one."""
    gain = parameters[f"{name}.weight"]
    gain = gain + kind.offset if kind.offset else gain
    return plain_norm(kind)(x, gain, parameters.get(f"{name}.bias"), eps=eps)
