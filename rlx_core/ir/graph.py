"""Graphs: nodes in topological order, values that name their results, and the builder that makes them.

A finished `Graph` is immutable; every transformation builds a new one (see `rewrite.py`). HIR and MIR share this
structure: a HIR graph is one in which some ops are blocks. `Value` carries the operators of Python, so that a rule,
a decomposition and a traced program all read as mathematics; `==` is element-wise like the others, and values are told
apart by identity (they are safe as dictionary keys).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import count
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from attrs import define, field, frozen

from rlx_core.errors import Fact, FormatError, RlxError, TraceError, UnknownNameError, nearest
from rlx_core.ir.dims import Dim, Guard, collecting_guards, free_symbols
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.op import Op, check_operand_count, define_op, operand_names
from rlx_core.ir.provenance import Origin, current_origin
from rlx_core.ir.types import Shape, TensorType

__all__ = [
    "Builder",
    "Constant",
    "Graph",
    "Input",
    "Literal",
    "Node",
    "Param",
    "Value",
    "ambient_builder",
    "building",
    "literal",
]


# ------------------------------------------------------------------------------------------ leaf ops


@frozen(eq=False, repr=False)
class Literal:
    """Constant data: little-endian bytes in the declared dtype, compared and hashed by content."""

    array: np.ndarray

    @cached_property
    def content(self) -> tuple[str, tuple[int, ...], bytes]:
        little = self.array.astype(self.array.dtype.newbyteorder("<"), copy=False)
        return self.dtype.name, self.array.shape, little.tobytes()

    @property
    def dtype(self) -> DType:
        return dtype(self.array.dtype)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.array.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        if self.array.size <= 4:
            return f"{self.array.tolist()}"
        return f"<{self.array.size} elements>"


def literal(data: Any, of: DType | None = None) -> Literal:
    """Constant data from anything NumPy can read; the array is copied and made read-only."""
    array = np.array(data, dtype=None if of is None else of.numpy, order="C", copy=True)
    array = array.astype(dtype(array.dtype).numpy, copy=False)  # native byte order, a dtype of ours
    array.flags.writeable = False
    return Literal(array)


@define_op(domain="core")
class Input(Op):
    """A value that is fed on every run."""

    label: str
    type: TensorType
    category: ClassVar = "boundary"

    def infer(self) -> TensorType:
        return self.type


@define_op(domain="core")
class Param(Op):
    """A value that is bound once and persists over runs."""

    label: str
    type: TensorType
    category: ClassVar = "boundary"

    def infer(self) -> TensorType:
        return self.type


@define_op(domain="core")
class Constant(Op):
    """Literal data."""

    value: Literal
    category: ClassVar = "boundary"

    def infer(self) -> TensorType:
        return self.value.type

    def reference(self) -> np.ndarray:
        return self.value.array


# --------------------------------------------------------------------------------------- nodes, values


@frozen(eq=False, repr=False)
class Node:
    """One op applied to values. `index` is its place in the graph that `owner` builds."""

    op: Op
    operands: tuple[Value | None, ...]
    types: tuple[TensorType, ...]
    owner: Builder
    index: int
    name: str | None = None
    origin: Origin = field(factory=Origin)
    results: tuple[Value, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "results", tuple(Value(self, i) for i in range(len(self.types))))

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.op.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def type(self) -> TensorType:
        return self.result.type

    @property
    def is_leaf(self) -> bool:
        return isinstance(self.op, Input | Param | Constant)

    @property
    def label(self) -> str:
        """How errors and printers call the node: its name, or its number."""
        return f"%{self.name or self.index}"

    def present(self) -> Iterator[Value]:
        """The operands that are there; optional ones may be absent."""
        return (v for v in self.operands if v is not None)

    def __repr__(self) -> str:
        names = ", ".join("_" if v is None else repr(v) for v in self.operands)
        return f"{self.label} = {self.op!r}({names}) : {', '.join(map(str, self.types))}"


def _operator(name: str, reflected: bool = False) -> Callable[[Value, Any], Any]:
    def method(self: Value, other: Any) -> Any:
        return operator(name)(other, self) if reflected else operator(name)(self, other)

    return method


def operator(name: str) -> Callable[..., Any]:
    """What an operator of Python means on values. Who defines that is loaded with the first operator that is used."""
    if name not in Value.operators:
        for module in OPERATORS:
            importlib.import_module(module)
    return Value.operators[name]


OPERATORS: Final = ("rlx_core.ops.array_api", "rlx_core.ops.linalg")
"""The modules that fill `Value.operators` when they are imported; named here, because this layer imports no op."""


class Value:
    """One result of a node: what operands refer to, and what a traced function computes with.

    Operators follow the Python Array API. A value has a type but no elements: converting it to a number, a bool or an
    array raises TraceError.
    """

    __slots__ = ("index", "node")

    operators: ClassVar[dict[str, Callable[..., Any]]] = {}
    """Operator name → function; filled by the package of standard ops, which this layer does not know."""

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Dim:
        return self.type.size

    @property
    def T(self) -> Any:
        """The transpose of a matrix."""
        return operator("matrix_transpose")(self)

    mT = T

    def astype(self, to: Any) -> Any:
        """This value in another dtype."""
        return operator("astype")(self, to)

    def reshape(self, *shape: Any) -> Any:
        """This value with other dims; one of them may be -1."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return operator("reshape")(self, tuple(dims))

    def transpose(self, *axes: Any) -> Any:
        """This value with its axes permuted; reversed if none are given."""
        perm = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return operator("permute_dims")(self, tuple(perm) or tuple(reversed(range(self.ndim))))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return operator("sum")(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return operator("mean")(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return operator("max")(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return operator("min")(self, axis=axis, keepdims=keepdims)

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", True)
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _operator("floor_divide", True)
    __mod__, __rmod__ = _operator("remainder"), _operator("remainder", True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", True)
    __matmul__, __rmatmul__ = _operator("matmul"), _operator("matmul", True)
    __and__, __rand__ = _operator("bitwise_and"), _operator("bitwise_and", True)
    __or__, __ror__ = _operator("bitwise_or"), _operator("bitwise_or", True)
    __xor__, __rxor__ = _operator("bitwise_xor"), _operator("bitwise_xor", True)
    __lshift__, __rlshift__ = _operator("bitwise_left_shift"), _operator("bitwise_left_shift", True)
    __rshift__, __rrshift__ = _operator("bitwise_right_shift"), _operator("bitwise_right_shift", True)
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __eq__, __ne__ = _operator("equal"), _operator("not_equal")
    __getitem__ = _operator("getitem")

    def __neg__(self) -> Any:
        return operator("negative")(self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Any:
        return operator("abs")(self)

    def __invert__(self) -> Any:
        return operator("bitwise_invert")(self)

    __hash__ = object.__hash__

    # NumPy must leave `array + value` to us instead of making an object array of values.
    __array_ufunc__ = None

    def __array_function__(self, function: Callable[..., Any], *rest: object) -> NoReturn:
        self._refuse(f"numpy.{function.__name__}")

    def _refuse(self, wanted: str) -> NoReturn:
        raise TraceError(
            f"trace: {wanted} needs the elements of {self.type}, which are only known when the program runs",
            Fact("value", repr(self), self.node.origin.source),
            hint="use rlx.where or a comparison inside the program, or compute it outside the traced function",
        )

    def __bool__(self) -> bool:
        self._refuse("a truth value")

    def __float__(self) -> float:
        self._refuse("float()")

    def __int__(self) -> int:
        self._refuse("int()")

    def __index__(self) -> int:
        self._refuse("an index")

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        self._refuse("a NumPy array")

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TraceError(f"trace: a scalar ({self.type}) cannot be iterated")
        return (self[i] for i in range(self.__len__()))

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError(f"trace: a scalar ({self.type}) has no length")
        return self.shape[0].__index__()

    def __repr__(self) -> str:
        return self.node.label + (f".{self.index}" if len(self.node.types) > 1 else "")


# ---------------------------------------------------------------------------------------------- graphs

ValueMap = Mapping[Value, Value]
"""Old value → new value, which every transformation returns."""


@frozen(eq=False, repr=False)
class Graph:
    """A finished program: nodes in topological order, and which values are its outputs.

    Equality is structural: ops with all attributes, types, operands, outputs, names of inputs and params; where a node
    came from takes no part.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    guards: tuple[Guard, ...] = ()

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(n.result for n in self.nodes if isinstance(n.op, Input))

    @cached_property
    def params(self) -> tuple[Value, ...]:
        return tuple(n.result for n in self.nodes if isinstance(n.op, Param))

    @cached_property
    def uses(self) -> Mapping[Value, tuple[Node, ...]]:
        """Value → its users, one entry an *edge*: a node that reads a value twice is there twice."""
        found: dict[Value, list[Node]] = {v: [] for n in self.nodes for v in n.results}
        for node in self.nodes:
            for value in node.present():
                found[value].append(node)
        return {v: tuple(users) for v, users in found.items()}

    @cached_property
    def output_set(self) -> frozenset[Value]:
        return frozenset(self.outputs)

    @property
    def input_types(self) -> dict[str, TensorType]:
        return {leaf_name(v): v.type for v in self.inputs}

    @property
    def param_types(self) -> dict[str, TensorType]:
        return {leaf_name(v): v.type for v in self.params}

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.outputs)

    @cached_property
    def symbols(self) -> frozenset[Any]:
        """Every size that is still unknown."""
        return frozenset().union(*(free_symbols(*t.shape) for n in self.nodes for t in n.types))

    def find(self, name: str) -> Value:
        """The input, param or named value called `name`.

        Raises:
            UnknownNameError: There is none; the nearest names are listed.
        """
        names = self.names
        if name not in names:
            raise UnknownNameError(f"graph {self.name}: no value is called {name!r}", hint=nearest(name, names))
        return names[name]

    @cached_property
    def names(self) -> Mapping[str, Value]:
        """Every named value: inputs and params by their own names, first results of named nodes by theirs."""
        leaves = {leaf_name(v): v for v in (*self.inputs, *self.params)}
        return {n.name: n.results[0] for n in self.nodes if n.name} | leaves

    @cached_property
    def structure(self) -> tuple[object, ...]:
        """Everything equality is about, as plain nested tuples."""

        def ref(v: Value | None) -> tuple[int, int] | None:
            return None if v is None else (v.node.index, v.index)

        rows = tuple((n.op, tuple(map(ref, n.operands)), n.types) for n in self.nodes)
        return rows, tuple(map(ref, self.outputs)), self.guards

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes, {len(self.outputs)} outputs)"

    def __str__(self) -> str:
        from rlx_core.ir.text import print_graph  # the text form is about graphs; a graph only knows that it has one

        return print_graph(self).rstrip("\n")


def leaf_name(value: Value) -> str:
    """The name of an input or param."""
    op = value.node.op
    assert isinstance(op, Input | Param), f"{value!r} is not an input or a param"
    return op.label


def nested_graphs(op: Op) -> dict[str, Graph]:
    """The graphs among an op's attributes, by attribute name."""
    return {name: a for name, a in op.attributes().items() if isinstance(a, Graph)}


# --------------------------------------------------------------------------------------------- builder

_ambient: ContextVar[Builder | None] = ContextVar("builder", default=None)


def ambient_builder() -> Builder | None:
    """The builder that ops without value operands go to, if any."""
    return _ambient.get()


@contextmanager
def building(builder: Builder) -> Iterator[Builder]:
    """Make `builder` the one that ops inside the block go to."""
    token = _ambient.set(builder)
    try:
        yield builder
    finally:
        _ambient.reset(token)


@define(eq=False, repr=False)
class Builder:
    """A graph being made. Mutable, because that is its whole purpose; `finish` ends it.

    Attributes:
        name: The name of the graph.
        capturing: Whether values of other builders may be used: each becomes an input here (see `captures`).
        untyped: The types that results get without promotion and inference; set for patterns, whose variables have none.
    """

    name: str = "main"
    capturing: bool = False
    untyped: tuple[TensorType, ...] | None = None
    nodes: list[Node] = field(factory=list, init=False)
    guards: list[Guard] = field(factory=list, init=False)
    captures: dict[Value, Value] = field(factory=dict, init=False)
    is_finished: bool = field(default=False, init=False)
    _leaf_names: set[str] = field(factory=set, init=False)
    _constants: dict[Literal, Value] = field(factory=dict, init=False)

    def input(self, name: str, type: TensorType, *, origin: Origin | None = None) -> Value:
        """A new input.

        Raises:
            FormatError: The name is taken by another input or param.
        """
        self._claim(name)
        return self.emit(Input(name, type), (), name=name, origin=origin)[0]

    def param(self, name: str, type: TensorType, *, origin: Origin | None = None) -> Value:
        """A new parameter.

        Raises:
            FormatError: The name is taken by another input or param.
        """
        self._claim(name)
        return self.emit(Param(name, type), (), name=name, origin=origin)[0]

    def constant(self, data: Any, of: DType | None = None) -> Value:
        """Literal data; small equal constants are one node."""
        value = data if isinstance(data, Literal) else literal(data, of)
        if value.array.size > 16:
            return self.emit(Constant(value), ())[0]
        if value not in self._constants:
            self._constants[value] = self.emit(Constant(value), ())[0]
        return self._constants[value]

    def emit(
        self,
        op: Op,
        operands: Sequence[Value | None],
        *,
        name: str | None = None,
        origin: Origin | None = None,
        types: tuple[TensorType, ...] | None = None,
    ) -> tuple[Value, ...]:
        """Append a node and return its results. `types` are declared by a caller who knows them; else inferred.

        Raises:
            ShapeError, DtypeError, AxisError, WrongInputCountError: From the op's inference, with the operands' types
                and lines added.
        """
        if self.is_finished:
            raise TraceError(f"graph {self.name}: it is finished, and takes no more nodes ({op.name})")
        given = [None if v is None else self._own(v) for v in operands]
        while given and given[-1] is None:
            given.pop()
        origin = origin or current_origin()
        if types is None:
            types = self._infer(op, given, name, origin)
        node = Node(op, tuple(given), types, self, len(self.nodes), name, origin)
        self.nodes.append(node)
        if isinstance(op, Input | Param):
            self._leaf_names.add(op.label)
        return node.results

    def finish(self, outputs: Iterable[Value]) -> Graph:
        """The finished graph with these outputs."""
        owned = tuple(self._own(v) for v in outputs)
        self.is_finished = True
        return Graph(self.name, tuple(self.nodes), owned, tuple(dict.fromkeys(self.guards)))

    def add_guards(self, guards: Iterable[Guard]) -> None:
        self.guards.extend(g for g in guards if g not in self.guards)

    def _infer(
        self, op: Op, operands: Sequence[Value | None], name: str | None, origin: Origin
    ) -> tuple[TensorType, ...]:
        try:
            with collecting_guards() as guards:
                types = infer(op, [None if v is None else v.type for v in operands])
        except RlxError as error:
            raise self._explain(error, op, operands, origin) from None
        label = f"%{name or len(self.nodes)} = {op.name}"
        self.add_guards(Guard(g.relation, g.left, g.right, label, origin.source) for g in guards)
        return types

    @staticmethod
    def _explain(error: RlxError, op: Op, operands: Sequence[Value | None], origin: Origin) -> RlxError:
        short = op.name.removeprefix("rlx.")
        message = error.message if error.message.startswith(f"{short}:") else f"{short}: {error.message}"
        facts = [
            Fact(name, value.type, value.node.origin.source)
            for name, value in zip(operand_names(op, len(operands)), operands, strict=True)
            if value is not None
        ]
        explained = type(error)(message, *facts, *error.facts, hint=error.hint)
        if origin.source is not None:
            explained.with_fact(Fact("at", repr(origin.source)))
        return explained

    def _own(self, value: Value) -> Value:
        if value.node.owner is self:
            return value
        if not self.capturing:
            raise TraceError(
                f"graph {self.name}: a value of graph {value.node.owner.name} cannot be used here",
                Fact("value", repr(value), value.node.origin.source),
                hint="pass it in as an operand; a value belongs to the trace it was made in",
            )
        if value not in self.captures:
            labels = (f"captured{i}" for i in count(len(self.captures)))
            label = next(each for each in labels if each not in self._leaf_names)
            self.captures[value] = self.input(label, value.type, origin=value.node.origin)
        return self.captures[value]

    def _claim(self, name: str) -> None:
        if name in self._leaf_names:
            raise FormatError(f"graph {self.name}: there are two inputs or params called {name!r}")


def infer(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The result types of `op` on operands of `types`: by its own rule, or read off its decomposition."""
    check_operand_count(op, types)
    rule = op.infer
    if rule is not None:
        result = rule(*types)
        return result if isinstance(result, tuple) else (result,)
    return decomposition(op, tuple(types)).output_types


def decomposition(op: Op, types: Sequence[TensorType | None]) -> Graph:
    """The op's meaning as a graph of its own, with one input an operand."""
    assert op.decompose is not None, f"{op.name} is a primitive"
    builder = Builder(op.name)
    with building(builder):
        names = operand_names(op, len(types))
        operands = [None if t is None else builder.input(n, t) for n, t in zip(names, types, strict=True)]
        results = op.decompose(*operands)
    return builder.finish(results if isinstance(results, tuple) else (results,))


def as_results(results: Any) -> tuple[Any, ...]:
    """What a rule returned, as a tuple: a single value stands for one."""
    return tuple(results) if isinstance(results, tuple | list) else (results,)
