"""Control flow as functions of Python: bodies are traced once, and what they capture becomes an operand of the op.

A choice needs both functions to return the same types; a loop needs its body to return the carry as it took it. A Python number
as the initial carry is weakly typed: it has the dtype that the body makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from rlx_core.errors import DtypeError, Fact, RlxError, ShapeError, TraceError, WrongInputCountError
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import DType, bool_, i32, i64, weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder, as_results, building
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType, normalize_axis, same_dim
from rlx_core.ops.arithmetic import add
from rlx_core.ops.array_api import concat, flip, stack
from rlx_core.ops.call import results_of
from rlx_core.ops.comparison import less
from rlx_core.ops.control.bodies import made
from rlx_core.ops.control.checkpoints import in_segments
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.creation import iota
from rlx_core.transforms.functional import as_value
from rlx_core.transforms.trace import Leaf, is_static_leaf, trace_flat
from rlx_core.trees.flatten import Tree, expect_function, flatten, function_name, same_structure

__all__ = ["associative_scan", "cond", "fori_loop", "mapped", "scan", "switch", "while_loop"]

Function = Callable[..., Any]


@frozen(eq=False)
class Body:
    """A function traced: its graph takes leaves and then captures, which stand for values of the enclosing trace."""

    graph: Graph
    results: Tree
    captures: Mapping[str, Value]

    def over(self, leaves: Sequence[tuple[str, TensorType]], captured: Sequence[Value]) -> Graph:
        """The graph with these leaves, and these values of the enclosing trace after them, as its inputs."""
        builder = Builder(self.graph.name)
        with building(builder):
            inputs = {name: builder.input(name, type) for name, type in leaves}
            stands_for = {v: builder.input(f"captured{i}", v.type) for i, v in enumerate(captured)}
            inputs |= {name: stands_for[v] for name, v in self.captures.items()}
            return builder.finish(inline(builder, self.graph, inputs))


@frozen(eq=False)
class Carry:
    """What a loop carries: its leaves as values of the enclosing trace, their names, and which were Python numbers."""

    builder: Builder
    leaves: tuple[Any, ...]
    tree: Tree
    types: tuple[TensorType, ...]

    @classmethod
    def of(cls, builder: Builder, init: Any) -> Carry:
        leaves, tree = flatten(init, "carry")
        types = (TensorType(i32, ()) if _is_weak_integer(leaf) else as_value(builder, leaf).type for leaf in leaves)
        return cls(builder, tuple(leaves), tree, tuple(types))

    def values(self) -> list[Value]:
        return [
            self.builder.constant(leaf, type.dtype) if is_static_leaf(leaf) else as_value(self.builder, leaf)
            for leaf, type in zip(self.leaves, self.types, strict=True)
        ]

    def inputs(self) -> list[tuple[str, TensorType]]:
        return list(zip(self.tree.names, self.types, strict=True))

    def returned(self, what: str, result: Any) -> list[Any]:
        """The leaves of a carry that a body returned."""
        leaves, tree = flatten(result, "carry")
        same_structure(f"{what}: the carry after a step", self.tree, tree)
        return [_numbered(leaf, t.dtype) for leaf, t in zip(leaves, self.types, strict=True)]

    def stepped(self, what: str, trace: Callable[[Carry], Body]) -> tuple[Carry, Body]:
        """The body that `trace` makes for this carry, and the carry once Python numbers in it have their dtypes.

        Raises:
            ShapeError, DtypeError: A carry changes its type.
        """
        body = trace(self)
        found = body.graph.outputs[: len(self.types)]
        types = tuple(_settled(leaf, a, b.dtype) for leaf, a, b in zip(self.leaves, self.types, found, strict=True))
        if types == self.types:
            self._expect_kept(what, found)
            return self, body
        settled = Carry(self.builder, self.leaves, self.tree, types)
        body = trace(settled)
        settled._expect_kept(what, body.graph.outputs)
        return settled, body

    def _expect_kept(self, what: str, found: Sequence[Value]) -> None:
        for name, before, after in zip(self.tree.names, self.types, found, strict=False):
            if after.type == before:
                continue
            error = DtypeError if after.shape == before.shape else ShapeError
            raise error(
                f"{what}: the carry {name} is {before} before a step and {after.type} after it",
                Fact("returned", after.type, after.node.origin.source),
                hint=f"begin with {after.type}, or rlx.astype(…, rlx.{before.dtype}) what the body returns"
                if error is DtypeError
                else "a carry keeps its shape: what grows is a result of each step (the second of the pair that rlx.scan's body "
                "returns)",
            )


def _is_weak_integer(leaf: Any) -> bool:
    """Whether a leaf is an integer that beside f32 is f32; as i64, which it is by itself, it would make that f64."""
    return type(leaf) is int and -(2**31) <= leaf < 2**31


def _settled(leaf: Any, begun: TensorType, found: DType) -> TensorType:
    """The type of a carry once a body has been traced on it: a Python number has what became of it."""
    if not is_static_leaf(leaf):
        return begun
    is_still_weak = _is_weak_integer(leaf) and found is begun.dtype
    return TensorType(weak_dtype(leaf) if is_still_weak else found, begun.shape)


def within(what: str) -> Builder:
    """The program being traced.

    Raises:
        TraceError: There is none.
    """
    builder = ambient_builder()
    if builder is None:
        raise TraceError(f"{what}: there is no program being traced", hint=f"call rlx.{what}, which starts one")
    return builder


def traced(function: Function, inputs: Sequence[tuple[str, TensorType]], call: Callable[[list[Any]], Any]) -> Body:
    """`call`, which calls `function`, traced on leaves of these names and types."""
    leaves = [Leaf(name, "input", type) for name, type in inputs]
    return Body(*trace_flat(function_name(function), leaves, call, capturing=True))


def _numbered(leaf: Any, dtype: DType) -> Any:
    """A leaf that a body returned; a Python number takes the dtype of what it is the next value of."""
    if not is_static_leaf(leaf) or isinstance(leaf, str):
        return leaf
    builder = ambient_builder()
    assert builder is not None, "bodies are traced"
    return builder.constant(leaf, weak_dtype(leaf, [dtype]))


def _captured(*bodies: Body) -> list[Value]:
    return list(dict.fromkeys(v for body in bodies for v in body.captures.values()))


# ---------------------------------------------------------------------------------------------- choices


def cond(pred: Any, true_fn: Function, false_fn: Function, *operands: Any) -> Any:
    """See `rlx.cond`."""
    builder = within("cond")
    for function in (true_fn, false_fn):
        expect_function("cond", function)
    chosen = _scalar("cond", "the predicate", as_value(builder, pred))
    if chosen.dtype is not bool_:
        raise DtypeError(f"cond: the predicate must be one bool, not {chosen.type}", hint="compare it: x != 0")
    values, inputs, (then, otherwise) = _branches("cond", builder, [true_fn, false_fn], operands)
    captured = _captured(then, otherwise)
    found = If(then.over(inputs, captured), otherwise.over(inputs, captured))(chosen, *values, *captured)
    return then.results.unflatten(as_results(found))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """See `rlx.switch`."""
    builder = within("switch")
    if not branches:
        raise WrongInputCountError("switch: there must be at least one branch")
    for function in branches:
        expect_function("switch", function)
    number = _scalar("switch", "the index", as_value(builder, index))
    if not number.dtype.is_integer:
        raise DtypeError(f"switch: the index must be one integer, not {number.type}")
    values, inputs, bodies = _branches("switch", builder, branches, operands)
    captured = _captured(*bodies)
    graphs = [body.over([("index", number.type), *inputs], captured) for body in bodies]
    types = tuple(graphs[0].input_types.values())

    def among(first: int, end: int) -> Graph:
        """The graph that chooses one of the branches from `first` up to `end`, halving their number each time."""
        if end - first == 1:
            return graphs[first]
        middle = (first + end) // 2
        choice = If(among(first, middle), among(middle, end))
        return made("switch", types, lambda i, *x: as_results(choice(less(i, middle), i, *x)))

    with building(builder):
        found = results_of(among(0, len(graphs)), (number, *values, *map(builder._own, captured)))
    return bodies[0].results.unflatten(found)


def _scalar(what: str, operand: str, value: Value) -> Value:
    if value.shape != ():
        raise ShapeError(
            f"{what}: {operand} must be a scalar, not {value.type}",
            Fact(operand, value.type, value.node.origin.source),
            hint="rlx.where chooses element by element; rlx.any and rlx.all make one bool of many",
        )
    return value


def _branches(
    what: str, builder: Builder, functions: Sequence[Function], operands: Sequence[Any]
) -> tuple[list[Value], list[tuple[str, TensorType]], list[Body]]:
    """The operands as values and as inputs, and each function traced on them; all return the same structure and types.

    Raises:
        ShapeError, DtypeError: They do not; the result is named, with what each function returns.
    """
    leaves, tree = flatten(tuple(operands), "x")
    values = [as_value(builder, leaf) for leaf in leaves]
    inputs = list(zip(tree.names, (v.type for v in values), strict=True))

    def traced_branch(function: Function) -> Body:
        return traced(function, inputs, lambda given: _numbers_typed(function(*tree.unflatten(given))))

    bodies = [traced_branch(function) for function in functions]
    first, name = bodies[0], function_name(functions[0])
    for body, function in zip(bodies[1:], functions[1:], strict=True):
        other = function_name(function)
        same_structure(f"{what}: {name} and {other} return different structures", first.results, body.results)
        for leaf, a, b in zip(first.results.names, first.graph.outputs, body.graph.outputs, strict=True):
            if a.type != b.type:
                error: type[RlxError] = DtypeError if a.shape == b.shape else ShapeError
                raise error(
                    f"{what}: {leaf} is {a.type} in {name} and {b.type} in {other}",
                    Fact(name, a.type, a.node.origin.source),
                    Fact(other, b.type, b.node.origin.source),
                )
    return values, inputs, bodies


def _numbers_typed(result: Any) -> Any:
    """A result whose Python numbers have the dtypes that they have by themselves."""
    leaves, tree = flatten(result)
    numbers = any(is_static_leaf(leaf) for leaf in leaves)
    return tree.unflatten([_weakly(leaf) for leaf in leaves]) if numbers else result


def _weakly(leaf: Any) -> Any:
    return _numbered(leaf, weak_dtype(leaf)) if is_static_leaf(leaf) and not isinstance(leaf, str) else leaf


# ------------------------------------------------------------------------------------------------ loops


def while_loop(cond: Function, body: Function, init: Any, *, max_steps: int | None = None) -> Any:
    """See `rlx.while_loop`."""
    builder = within("while_loop")
    for function in (cond, body):
        expect_function("while_loop", function)
    begun = Carry.of(builder, init)
    carry, step = begun.stepped(
        "while_loop",
        lambda c: traced(body, c.inputs(), lambda given: c.returned("while_loop", body(c.tree.unflatten(given)))),
    )
    test = traced(cond, carry.inputs(), lambda given: cond(carry.tree.unflatten(given)))
    _expect_one_bool(test.graph.outputs)
    captured = _captured(step, test)
    inputs = carry.inputs()
    loop = While(test.over(inputs, captured), step.over(inputs, captured), len(inputs), max_steps)
    return carry.tree.unflatten(as_results(loop(*carry.values(), *captured)))


def _expect_one_bool(outputs: Sequence[Value]) -> None:
    if len(outputs) == 1 and outputs[0].dtype is bool_ and outputs[0].shape == ():
        return
    found = ", ".join(str(v.type) for v in outputs) or "nothing"
    shape_only = len(outputs) == 1 and outputs[0].dtype is bool_
    raise (ShapeError if shape_only else DtypeError)(
        f"while_loop: the condition must be one bool, not {found}",
        *[Fact("condition", v.type, v.node.origin.source) for v in outputs[:1]],
        hint="rlx.all or rlx.any makes one bool of many" if shape_only else "compare: return x < limit",
    )


def fori_loop(lower: Any, upper: Any, body: Function, init: Any) -> Any:
    """See `rlx.fori_loop`."""
    within("fori_loop")
    expect_function("fori_loop", body)
    if all(type(each) is int or isinstance(each, Expr) for each in (lower, upper)):
        return _counted(lower, upper, body, init)
    numbers = [each for each in (lower, upper) if type(each) is not int]
    dtypes = {as_value(within("fori_loop"), each).dtype for each in numbers}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_integer:
        raise DtypeError(
            f"fori_loop: bounds must be integers of one dtype, not {' and '.join(sorted(d.name for d in dtypes))}"
        )
    (counter,) = dtypes
    first, end = (
        within("fori_loop").constant(e, counter) if type(e) is int else as_value(within("fori_loop"), e)
        for e in (lower, upper)
    )
    for each in (first, end):
        _scalar("fori_loop", "a bound", each)

    def goes(state: tuple[Any, Any]) -> Any:
        return state[0] < end

    def step(state: tuple[Any, Any]) -> Any:
        return state[0] + 1, body(*state)

    step.__name__ = function_name(body)
    return while_loop(goes, step, (first, init))[1]


def _counted(lower: Dim, upper: Dim, body: Function, init: Any) -> Any:
    """The loop between bounds that are known now, or are sizes: it goes over the indices."""
    length = upper - lower
    if isinstance(length, int):
        length = max(length, 0)
    is_wide = any(isinstance(each, int) and not -(2**31) <= each < 2**31 for each in (lower, upper))
    indices = iota(axis=0, shape=(length,), dtype=i64 if is_wide else i32)
    if not (isinstance(lower, int) and lower == 0):
        indices = add(indices, lower)

    def step(carry: Any, i: Any) -> Any:
        return body(i, carry), None

    step.__name__ = function_name(body)
    return _scan("fori_loop", step, init, indices, length, False)[0]


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


def mapped(function: Function, xs: Any) -> Any:
    """See `rlx.map`."""
    expect_function("map", function)

    def step(_: Any, x: Any) -> Any:
        return None, function(x)

    step.__name__ = function_name(function)
    return _scan("map", step, None, xs, None, False)[1]


def _scan(
    what: str,
    body: Function,
    init: Any,
    xs: Any,
    length: Dim | None,
    reverse: bool,
    checkpoints: int | None = None,
) -> tuple[Any, Any]:
    builder = within(what)
    leaves, tree = flatten(xs, "x")
    stacked = [as_value(builder, leaf) for leaf in leaves]
    steps = _length(what, tree.names, stacked, length)
    elements = [(n, v.type.with_shape(v.shape[1:])) for n, v in zip(tree.names, stacked, strict=True)]
    outputs: list[Tree] = []

    def trace(carry: Carry) -> Body:
        def call(given: list[Any]) -> Any:
            count = len(carry.types)
            found = body(carry.tree.unflatten(given[:count]), tree.unflatten(given[count:]))
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise TraceError(
                    f"{what}: the body must return a pair, the next carry and this step's result, not {type(found).__name__}",
                    hint="return carry, None where a step has no result",
                )
            ys, form = flatten(_numbers_typed(found[1]), "y")
            outputs.append(form)
            return [*carry.returned(what, found[0]), *ys]

        return traced(body, [*carry.inputs(), *elements], call)

    carry, step = Carry.of(builder, init).stepped(what, trace)
    captured = _captured(step)
    count = len(carry.types)
    graph = _constants_second(step.over([*carry.inputs(), *elements], captured), count, len(elements))
    op, operands = Scan(graph, count, len(captured), steps, reverse), (*carry.values(), *captured, *stacked)
    if checkpoints is None:
        found = as_results(op(*operands))
    else:
        with building(builder):
            found = in_segments(op, checkpoints, [builder._own(v) for v in operands])
    return carry.tree.unflatten(found[:count]), outputs[-1].unflatten(found[count:])


def _constants_second(graph: Graph, carries: int, elements: int) -> Graph:
    """The graph with what follows the elements before them."""
    inputs = list(graph.input_types.items())
    first = carries + elements
    ordered = [*inputs[:carries], *inputs[first:], *inputs[carries:first]]
    return graph if ordered == inputs else Body(graph, Tree(None, ()), {}).over(ordered, ())  # type: ignore[arg-type]


def _length(what: str, names: Sequence[str], stacked: Sequence[Value], length: Dim | None) -> Dim:
    """How many steps there are.

    Raises:
        ShapeError: Nothing says it, two lengths differ, or there are fewer than none.
    """
    for name, value in zip(names, stacked, strict=True):
        if not value.ndim:
            raise ShapeError(f"{what}: {name} is {value.type}, and must have an axis to go along")
    if length is None and not stacked:
        raise ShapeError(f"{what}: nothing says how many steps there are", hint=f"rlx.{what}(…, length=n)")
    if isinstance(length, int) and length < 0:
        raise ShapeError(f"{what}: length must be at least 0, not {length}")
    wanted = stacked[0].shape[0] if length is None else length
    for name, value in zip(names, stacked, strict=True):
        if not same_dim(value.shape[0], wanted):
            said = f"length={length}" if length is not None else f"{names[0]} has {wanted}"
            raise ShapeError(
                f"{what}: {name} has {value.shape[0]} elements along its first axis, and {said}",
                Fact(name, value.type, value.node.origin.source),
            )
    return wanted


# -------------------------------------------------------------------------------------- in logarithmic depth


def associative_scan(function: Function, xs: Any, axis: int = 0, reverse: bool = False) -> Any:
    """See `rlx.associative_scan`."""
    builder = within("associative_scan")
    expect_function("associative_scan", function)
    leaves, tree = flatten(xs, "x")
    values = [as_value(builder, leaf) for leaf in leaves]
    axes = [normalize_axis(axis, v.ndim) for v in values]
    sizes = {v.shape[a] for v, a in zip(values, axes, strict=True)}
    if len(sizes) != 1 or not isinstance(next(iter(sizes)), int):
        given = ", ".join(map(str, sizes)) or "nothing"
        raise ShapeError(f"associative_scan: all arrays must have one known size along the axis, not {given}")

    def combined(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        found, form = flatten(function(tree.unflatten(a), tree.unflatten(b)), "x")
        same_structure("associative_scan", tree, form)
        for name, before, after in zip(tree.names, a, found, strict=True):
            if after.type != before.type:
                raise ShapeError(
                    f"associative_scan: {name} is {before.type} and becomes {after.type} when two are combined"
                )
        return found

    def cut(parts: Sequence[Value], *bounds: int | None) -> list[Value]:
        return [v[(*[slice(None)] * a, slice(*bounds))] for v, a in zip(parts, axes, strict=True)]

    def merged(even: Sequence[Value], odd: Sequence[Value]) -> list[Value]:
        """Both in turns, the even ones first; there may be one more of them."""
        return [_in_turns(e, o, a) for e, o, a in zip(even, odd, axes, strict=True)]

    def running(parts: list[Value]) -> list[Value]:
        count = parts[0].shape[axes[0]]
        assert isinstance(count, int), "sizes along the axis are known"
        if count < 2:
            return parts
        # Neighbours together, then what is before each pair: half as many, twice as long.
        odd = running(combined(cut(parts, 0, count - 1, 2), cut(parts, 1, None, 2)))
        before = odd if count % 2 else cut(odd, 0, -1)
        rest = combined(before, cut(parts, 2, None, 2)) if count > 2 else []
        first = cut(parts, 0, 1)
        even = [concat([f, r], axis=a) for f, r, a in zip(first, rest, axes, strict=True)] if rest else first
        return merged(even, odd)

    if not values:
        return xs
    turned = [flip(v, axis=a) for v, a in zip(values, axes, strict=True)] if reverse else values
    found = running(turned)
    return tree.unflatten([flip(v, axis=a) for v, a in zip(found, axes, strict=True)] if reverse else found)


def _in_turns(even: Value, odd: Value, axis: int) -> Value:
    count = odd.shape[axis]
    assert isinstance(count, int), "sizes along the axis are known"
    head = even[(*[slice(None)] * axis, slice(0, count))]
    shape = (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :])
    pairs = stack([head, odd], axis=axis + 1).reshape(shape)
    last = even[(*[slice(None)] * axis, slice(count, None))]
    return concat([pairs, last], axis=axis) if even.shape[axis] != count else pairs
