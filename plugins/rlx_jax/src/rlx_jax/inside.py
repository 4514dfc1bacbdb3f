"""`as_jax`: an rlx function inside of JAX programs, with derivatives and batching.

JAX calls back into Python for each run, and so pays for the way out and in again; what runs there is rlx's compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap

import rlx_core as rlx
from rlx_jax.sizes import as_spec


def as_jax(function: Callable[..., Any], /) -> Callable[..., Any]:
    """A function of rlx as one that JAX programs call, under `jax.jit`, `jax.vmap` and reverse mode of any order.

    Args:
        function: A function of pytrees of arrays that `rlx.jit` takes, or a model (`rlx.Model`).

    Raises:
        TraceError: It is no function.

    >>> double = as_jax(lambda x: rlx.tanh(x) * 2)
    >>> jax.jit(jax.grad(double))(np.float32(0))
    Array(2., dtype=float32)
    """
    compiled = rlx.jit(function)

    def run(*args: Any) -> Any:
        return compiled(*jax.tree_util.tree_map(np.asarray, args))

    def call(*args: Any) -> Any:
        return jax.pure_callback(run, results(function, args), *args)

    def batched(size: int, is_batched: Any, *args: Any) -> Any:
        def with_axis(has_axis: bool, leaf: Any) -> Any:
            return leaf if has_axis else jax.numpy.broadcast_to(leaf, (size, *leaf.shape))

        axes = tuple(0 if any(jax.tree_util.tree_leaves(each)) else None for each in is_batched)
        along = jax.tree_util.tree_map(with_axis, tuple(is_batched), args)
        total = [every if axis == 0 else arguments for axis, every, arguments in zip(axes, along, args, strict=True)]
        result = as_jax(rlx.vmap(function, in_axes=axes))(*total)
        return result, jax.tree_util.tree_map(lambda _: True, result)

    called = custom_vmap(call)
    called.def_vmap(batched)
    differentiable = jax.custom_vjp(called)

    def forward(*args: Any) -> Any:
        return differentiable(*args), args  # itself, because derivatives of derivatives go through here

    def backward(args: Any, cotangents: Any) -> Any:
        return as_jax(pulled)(args, cotangents)

    def pulled(args: Any, cotangents: Any) -> Any:
        _, pull = rlx.vjp(function, *args)
        return pull(cotangents)

    differentiable.defvjp(forward, backward)
    return differentiable


def results(function: Callable[..., Any], args: Any) -> Any:
    """Return the result types for JAX."""
    specs = jax.tree_util.tree_map(lambda leaf: as_spec(leaf, "as_jax"), args)
    result = rlx.eval_shape(function, *specs)
    return jax.tree_util.tree_map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype.numpy), result, is_leaf=is_type
    )


def is_type(leaf: Any) -> bool:
    return isinstance(leaf, rlx.TensorType)
