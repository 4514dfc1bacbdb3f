"""The design of rlx in one file, with NumPy only: `python docs/small.py` trains a model with it.

    function ──trace──▶ graph ──gradient──▶ graph ──optimise──▶ graph ──legalise──▶ graph ──plan──▶ program ──run──▶ arrays

Every stage is a graph, and every step is a function from graph to graph. An op is a class: its attributes are fields, its
operands are arguments, its rules are methods. Its semantics are defined by its decomposition into simpler ops, and every
other rule (a gradient, a kernel) is an optimisation of that definition.

rlx also has dtypes, symbolic sizes, several results, source lines, forward mode, batching, views, fusion and generated
code. The terms here are the same, and each part names the corresponding module of rlx.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

Shape = tuple[int, ...]
define_op = dataclass(frozen=True)


# ------------------------------------------------------------------------ ops, values, graphs (rlx_core/ir)
@define_op
class Op:
    """The base class of ops. A primitive has `reference` and `vjp`; any other op needs `decompose` only.

    reference(*arrays)    the result of a primitive, with NumPy
    decompose(*x)         the definition of any other op, in simpler ops
    vjp(g, *x, y)         one cotangent per operand, for the cotangent `g` of the result `y`
    """

    reference = decompose = vjp = None

    def __call__(self, *operands: Value | float) -> Value:
        """Apply this op to operands; a number becomes a constant with the shape of another operand."""
        shape = next((x.shape for x in operands if isinstance(x, Value)), ())
        return self.node(*(x if isinstance(x, Value) else Fill(float(x), shape)() for x in operands))

    def node(self, *x: Value) -> Value:
        is_pattern = any(each.shape is None for each in x)  # a variable of a rewrite rule matches any shape
        return Value(self, x, None if is_pattern else self.infer(*(each.shape for each in x)))

    def infer(self, *shapes: Shape) -> Shape:
        """The shape of the result, derived from decomposition or reference; an op may override it for speed."""
        if self.decompose:
            return self.decompose(*(Input("", shape)() for shape in shapes)).shape
        return self.reference(*(np.broadcast_to(1.0, shape) for shape in shapes)).shape

    def __str__(self) -> str:
        attributes = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return type(self).__name__.lower() + (f"{{{attributes}}}" if attributes else "")


@dataclass(frozen=True, eq=False)
class Value:
    """The result of an op on operands, compared by identity; Python's operators build further values."""

    op: Op
    operands: tuple[Value, ...]
    shape: Shape | None
    __array_ufunc__ = None  # `array + value` then calls the value's operator, instead of creating an object array

    __add__ = __radd__ = lambda self, other: Add()(self, other)
    __mul__ = __rmul__ = lambda self, other: Mul()(self, other)
    __matmul__ = lambda self, other: MatMul()(self, other)
    __neg__ = lambda self: Neg()(self)
    __sub__ = lambda self, other: self + -other
    __rsub__ = lambda self, other: -self + other

    T = property(lambda self: Transpose()(self))

    def __bool__(self) -> bool:
        raise TypeError(f"trace: the truth of {self.op} is only known when the program runs")


class Graph:
    """Outputs and the values that they depend on (up to the values of `stop`), in topological order."""

    def __init__(self, outputs: Iterable[Value], stop: Sequence[Value] = ()) -> None:
        self.outputs = tuple(outputs)
        order, stack = {}, list(self.outputs)
        while stack:
            missing = [] if stack[-1] in stop else [x for x in stack[-1].operands if x not in order]
            if missing:
                stack += missing
            else:
                order[stack.pop()] = None
        self.values = tuple(order)

    def __str__(self) -> str:
        names = {v: f"%{v.op.name if isinstance(v.op, Input) else i}" for i, v in enumerate(self.values)}
        steps = [v for v in self.values if not isinstance(v.op, Input)]
        lines = [f"{names[v]} = {v.op}({', '.join(names[x] for x in v.operands)}) : {[*v.shape]}" for v in steps]
        return "\n".join([*lines, f"return {', '.join(names[v] for v in self.outputs)}"])


def rebuild(graph: Graph, replace: Callable[[Value], Value | None], stop: Sequence[Value] = ()) -> Graph:
    """Replace values of a graph until nothing changes: `replace` returns another value, or `None` to keep it.

    Every transformation uses this traversal. Equal ops on the same operands become one value.
    """
    new, seen, fired = {v: v for v in stop}, {}, False
    for old in graph.values:
        if old not in new:
            operands = tuple(new[x] for x in old.operands)
            copy = old if operands == old.operands else Value(old.op, operands, old.shape)
            copy = seen.setdefault((type(copy.op), repr(copy.op), operands), copy)  # repr distinguishes 0.0 and -0.0
            result = replace(copy)
            assert result is None or result.shape == old.shape, f"{old.op}: {old.shape} became {result.shape}"
            new[old], fired = (copy, fired) if result is None else (result, True)
    rebuilt = Graph([new[v] for v in graph.outputs], stop)
    return rebuild(rebuilt, replace, stop) if fired else rebuilt


