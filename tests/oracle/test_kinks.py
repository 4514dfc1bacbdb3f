"""The columns of `docs/nondifferentiable-points.md` on PyTorch and JAX: what these give at kinks and at NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

from ..docs.kink_table import Row, rows, shown

functional = torch.nn.functional


def tensors(x: torch.Tensor, *others: float) -> torch.Tensor:
    return torch.stack([x, *(torch.full_like(x, v) for v in others)])


def arrays(x: Any, *others: float) -> Any:
    return jnp.stack([x, *(jnp.full_like(x, v) for v in others)])


TORCH: Mapping[str, Callable[[Any], Any]] = {
    "relu(x)": functional.relu,
    "leaky_relu(x, negative_slope=0.25)": lambda x: functional.leaky_relu(x, 0.25),
    "elu(x, alpha=0.5)": lambda x: functional.elu(x, 0.5),
    "celu(x, alpha=0.5)": lambda x: functional.celu(x, 0.5),
    "selu(x)": functional.selu,
    "relu6(x)": functional.relu6,
    "hard_tanh(x)": functional.hardtanh,
    "hard_sigmoid(x)": functional.hardsigmoid,
    "hard_swish(x)": functional.hardswish,
    "clip(x, -1, 2)": lambda x: torch.clamp(x, -1, 2),
    "clip(1, x, 2)": lambda x: torch.clamp(torch.ones_like(x), x, torch.full_like(x, 2)),
    "maximum(x, 1)": lambda x: torch.maximum(x, torch.ones_like(x)),
    "minimum(x, 1)": lambda x: torch.minimum(x, torch.ones_like(x)),
    "max([x, 1])": lambda x: torch.amax(tensors(x, 1.0)),
    "max([x, 1, 1])": lambda x: torch.amax(tensors(x, 1.0, 1.0)),
    "min([x, 1])": lambda x: torch.amin(tensors(x, 1.0)),
    "top_k([x, 1], 1)": lambda x: torch.topk(tensors(x, 1.0), 1).values.sum(),
    "top_k([1, x], 1)": lambda x: torch.topk(tensors(x, 1.0).flip(0), 1).values.sum(),
    "sum(cumulative_max([x, 1]))": lambda x: torch.cummax(tensors(x, 1.0), 0).values.sum(),
    "sum(cumulative_min([x, 1]))": lambda x: torch.cummin(tensors(x, 1.0), 0).values.sum(),
    "max_pool([x, 1], 2)": lambda x: torch.nn.functional.max_pool1d(tensors(x, 1.0)[None], 2).sum(),
    "min_pool([x, 1], 2)": lambda x: -torch.nn.functional.max_pool1d(-tensors(x, 1.0)[None], 2).sum(),
    "abs(x)": torch.abs,
    "sign(x)": torch.sign,
    "copysign(x, 1)": lambda x: torch.copysign(x, torch.ones_like(x)),
    "floor(x)": torch.floor,
    "ceil(x)": torch.ceil,
    "trunc(x)": torch.trunc,
    "round(x)": torch.round,
    "sqrt(x)": torch.sqrt,
    "rsqrt(x)": torch.rsqrt,
    "hypot(x, 0)": lambda x: torch.hypot(x, torch.zeros_like(x)),
    "atan2(x, 0)": lambda x: torch.atan2(x, torch.zeros_like(x)),
    "abs(x + 0j)": lambda x: torch.abs(torch.complex(x, torch.zeros_like(x))),
    "angle(0 + xj)": lambda x: torch.angle(torch.complex(torch.zeros_like(x), x)),
    "std([x, 1])": lambda x: torch.std(tensors(x, 1.0), correction=0),
    "vector_norm([x, 0])": lambda x: torch.linalg.vector_norm(tensors(x, 0.0)),
    "vector_norm([x, 0], ord=1)": lambda x: torch.linalg.vector_norm(tensors(x, 0.0), ord=1),
    "vector_norm([x, 0], ord=3)": lambda x: torch.linalg.vector_norm(tensors(x, 0.0), ord=3),
}

JAX: Mapping[str, Callable[[Any], Any]] = {
    "relu(x)": jax.nn.relu,
    "leaky_relu(x, negative_slope=0.25)": lambda x: jax.nn.leaky_relu(x, 0.25),
    "elu(x, alpha=0.5)": lambda x: jax.nn.elu(x, 0.5),
    "celu(x, alpha=0.5)": lambda x: jax.nn.celu(x, 0.5),
    "selu(x)": jax.nn.selu,
    "relu6(x)": jax.nn.relu6,
    "hard_tanh(x)": jax.nn.hard_tanh,
    "hard_sigmoid(x)": jax.nn.hard_sigmoid,
    "hard_swish(x)": jax.nn.hard_swish,
    "clip(x, -1, 2)": lambda x: jnp.clip(x, -1, 2),
    "clip(1, x, 2)": lambda x: jnp.clip(jnp.ones_like(x), x, 2),
    "maximum(x, 1)": lambda x: jnp.maximum(x, 1.0),
    "minimum(x, 1)": lambda x: jnp.minimum(x, 1.0),
    "max([x, 1])": lambda x: jnp.max(arrays(x, 1.0)),
    "max([x, 1, 1])": lambda x: jnp.max(arrays(x, 1.0, 1.0)),
    "min([x, 1])": lambda x: jnp.min(arrays(x, 1.0)),
    "top_k([x, 1], 1)": lambda x: jax.lax.top_k(arrays(x, 1.0), 1)[0].sum(),
    "top_k([1, x], 1)": lambda x: jax.lax.top_k(arrays(x, 1.0)[::-1], 1)[0].sum(),
    "sum(cumulative_max([x, 1]))": lambda x: jax.lax.cummax(arrays(x, 1.0)).sum(),
    "sum(cumulative_min([x, 1]))": lambda x: jax.lax.cummin(arrays(x, 1.0)).sum(),
    "max_pool([x, 1], 2)": lambda x: jax.lax.reduce_window(
        arrays(x, 1.0), -jnp.inf, jax.lax.max, (2,), (2,), "VALID"
    ).sum(),
    "min_pool([x, 1], 2)": lambda x: jax.lax.reduce_window(
        arrays(x, 1.0), jnp.inf, jax.lax.min, (2,), (2,), "VALID"
    ).sum(),
    "abs(x)": jnp.abs,
    "sign(x)": jnp.sign,
    "copysign(x, 1)": lambda x: jnp.copysign(x, 1.0),
    "floor(x)": jnp.floor,
    "ceil(x)": jnp.ceil,
    "trunc(x)": jnp.trunc,
    "round(x)": jnp.round,
    "sqrt(x)": jnp.sqrt,
    "rsqrt(x)": jax.lax.rsqrt,
    "cbrt(x)": jnp.cbrt,
    "hypot(x, 0)": lambda x: jnp.hypot(x, 0.0),
    "atan2(x, 0)": lambda x: jnp.arctan2(x, 0.0),
    "abs(x + 0j)": lambda x: jnp.abs(jax.lax.complex(x, jnp.zeros_like(x))),
    "angle(0 + xj)": lambda x: jnp.angle(jax.lax.complex(jnp.zeros_like(x), x)),
    "std([x, 1])": lambda x: jnp.std(arrays(x, 1.0)),
    "vector_norm([x, 0])": lambda x: jnp.linalg.norm(arrays(x, 0.0)),
    "vector_norm([x, 0], ord=1)": lambda x: jnp.linalg.norm(arrays(x, 0.0), ord=1),
    "vector_norm([x, 0], ord=3)": lambda x: jnp.linalg.norm(arrays(x, 0.0), ord=3),
}

ROWS = rows()
ABSENT = "–"  # what the other system does not have


def torch_slope(row: Row) -> float:
    x = torch.tensor(row.at, dtype=torch.float64, requires_grad=True)
    TORCH[row.function](x).backward()
    assert x.grad is not None
    return float(x.grad)


def jax_slope(row: Row) -> float:
    # In float32, which is what JAX computes in unless it is told otherwise; kinks are kinks in every precision.
    return float(jax.grad(JAX[row.function])(jnp.float32(row.at)))


@pytest.mark.parametrize("row", [r for r in ROWS if r.torch != ABSENT], ids=str)
def test_a_row_says_what_pytorch_gives(row: Row) -> None:
    assert row.torch == shown(torch_slope(row))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_says_what_jax_gives(row: Row) -> None:
    assert row.jax == shown(jax_slope(row))
