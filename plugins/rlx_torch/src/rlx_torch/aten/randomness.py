"""Random numbers, generated from a key that the program's caller passes; they differ from torch's generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import rlx_core as rlx
from rlx_core import random
from rlx_torch.aten.context import fresh_key
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten

F = TypeVar("F", bound=Callable[..., Any])


def uniform(shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = None) -> Any:
    return random.uniform(fresh_key(), tuple(shape), dtype or rlx.f32, low, high)


def normal(shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = None) -> Any:
    drawn = random.normal(fresh_key(), tuple(shape), dtype or rlx.f32)
    return drawn * as_value(std, drawn.dtype) + as_value(mean, drawn.dtype)


def integers(low: int, high: int, shape: Any, dtype: Any = None) -> Any:
    return convert(random.randint(fresh_key(), tuple(shape), low, high, rlx.i64), dtype or rlx.i64)


def _drawn(*overloads: str) -> Callable[[F], F]:
    return aten(*overloads, draws=True)


_drawn("rand", "rand.generator")(lambda size, dtype=None: uniform(size, dtype=dtype))
_drawn("randn", "randn.generator")(lambda size, dtype=None: normal(size, dtype=dtype))
_drawn("rand_like", "rand_like.generator")(lambda x, dtype=None: uniform(x.shape, dtype=dtype or x.dtype))
_drawn("randn_like", "randn_like.generator")(lambda x, dtype=None: normal(x.shape, dtype=dtype or x.dtype))
_drawn("randint", "randint.generator")(lambda high, size, dtype=None: integers(0, high, size, dtype))
_drawn("randint.low", "randint.low_generator")(lambda low, high, size, dtype=None: integers(low, high, size, dtype))
_drawn("randint_like")(lambda x, high, dtype=None: integers(0, high, x.shape, dtype or x.dtype))
_drawn("randint_like.low_dtype")(lambda x, low, high, dtype=None: integers(low, high, x.shape, dtype or x.dtype))
_drawn("uniform")(lambda x, low=0.0, high=1.0, generator=None: uniform(x.shape, low, high, x.dtype))
_drawn("normal_functional")(lambda x, mean=0.0, std=1.0, generator=None: normal(x.shape, mean, std, x.dtype))
_drawn("normal.Tensor_float")(lambda mean, std=1.0, generator=None: normal(mean.shape, mean, std, mean.dtype))
_drawn("normal.float_Tensor")(lambda mean, std, generator=None: normal(std.shape, mean, std, std.dtype))
_drawn("normal.float_float")(lambda mean, std, size, dtype=None, generator=None: normal(size, mean, std, dtype))
_drawn("exponential")(lambda x, rate=1.0, generator=None: random.exponential(fresh_key(), x.shape, x.dtype) / rate)
_drawn("bernoulli")(lambda p, generator=None: convert(random.bernoulli(fresh_key(), p, p.shape), p.dtype))
_drawn("bernoulli.p")(lambda x, p=0.5, generator=None: convert(random.bernoulli(fresh_key(), p, x.shape), x.dtype))


@_drawn("normal.Tensor_Tensor")
def normal_tensors(mean: Any, std: Any, generator: Any = None) -> Any:
    mean, std = rlx.broadcast_arrays(mean, std)
    return normal(mean.shape, mean, std, mean.dtype)


@_drawn("randperm", "randperm.generator")
def randperm(n: Any, *, dtype: Any = None) -> Any:
    return convert(random.permutation(fresh_key(), rlx.arange(n)), dtype or rlx.i64)


@_drawn("multinomial")
def multinomial(p: Any, count: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """Classes by weight; without replacement, the largest of logits to which noise was added (Gumbel's trick)."""
    logits = rlx.log(p)
    if replacement:
        shape: Sequence[Any] = (count, *p.shape[:-1])
        drawn = random.categorical(fresh_key(), logits, -1, tuple(shape))
        return convert(rlx.moveaxis(drawn, 0, -1) if p.ndim > 1 else drawn, rlx.i64)
    noisy = logits + random.gumbel(fresh_key(), p.shape, p.dtype)
    return convert(rlx.top_k(noisy, count)[1], rlx.i64)
