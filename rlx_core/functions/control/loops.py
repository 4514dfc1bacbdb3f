"""Loops: `while_loop`, `fori_loop`, `scan` and `map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_core.errors import DtypeError, Fact, ShapeError, TraceError
from rlx_core.functions.control.tracing import (
    Carry,
    Function,
    TracedBody,
    captured_by,
    expect_scalar,
    traced,
    with_arguments,
)
from rlx_core.functions.functional import vmap
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import bool_, f64, i32, i64
from rlx_core.ir.graph import Builder, Value, as_results, building
from rlx_core.ir.types import TensorType, as_dim, same_dim
from rlx_core.ops.arguments import whole
from rlx_core.ops.arithmetic import add
from rlx_core.ops.control.checkpoints import in_segments
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.creation import iota
from rlx_core.ops.movement import concat
from rlx_core.ops.structural import reshape
from rlx_core.transforms.lifting import as_value, current_builder
from rlx_core.trees.flatten import Tree, expect_function, flatten, function_name


def while_loop(cond: Function, body: Function, init: Any, *, max_steps: int | None = None) -> Any:
    """See `rlx.while_loop`."""
    builder = current_builder("while_loop")
    for function in (cond, body):
        expect_function("while_loop", function)
    begun = Carry.of(builder, init)
    carry, step = begun.stepped(
        "while_loop",
        lambda c: traced(
            body, c.inputs(), lambda leaves: c.returned("while_loop", with_arguments(body, c.tree.unflatten(leaves)))
        ),
    )
    test = traced(cond, carry.inputs(), lambda leaves: with_arguments(cond, carry.tree.unflatten(leaves)))
    _expect_one_bool(test.graph.outputs)
    captured = captured_by(step, test)
    inputs = carry.inputs()
    loop = While(test.over(inputs, captured), step.over(inputs, captured), len(inputs), max_steps)
    return carry.tree.unflatten(as_results(loop(*carry.values(), *captured)))


def _expect_one_bool(outputs: Sequence[Value]) -> None:
    if len(outputs) == 1 and outputs[0].dtype is bool_ and outputs[0].shape == ():
        return
    types = ", ".join(str(v.type) for v in outputs) or "nothing"
    shape_only = len(outputs) == 1 and outputs[0].dtype is bool_
    raise (ShapeError if shape_only else DtypeError)(
        f"while_loop: the condition must be one bool, not {types}",
        *[Fact("condition", v.type, v.node.origin.source) for v in outputs[:1]],
        hint="rlx.all or rlx.any makes one bool of many" if shape_only else "compare: return x < limit",
    )


def fori_loop(lower: Any, upper: Any, body: Function, init: Any) -> Any:
    """See `rlx.fori_loop`."""
    builder = current_builder("fori_loop")
    expect_function("fori_loop", body)
    if all(type(each) is int or isinstance(each, Expr) for each in (lower, upper)):
        return _counted(builder, lower, upper, body, init)
    numbers = [each for each in (lower, upper) if type(each) is not int]
    dtypes = {as_value(builder, each).dtype for each in numbers}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_integer:
        raise DtypeError(
            f"fori_loop: bounds must be integers of one dtype, not {' and '.join(sorted(d.name for d in dtypes))}"
        )
    (counter,) = dtypes
    bounds = [builder.constant(e, counter) if type(e) is int else as_value(builder, e) for e in (lower, upper)]
    first, end = (expect_scalar("fori_loop", "a bound", each) for each in bounds)

    def goes(state: tuple[Any, Any]) -> Any:
        return state[0] < end

    def step(state: tuple[Any, Any]) -> Any:
        return state[0] + 1, with_arguments(body, *state)

    step.__name__ = function_name(body)
    return while_loop(goes, step, (first, init))[1]


def _counted(builder: Builder, lower: Dim, upper: Dim, body: Function, init: Any) -> Any:
    """Return the results of a loop whose bounds are known or are sizes: a scan over the indices."""
    length = upper - lower
    if isinstance(length, int):
        length = max(length, 0)
    is_wide = any(isinstance(each, int) and not -(2**31) <= each < 2**31 for each in (lower, upper))
    is_wide = is_wide or _is_double(Carry.of(builder, init).types)
    indices = iota(axis=0, shape=(length,), dtype=i64 if is_wide else i32)
    if not (isinstance(lower, int) and lower == 0):
        indices = add(indices, lower)

    def step(carry: Any, i: Any) -> Any:
        return with_arguments(body, i, carry), None

    step.__name__ = function_name(body)
    return _scan("fori_loop", step, init, indices, length, False)[0]


def _is_double(types: Sequence[TensorType]) -> bool:
    """Return whether all floats are f64 or c128: combined with an i32 a Python float is an f32, with an i64 an f64."""
    floats = {each.dtype.component for each in types if each.dtype.is_differentiable}
    return floats == {f64}


def scan(
    body: Function,
    init: Any,
    xs: Any = None,
    length: Dim | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[Any, Any]:
    """See `rlx.scan`."""
    expect_function("scan", body)
    return _scan("scan", body, init, xs, length, reverse, checkpoints)


def mapped(function: Function, xs: Any, batch_size: int | None = None) -> Any:
    """See `rlx.map`."""
    expect_function("map", function)
    if batch_size is not None:
        return _mapped_in_batches(function, xs, whole("map: batch_size", batch_size, 1))
    return _mapped_one_by_one(function, xs)


def _mapped_one_by_one(function: Function, xs: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        return None, with_arguments(function, x)

    step.__name__ = function_name(function)
    return _scan("map", step, None, xs, None, False)[1]


def _mapped_in_batches(function: Function, xs: Any, batch: int) -> Any:
    """Map full batches one after the other, each at once, then the remainder at once.

    Raises:
        ShapeError: The number of elements is unknown.
    """
    builder = current_builder("map")
    leaves, tree = flatten(xs, "x")
    stacked = [as_value(builder, leaf) for leaf in leaves]
    count = _length("map", tree.names, stacked, None)
    if not isinstance(count, int):
        raise ShapeError(f"map: batch_size={batch} needs a number of elements that is known, not {count}")
    at_once = vmap(lambda x: with_arguments(function, x))
    even = count // batch * batch
    parts = []
    if even or not count:
        rows = [reshape(v[:even], (even // batch, batch, *v.shape[1:])) for v in stacked]
        outputs, result_tree = flatten(_mapped_one_by_one(at_once, tree.unflatten(rows)), "y")
        parts.append([reshape(y, (even, *y.shape[2:])) for y in outputs])
    if even < count:
        outputs, result_tree = flatten(at_once(tree.unflatten([v[even:] for v in stacked])), "y")
        parts.append(outputs)
    return result_tree.unflatten([ys[0] if len(ys) == 1 else concat(ys, axis=0) for ys in zip(*parts, strict=True)])


def _scan(
    what: str,
    body: Function,
    init: Any,
    xs: Any,
    length: Dim | None,
    reverse: bool,
    checkpoints: int | None = None,
) -> tuple[Any, Any]:
    builder = current_builder(what)
    leaves, tree = flatten(xs, "x")
    stacked = [as_value(builder, leaf) for leaf in leaves]
    steps = _length(what, tree.names, stacked, length)
    elements = [(n, v.type.with_shape(v.shape[1:])) for n, v in zip(tree.names, stacked, strict=True)]
    outputs: list[Tree] = []

    def trace(carry: Carry) -> TracedBody:
        def call(leaves: list[Any]) -> Any:
            count = len(carry.types)
            returned = with_arguments(body, carry.tree.unflatten(leaves[:count]), tree.unflatten(leaves[count:]))
            if not isinstance(returned, tuple | list) or len(returned) != 2:
                raise TraceError(
                    f"{what}: the body must return a pair, the next carry and this step's result, not {type(returned).__name__}",
                    hint="return carry, None where a step has no result",
                )
            ys, form = flatten(returned[1], "y")
            outputs.append(form)
            return [*carry.returned(what, returned[0]), *ys]

        return traced(body, [*carry.inputs(), *elements], call)

    carry, step = Carry.of(builder, init).stepped(what, trace)
    captured = captured_by(step)
    count = len(carry.types)
    graph = step.over(carry.inputs(), captured, elements)
    op, operands = Scan(graph, count, len(captured), steps, reverse), (*carry.values(), *captured, *stacked)
    if checkpoints is None:
        results = as_results(op(*operands))
    else:
        with building(builder):
            results = in_segments(op, checkpoints, [builder._own(v) for v in operands])
    return carry.tree.unflatten(results[:count]), outputs[-1].unflatten(results[count:])


def _length(what: str, names: Sequence[str], stacked: Sequence[Value], length: Dim | None) -> Dim:
    """Return the number of steps.

    Raises:
        ShapeError: The number is unknown or negative, or two lengths differ.
    """
    for name, value in zip(names, stacked, strict=True):
        if not value.ndim:
            raise ShapeError(f"{what}: {name} is {value.type}, and must have an axis to go along")
    if length is None and not stacked:
        raise ShapeError(f"{what}: nothing says how many steps there are", hint=f"rlx.{what}(…, length=n)")
    if length is not None and isinstance(as_dim(length), int) and length < 0:
        raise ShapeError(f"{what}: length must be at least 0, not {length}")
    expected = stacked[0].shape[0] if length is None else as_dim(length)
    for name, value in zip(names, stacked, strict=True):
        if not same_dim(value.shape[0], expected):
            description = f"length={length}" if length is not None else f"{names[0]} has {expected}"
            raise ShapeError(
                f"{what}: {name} has {value.shape[0]} elements along its first axis, and {description}",
                Fact(name, value.type, value.node.origin.source),
            )
    return expected
