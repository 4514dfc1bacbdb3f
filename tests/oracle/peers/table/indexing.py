"""What reads and writes at places that are known only when the program runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

import rlx_core as rlx
from rlx_core import nn

from ..rows import Draw, Family, Row

__all__ = ["FAMILY"]


def rows_and_indices(d: Draw) -> Any:
    """An array, places along an axis of it, a few of them negative, and the axis."""
    rank = d.size(1, 3)
    shape, axis = d.shape(rank, 2, 6), d.size(0, rank - 1)
    return (d.floats(shape), d.integers(shape[axis], (d.size(1, 5),))), {"axis": axis}


def like_each(d: Draw) -> Any:
    shape, axis = d.shape(2, 2, 6), d.size(0, 1)
    places = d.integers(shape[axis], [d.size(1, 4) if i == axis else n for i, n in enumerate(shape)])
    return (d.floats(shape), places), {"axis": axis}


def updated(*, is_unique: bool) -> Any:
    """An array, updates of some of its rows, and which rows; the same one twice only where order does not matter."""

    def cases(d: Draw) -> Any:
        n, m, count = d.size(4, 7), d.size(1, 4), d.size(1, 4)
        rows = d.elements.permutation(n)[:count].astype(np.int64) if is_unique else d.integers(n, (count,))
        return (d.apart((n, m)), d.rounded(np.asarray(d.apart((count, m)), np.float64) + 0.03125), rows), {}

    return cases


def jax_scattered(mode: str) -> Any:
    return lambda x, updates, rows: getattr(x.at[rows], mode)(updates)


def torch_reduced(mode: str) -> Any:
    return lambda x, updates, rows: x.scatter_reduce(0, rows[:, None].expand_as(updates), updates, mode)


def sliced(d: Draw) -> Any:
    shape = d.shape(2, 3, 6)
    sizes = tuple(d.size(1, n) for n in shape)
    # Starts beyond the end are moved until the slice lies within the array.
    starts = [np.asarray(d.elements.integers(0, n + 2), np.int32) for n in shape]
    return (d.floats(shape), *starts), {"sizes": sizes}


def overwritten(d: Draw) -> Any:
    args, attributes = sliced(d)
    return (args[0], d.floats(attributes["sizes"]), *args[1:]), {}


def clamped(start: Any, size: int, length: int) -> int:
    return min(max(int(start), 0), length - size)


def torch_slice(x: Any, i: Any, j: Any, *, sizes: Any) -> Any:
    a, b = (clamped(s, k, n) for s, k, n in zip((i, j), sizes, x.shape, strict=True))
    return x[a : a + sizes[0], b : b + sizes[1]]


def torch_update(x: Any, update: Any, i: Any, j: Any) -> Any:
    a, b = (clamped(s, k, n) for s, k, n in zip((i, j), update.shape, x.shape, strict=True))
    found = x.clone()
    found[a : a + update.shape[0], b : b + update.shape[1]] = update
    return found


def pairs_of_places(d: Draw) -> Any:
    n, m = d.shape(2, 2, 6)
    count = d.size(1, 5)
    return (d.floats((n, m, d.size(1, 3))), np.stack([d.integers(n, (count,)), d.integers(m, (count,))], -1)), {}


INDEX = {"asks": ("dtype", "forward", "gradient", "jvp", "batch", "second")}

FAMILY = Family(
    "Indexing",
    [
        Row("take", rlx.take, rows_and_indices, lambda x, i, *, axis: x.index_select(axis, i), jnp.take, **INDEX),
        Row(
            "gather",
            rlx.gather,
            rows_and_indices,
            lambda x, i, *, axis: x.index_select(axis, i),
            lambda x, i, *, axis: jnp.take(x, i, axis),
        ),
        Row(
            "take_along_axis",
            rlx.take_along_axis,
            like_each,
            lambda x, i, *, axis: x.take_along_dim(i, axis),
            jnp.take_along_axis,
            **INDEX,
        ),
        Row(
            "x[indices]",
            lambda x, i, *, axis: x[i % x.shape[0]],
            rows_and_indices,
            lambda x, i, *, axis: x[i % x.shape[0]],
            lambda x, i, *, axis: x[i % x.shape[0]],
        ),
        Row(
            "gather_nd",
            rlx.gather_nd,
            pairs_of_places,
            lambda x, i: x[i[:, 0], i[:, 1]],
            lambda x, i: x[i[:, 0], i[:, 1]],
        ),
        Row(
            "embedding",
            lambda x, i, *, axis: nn.embedding(i % x.shape[0], x),
            rows_and_indices,
            lambda x, i, *, axis: (
                torch.nn.functional.embedding(i % x.shape[0], x) if x.ndim == 2 else x[i % x.shape[0]]
            ),
            lambda x, i, *, axis: x[i % x.shape[0]],
        ),
        Row(
            "one_hot",
            lambda i: nn.one_hot(i, 5, dtype="i64"),
            lambda d: ((d.integers(5, d.shape(2)),), {}),
            lambda i: torch.nn.functional.one_hot(i, 5),
            lambda i: jax.nn.one_hot(i, 5, dtype=jnp.int64),
            asks={"dtype", "forward", "batch"},
        ),
        Row(
            "scatter",
            lambda x, u, i: rlx.scatter(x, i, u),
            updated(is_unique=True),
            lambda x, u, i: x.index_copy(0, i, u),
            jax_scattered("set"),
            **INDEX,
        ),
        Row(
            "scatter(mode='add')",
            lambda x, u, i: rlx.scatter(x, i, u, mode="add"),
            updated(is_unique=False),
            lambda x, u, i: x.index_add(0, i, u),
            jax_scattered("add"),
            **INDEX,
        ),
        Row(
            "scatter(mode='max')",
            lambda x, u, i: rlx.scatter(x, i, u, mode="max"),
            updated(is_unique=True),
            torch_reduced("amax"),
            jax_scattered("max"),
            lacks={("torch", "jvp"): "PyTorch has no forward mode for it"},
        ),
        Row(
            "scatter(mode='min')",
            lambda x, u, i: rlx.scatter(x, i, u, mode="min"),
            updated(is_unique=True),
            torch_reduced("amin"),
            jax_scattered("min"),
            lacks={("torch", "jvp"): "PyTorch has no forward mode for it"},
        ),
        Row(
            "put_along_axis",
            rlx.put_along_axis,
            lambda d: (
                (
                    d.floats((4, 5)),
                    d.elements.permuted(np.tile(np.arange(5), (4, 1)), axis=1)[:, :3].copy(),
                    d.floats((4, 3)),
                ),
                {"axis": 1},
            ),
            lambda x, i, u, *, axis: x.scatter(axis, i, u),
            lambda x, i, u, *, axis: jnp.put_along_axis(x, i, u, axis, inplace=False),
        ),
        Row(
            "dynamic_slice",
            lambda x, i, j, *, sizes: rlx.dynamic_slice(x, [i, j], sizes),
            sliced,
            torch_slice,
            lambda x, i, j, *, sizes: lax.dynamic_slice(x, (i, j), sizes),
            **INDEX,
        ),
        Row(
            "dynamic_update_slice",
            lambda x, u, i, j: rlx.dynamic_update_slice(x, u, [i, j]),
            overwritten,
            torch_update,
            lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
            **INDEX,
        ),
        Row(
            "dynamic_slice from negative starts",
            # Of so many elements that tangents of 16 bits are not by chance equal in both places.
            lambda x, i: rlx.dynamic_slice(x, [i], [8]),
            lambda d: ((d.floats((13,)), np.asarray(-1 - d.size(0, 1), np.int32)), {}),
            None,
            lambda x, i: lax.dynamic_slice(x, (i,), (8,)),
            differs={
                ("jax", question): "here a negative start is moved to 0; JAX counts it from the end"
                for question in ("forward", "gradient", "jvp", "batch")
            },
        ),
    ],
)