def trace(function: Callable[..., Any], **shapes: Shape) -> Graph:
    """The graph of a Python function, which is called once, with values in place of arrays."""
    result = function(*(Input(name, shapes[name])() for name in inspect.signature(function).parameters))
    return Graph(result if isinstance(result, tuple) else (result,))


# ------------------------------------------------------------------------------- the ops (rlx_core/ops)
def row(name: str, *attributes: str, **rules: Callable[..., Any]) -> type[Op]:
    """A class of ops from its attributes and its rules."""
    return make_dataclass(name, attributes, bases=(Op,), namespace=rules, frozen=True)


def sum_to(op: Op, x: np.ndarray) -> np.ndarray:
    padded = (1,) * (x.ndim - len(op.to)) + op.to
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, padded, strict=True)) if n != m)
    return x.sum(axis=axes, keepdims=True).reshape(op.to)


Input = row("Input", "name", "shape", infer=lambda op: op.shape)
Fill = row("Fill", "of", "shape", infer=lambda op: op.shape, reference=lambda op: np.full(op.shape, op.of))
Neg = row("Neg", decompose=lambda op, x: x * -1.0)
Mean = row("Mean", decompose=lambda op, x: SumTo(())(x) * (1 / math.prod(x.shape)))
# Linear ops: the vjp of each is its transpose.
Transpose = row("Transpose", reference=lambda op, x: x.T, vjp=lambda op, g, x, y: [g.T])
SumTo = row("SumTo", "to", reference=sum_to, vjp=lambda op, g, x, y: [Broadcast(x.shape)(g)])
Broadcast = row(
    "Broadcast", "to", reference=lambda op, x: np.broadcast_to(x, op.to), vjp=lambda op, g, x, y: [SumTo(x.shape)(g)]
)


@define_op
class MatMul(Op):
    """[m, k] · [k, n] → [m, n]."""

    def infer(self, a, b):
        if a[1] != b[0]:
            raise ValueError(f"matmul: contracted dims differ ({a[1]} != {b[0]})")
        return (a[0], b[1])

    reference = staticmethod(np.matmul)

    def vjp(self, g, a, b, y):
        return g @ b.T, a.T @ g


def with_broadcasting(op: Op, *x: Value) -> Value:
    """The node, with explicit `Broadcast` ops on its operands, whose rule differentiates the broadcasting."""
    shape = x[0].shape if len({each.shape for each in x}) == 1 else np.broadcast_shapes(*(each.shape for each in x))
    return Op.node(op, *(each if each.shape == shape else Broadcast(shape)(each) for each in x))


def elementwise(name: str, function: np.ufunc, *partials: Callable[..., Any]) -> type[Op]:
    """An element-wise op from a NumPy function and its partial derivatives by operands, in terms of operands and result."""

    def vjp(op: Op, g: Value, *x: Value, y: Value) -> list[Value]:
        return [g * partial(*x, y) for partial in partials]

    return row(name, node=with_broadcasting, reference=staticmethod(function), vjp=vjp)


#                 name          function        d/dx
Add = elementwise("Add", np.add, lambda a, b, y: 1.0, lambda a, b, y: 1.0)
Mul = elementwise("Mul", np.multiply, lambda a, b, y: b, lambda a, b, y: a)
Exp = elementwise("Exp", np.exp, lambda x, y: y)
Reciprocal = elementwise("Reciprocal", np.reciprocal, lambda x, y: -(y * y))


@define_op
class Tanh(Op):
    """1 - 2 / (exp(2x) + 1), which is correct where exp overflows: 1 - 2/inf."""

    def decompose(self, x):
        return 1.0 - 2.0 * Reciprocal()(Exp()(2.0 * x) + 1.0)

    def vjp(self, g, x, y):
        return (g * (1.0 - y * y),)  # 4 ops; differentiating `decompose` gives 7, and 0 * inf where exp overflows


