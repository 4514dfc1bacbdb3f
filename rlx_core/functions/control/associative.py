"""`associative_scan`: parallel prefix combinations in logarithmic depth, built from slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.functions.control.tracing import Function, with_arguments
from rlx_core.ir.graph import Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.array_shapes import flip, stack
from rlx_core.ops.movement import concat
from rlx_core.transforms.lifting import as_value, current_builder
from rlx_core.trees.flatten import expect_function, flatten, same_structure


def associative_scan(function: Function, xs: Any, axis: int = 0, reverse: bool = False) -> Any:
    """See `rlx.associative_scan`."""
    builder = current_builder("associative_scan")
    expect_function("associative_scan", function)
    if type(reverse) is not bool:
        raise ConfigError(f"associative_scan: reverse must be True or False, not {reverse!r}")
    leaves, tree = flatten(xs, "x")
    values = [as_value(builder, leaf) for leaf in leaves]
    axes = [normalize_axis(axis, v.ndim) for v in values]
    sizes = {v.shape[a] for v, a in zip(values, axes, strict=True)}
    if len(sizes) != 1 or not isinstance(next(iter(sizes)), int):
        lengths = ", ".join(map(str, sizes)) or "nothing"
        raise ShapeError(
            f"associative_scan: all arrays must have one known size along the axis, not {lengths}",
            hint="the size decides how many rounds there are; rlx.scan takes an axis of unknown size"
            if len(sizes) == 1
            else None,
        )

    def combined(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        outputs, form = flatten(with_arguments(function, tree.unflatten(a), tree.unflatten(b)), "x")
        same_structure("associative_scan", tree, form)
        for name, before, after in zip(tree.names, a, outputs, strict=True):
            if after.type != before.type:
                raise ShapeError(
                    f"associative_scan: {name} is {before.type} and becomes {after.type} when two are combined"
                )
        return outputs

    def cut(parts: Sequence[Value], *bounds: int | None) -> list[Value]:
        return [v[(*[slice(None)] * a, slice(*bounds))] for v, a in zip(parts, axes, strict=True)]

    def merged(even: Sequence[Value], odd: Sequence[Value]) -> list[Value]:
        """Interleave both, starting with `even`, which may have one more element."""
        return [_in_turns(e, o, a) for e, o, a in zip(even, odd, axes, strict=True)]

    def running(parts: list[Value]) -> list[Value]:
        count = parts[0].shape[axes[0]]
        assert isinstance(count, int), "sizes along the axis are known"
        if count < 2:
            return parts
        # Combine adjacent pairs and scan the results, half as many, recursively; the even positions follow from these.
        odd = running(combined(cut(parts, 0, count - 1, 2), cut(parts, 1, None, 2)))
        before = odd if count % 2 else cut(odd, 0, -1)
        remaining = combined(before, cut(parts, 2, None, 2)) if count > 2 else []
        first = cut(parts, 0, 1)
        even = [concat([f, r], axis=a) for f, r, a in zip(first, remaining, axes, strict=True)] if remaining else first
        return merged(even, odd)

    if not values:
        return xs
    flipped: list[Any] = [flip(v, axis=a) for v, a in zip(values, axes, strict=True)] if reverse else values
    scanned = running(flipped)
    return tree.unflatten([flip(v, axis=a) for v, a in zip(scanned, axes, strict=True)] if reverse else scanned)


def _in_turns(even: Value, odd: Value, axis: int) -> Value:
    count = odd.shape[axis]
    assert isinstance(count, int), "sizes along the axis are known"
    head = even[(*[slice(None)] * axis, slice(0, count))]
    shape = (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :])
    pairs: Any = stack([head, odd], axis=axis + 1).reshape(shape)
    last = even[(*[slice(None)] * axis, slice(count, None))]
    return concat([pairs, last], axis=axis) if even.shape[axis] != count else pairs
