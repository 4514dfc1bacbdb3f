"""The table of `docs/nondifferentiable-points.md` as data: what it says, and the rlx function that each row is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ops import piecewise

PAGE = Path(__file__).parents[2] / "docs" / "nondifferentiable-points.md"
ROW = re.compile(r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|", re.MULTILINE)


@frozen
class Row:
    """One function at one point: its derivative from below, from above, and what each system gives there."""

    function: str
    at: float
    below: str
    above: str
    rlx: str
    jax: str
    torch: str

    def __str__(self) -> str:
        return f"{self.function} at {self.at:g}"


def rows() -> list[Row]:
    """What the page says."""
    found = [match.groups() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    return [Row(function, float(at), *rest) for function, at, *rest in found]


def shown(derivative: float) -> str:
    """A derivative as the page writes it."""
    return f"{derivative + 0:.4g}"


def joined(x: Any, *others: float) -> Any:
    return rlx.stack([x, *(rlx.full_like(x, v) for v in others)])


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "relu(x)": nn.relu,
    "leaky_relu(x, negative_slope=0.25)": lambda x: nn.leaky_relu(x, negative_slope=0.25),
    "elu(x, alpha=0.5)": lambda x: nn.elu(x, alpha=0.5),
    "celu(x, alpha=0.5)": lambda x: rlx.celu(x, alpha=0.5),
    "selu(x)": nn.selu,
    "relu6(x)": nn.relu6,
    "hard_tanh(x)": nn.hard_tanh,
    "hard_sigmoid(x)": nn.hard_sigmoid,
    "hard_swish(x)": nn.hard_swish,
    "clip(x, -1, 2)": lambda x: rlx.clip(x, -1, 2),
    "clip(1, x, 2)": lambda x: rlx.clip(rlx.ones_like(x), x, 2),
    "maximum(x, 1)": lambda x: rlx.maximum(x, 1.0),
    "minimum(x, 1)": lambda x: rlx.minimum(x, 1.0),
    "max([x, 1])": lambda x: rlx.max(joined(x, 1.0)),
    "max([x, 1, 1])": lambda x: rlx.max(joined(x, 1.0, 1.0)),
    "min([x, 1])": lambda x: rlx.min(joined(x, 1.0)),
    "top_k([x, 1], 1)": lambda x: rlx.sum(rlx.top_k(joined(x, 1.0), 1)[0]),
    "top_k([1, x], 1)": lambda x: rlx.sum(rlx.top_k(rlx.flip(joined(x, 1.0)), 1)[0]),
    "sum(cumulative_max([x, 1]))": lambda x: rlx.sum(rlx.cumulative_max(joined(x, 1.0))),
    "sum(cumulative_min([x, 1]))": lambda x: rlx.sum(rlx.cumulative_min(joined(x, 1.0))),
    "max_pool([x, 1], 2)": lambda x: rlx.sum(nn.max_pool(joined(x, 1.0)[None, None], 2)),
    "min_pool([x, 1], 2)": lambda x: rlx.sum(nn.min_pool(joined(x, 1.0)[None, None], 2)),
    "abs(x)": rlx.abs,
    "sign(x)": rlx.sign,
    "copysign(x, 1)": lambda x: rlx.copysign(x, 1.0),
    "floor(x)": rlx.floor,
    "ceil(x)": rlx.ceil,
    "trunc(x)": rlx.trunc,
    "round(x)": piecewise.round,
    "sqrt(x)": rlx.sqrt,
    "rsqrt(x)": rlx.rsqrt,
    "cbrt(x)": rlx.cbrt,
    "hypot(x, 0)": lambda x: rlx.hypot(x, 0.0),
    "atan2(x, 0)": lambda x: rlx.atan2(x, 0.0),
    "abs(x + 0j)": lambda x: rlx.abs(rlx.make_complex(x, 0.0)),
    "angle(0 + xj)": lambda x: rlx.angle(rlx.make_complex(0.0, x)),
    "std([x, 1])": lambda x: rlx.std(joined(x, 1.0)),
    "vector_norm([x, 0])": lambda x: rlx.linalg.vector_norm(joined(x, 0.0)),
    "vector_norm([x, 0], ord=1)": lambda x: rlx.linalg.vector_norm(joined(x, 0.0), ord=1),
    "vector_norm([x, 0], ord=3)": lambda x: rlx.linalg.vector_norm(joined(x, 0.0), ord=3),
}
"""Each of a scalar x."""