# -------------------------------------------------------------------- gradients (rlx_core/transforms/vjp)
def gradient(loss: Value, wrt: Sequence[Value]) -> tuple[Value, ...]:
    """The cotangents of `wrt`, as values of the same program; the values of `wrt` are independent of each other."""

    def to_differentiable(v: Value) -> Value | None:
        return v.op.decompose(*v.operands) if v.op.vjp is None and v.op.decompose else None

    graph = rebuild(Graph([loss], wrt), to_differentiable, wrt)
    cotangents = {graph.outputs[0]: Fill(1.0, loss.shape)()}
    for y in reversed(graph.values):
        if y not in cotangents or y in wrt or not y.operands:
            continue
        if y.op.vjp is None:  # a missing gradient is an error, never zero
            raise NotImplementedError(f"{y.op}: it has neither a vjp nor a decomposition to derive one from")
        for x, g in zip(y.operands, y.op.vjp(cotangents[y], *y.operands, y=y), strict=True):
            cotangents[x] = cotangents[x] + g if x in cotangents else g
    return tuple(cotangents[x] if x in cotangents else Fill(0.0, x.shape)() for x in wrt)


# ---------------------------------------------------------------------- rewriting (rlx_core/passes/rules)
@define_op
class Rewrite:
    """A rule that replaces `left` by `right`, both written with the functions that users call."""

    name: str
    left: Callable[..., Value]
    right: Callable[..., Value]
    giving_up: str = ""  # the floating-point property that the rule violates; it fires only where that is allowed

    def __call__(self, value: Value) -> Value | None:
        variables = [Value(Input(name, ()), (), None) for name in inspect.signature(self.left).parameters]
        bound: dict[Value, Value] = {}
        return self.right(*map(bound.get, variables)) if match(self.left(*variables), value, variables, bound) else None


def match(pattern: Value, value: Value, variables: Sequence[Value], bound: dict[Value, Value]) -> bool:
    """Match `value` with `pattern`; `bound` receives the value of each variable."""
    if pattern in variables:
        return bound.setdefault(pattern, value) is value
    return (
        type(pattern.op) is type(value.op)
        and all(field is None or repr(field) == repr(vars(value.op)[k]) for k, field in vars(pattern.op).items())
        and all(match(p, v, variables, bound) for p, v in zip(pattern.operands, value.operands, strict=True))
    )


def optimise(graph: Graph, rules: Iterable[Rewrite], allowed: Sequence[str] = ("",)) -> tuple[Graph, Counter[str]]:
    """Apply rules until none fires; returns the graph and the number of applications of each rule."""
    fired: Counter[str] = Counter()

    def first_that_fires(value: Value) -> Value | None:
        for rule in rules:
            if rule.giving_up in allowed and (result := rule(value)) is not None:
                fired[rule.name] += 1
                return result
        return None

    return rebuild(graph, first_that_fires), fired


# ---------------------------------------- kernels, plugins, legalising (rlx_core/pipeline, rlx_core/plugins)
@define_op
class Plugin:
    """The contributions of a package; kernels are called with `(op, *operands, out=...)`: the plan owns all memory."""

    name: str
    kernels: Mapping[type[Op], Callable[..., None]] = field(default_factory=dict)
    rules: tuple[Rewrite, ...] = ()


SMALL = Plugin(  # built-in kernels and rules use the same interface as those of other packages
    "small",
    kernels={
        **{op: lambda op, *x, out: op.reference(*x, out=out) for op in (MatMul, Add, Mul, Exp, Reciprocal)},
        **{op: lambda op, *x, out: np.copyto(out, op.reference(*x)) for op in (Fill, Broadcast, SumTo, Transpose)},
    },
    rules=(
        Rewrite("neg-neg", lambda x: -(-x), lambda x: x),
        Rewrite("mul-one", lambda x: Mul()(x, 1.0), lambda x: x),
        Rewrite("one-mul", lambda x: Mul()(1.0, x), lambda x: x),
        Rewrite("transpose-transpose", lambda x: x.T.T, lambda x: x),
        Rewrite("add-zero", lambda x: x + 0.0, lambda x: x, giving_up="signed zero"),  # -0.0 + 0.0 is 0.0
    ),
)


def freeze(plugins: Sequence[Plugin]) -> Mapping[Any, Any]:
    """One immutable table of all contributions; two definitions of one key are an error that names both plugins."""
    table, owner = {}, {}
    for plugin in plugins:
        for key, contribution in [*plugin.kernels.items(), *((rule.name, rule) for rule in plugin.rules)]:
            if key in table:
                raise ValueError(f"{getattr(key, '__name__', key)}: both {owner[key]} and {plugin.name} provide it")
            table[key], owner[key] = contribution, plugin.name
    return MappingProxyType(table)


def legalise(graph: Graph, table: Mapping[Any, Any]) -> Graph:
    """Replace every op without a kernel by its decomposition."""

    def to_supported(value: Value) -> Value | None:
        if type(value.op) in table or isinstance(value.op, Input):
            return None
        if value.op.decompose is None:
            raise NotImplementedError(f"{value.op}: it has neither a kernel nor a decomposition")
        return value.op.decompose(*value.operands)

    return rebuild(graph, to_supported)


# ------------------------------------------------------------- planning and running (rlx_core/pipeline/planning/memory)
def nbytes(value: Value) -> int:
    return -(-8 * math.prod(value.shape) // 64) * 64  # whole cache lines, so that every offset is aligned


def plan(graph: Graph) -> dict[Value, int]:
    """An offset in one arena for each result: largest first, at the lowest offset that is free during its live range."""
    last = {x: i for i, v in enumerate(graph.values) for x in (v, *v.operands)}
    last.update(dict.fromkeys(graph.outputs, len(graph.values)))
    lives = {v: (i, last[v]) for i, v in enumerate(graph.values) if not isinstance(v.op, Input)}
    offsets: dict[Value, int] = {}
    for value in sorted(lives, key=nbytes, reverse=True):
        start, end = lives[value]
        rivals = [v for v in offsets if lives[v][0] <= end and start <= lives[v][1]]
        offset = 0
        for rival in sorted(rivals, key=offsets.__getitem__):
            if offsets[rival] - offset >= nbytes(value):
                break
            offset = max(offset, offsets[rival] + nbytes(rival))
        offsets[value] = offset
    return offsets


class Program:
    """A legal graph with an allocated arena, and with a kernel and a buffer for every step."""

    def __init__(self, graph: Graph, table: Mapping[Any, Any]) -> None:
        self.graph, self.offsets = graph, plan(graph)
        self.nbytes = max((offset + nbytes(v) for v, offset in self.offsets.items()), default=0)
        arena = np.empty(self.nbytes // 8)
        self.buffers = {v: arena[i // 8 :][: math.prod(v.shape)].reshape(v.shape) for v, i in self.offsets.items()}
        self.steps = [(table[type(v.op)], v) for v in graph.values if v in self.offsets]

    def __call__(self, **inputs: Any) -> tuple[np.ndarray, ...]:
        arrays = dict(self.buffers)
        for value in self.graph.values:
            if isinstance(value.op, Input):
                arrays[value] = np.asarray(inputs[value.op.name], float)
                if arrays[value].shape != value.shape:
                    raise ValueError(f"run: {value.op.name} must be {value.shape}, not {arrays[value].shape}")
        with np.errstate(all="ignore"):  # infinities and NaN are regular results
            for kernel, value in self.steps:
                kernel(value.op, *(arrays[x] for x in value.operands), out=arrays[value])
        return tuple(arrays[v].copy() for v in self.graph.outputs)


def compile(graph: Graph, plugins: Sequence[Plugin] = (), show: Callable[..., None] = lambda *_: None) -> Program:
    """Compile a graph; `show` is called with the result of each stage."""
    table = freeze([SMALL, *plugins])
    graph, fired = optimise(graph, [rule for rule in table.values() if isinstance(rule, Rewrite)])
    show(f"optimised ({', '.join(f'{name} {n} times' for name, n in fired.items()) or 'no rule fired'})", graph)
    graph = legalise(graph, table)
    show("legal: every op has a kernel", graph)
    return Program(graph, table)


# ------------------------------------------------------------------------------------------------ example
def loss_of(x: Value, t: Value, w1: Value, b1: Value, w2: Value, b2: Value) -> Value:
    error = Tanh()(x @ w1 + b1) @ w2 + b2 - t
    return Mean()(error * error)


def step(x, t, w1, b1, w2, b2) -> tuple[Value, ...]:
    """One step of gradient descent: the loss and the next parameters."""
    params = (w1, b1, w2, b2)
    loss = loss_of(x, t, *params)
    return loss, *(p - 0.1 * g for p, g in zip(params, gradient(loss, params), strict=True))


def main() -> None:
    """Print a training step at every stage, then train with it."""
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 32)[:, None]
    params = {"w1": rng.normal(size=(1, 16)), "b1": np.zeros(16), "w2": rng.normal(size=(16, 1)) / 4, "b2": np.zeros(1)}
    arrays = {"x": x, "t": np.sin(2 * x), **params}
    graph = trace(step, **{name: array.shape for name, array in arrays.items()})
    print(f"# traced, with its gradient\n{graph}\n")
    program = compile(graph, show=lambda stage, graph: print(f"# {stage}\n{graph}\n"))
    separate = sum(map(nbytes, program.offsets))
    print(f"# planned: {len(program.steps)} steps in {program.nbytes} bytes; with separate buffers {separate}")
    for n in range(1001):
        loss, *new = program(**arrays)
        arrays |= zip(params, new, strict=True)
        if n % 200 == 0:
            print(f"step {n:4}  loss {loss:.5f}")
    acme = Plugin("acme", {Tanh: lambda op, x, out: np.tanh(x, out=out)})
    print(f"with acme's kernel for tanh: {len(compile(graph, [acme]).steps)} steps")


if __name__ == "__main__":
    main()
