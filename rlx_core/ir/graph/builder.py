"""`Builder`: a graph under construction, and the ambient builder to which ops without value operands go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import count
from typing import Any

from attrs import field

from rlx_core.errors import Fact, FormatError, RlxError, TraceError, WrongInputCountError
from rlx_core.errors.contained import contained, reraise
from rlx_core.ir.dims import SizeGuard, collecting_guards, record
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph.elements import leaked
from rlx_core.ir.graph.leaves import Constant, GraphArgument, Input, Literal, Param, literal
from rlx_core.ir.graph.program import MOST_NESTED, Graph, nested_graphs
from rlx_core.ir.graph.values import Node, Value
from rlx_core.ir.op import Op, check_operand_count, operand_names
from rlx_core.ir.provenance import Origin, current_origin
from rlx_core.ir.types import TensorType
from rlx_core.system.budget import current_work
from rlx_core.system.context import assigned
from rlx_core.system.records import define

__all__ = [
    "Builder",
    "LiftedArrays",
    "ambient_builder",
    "as_results",
    "building",
    "decomposition",
    "graph_of",
    "infer",
    "lifting",
    "probe",
]

_ambient: ContextVar[Builder | None] = ContextVar("builder", default=None)


def ambient_builder() -> Builder | None:
    """The ambient builder, to which ops without value operands go, if any."""
    return _ambient.get()


@define(eq=False)
class LiftedArrays:
    """Arrays that a traced function captures besides its arguments: where an op uses one, it becomes an input of the trace.

    Mutable, because inputs are added where arrays are used. An array is known by its identity; a result computed from it
    outside of the trace is a constant.

    Attributes:
        builder: The builder of the trace.
        arrays: By the name of the input.
        type_of: The type of an array, which an array of an unknown dtype does not have.
        inputs: The inputs that were used, in the order of the inputs.
    """

    builder: Builder
    arrays: Mapping[str, Any]
    type_of: Callable[[Any], TensorType]
    inputs: dict[str, Value] = field(factory=dict, init=False)
    _names: dict[int, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = {id(array): name for name, array in self.arrays.items()}

    def value_of(self, data: Any) -> Value | None:
        """Return the input for an array; `None` for an object that is not one of the arrays."""
        name = self._names.get(id(data))
        if name is None:
            return None
        if name not in self.inputs:
            self.inputs[name] = self.builder.input(f"captured.{name}", self.type_of(data))
        return self.inputs[name]


_lifted: ContextVar[LiftedArrays | None] = ContextVar("lifted arrays", default=None)


def lifting(arrays: LiftedArrays | None) -> assigned[LiftedArrays | None]:
    """Make inputs of these arrays where ops inside the block use them; `None`: of none."""
    return assigned(_lifted, arrays)


def building(builder: Builder) -> assigned[Builder]:
    """Make `builder` the ambient builder inside the block."""
    return assigned(_ambient, builder)


@define(eq=False, repr=False)
class Builder:
    """A graph under construction; mutable until `finish`.

    Attributes:
        name: The name of the graph.
        capturing: Whether values of other builders may be used: each becomes an input here (see `captures`).
        untyped: The types that results get without promotion and inference; set for patterns, whose variables have none.
    """

    name: str = "main"
    capturing: bool = False
    untyped: tuple[TensorType, ...] | None = None
    nodes: list[Node] = field(factory=list, init=False)
    guards: dict[SizeGuard, None] = field(factory=dict, init=False)
    captures: dict[Value, Value] = field(factory=dict, init=False)
    is_finished: bool = field(default=False, init=False)
    trace_has_ended: bool = field(default=False, init=False)
    _leaf_names: set[str] = field(factory=set, init=False)
    _copies: set[Value] = field(factory=set, init=False)
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

    def lifted(self, data: Any) -> Value | None:
        """Return the value of an array that is an input of the trace although it is no argument; `None` for any other array."""
        arrays = _lifted.get()
        if arrays is None or not (self is arrays.builder or self.capturing):
            return None
        result = arrays.value_of(data)
        return None if result is None else self._own(result)

    def constant(self, data: Any, of: DType | None = None, *, shared: bool = True) -> Value:
        """Return literal data as a value; small equal constants share one node unless `shared` is false."""
        value = data if isinstance(data, Literal) else literal(data, of)
        if value.array.size > 16 or not shared:
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
        """Append a node and return its results. `types` are declared by a caller that has them; else inferred.

        Raises:
            ShapeError, DtypeError, AxisError, WrongInputCountError: From the op's inference, with the operands' types
                and lines added.
        """
        if self.is_finished:
            for value in operands:
                if value is not None and value.node.owner.trace_has_ended:
                    raise leaked(value)
            raise TraceError(f"graph {self.name}: it is finished, and takes no more nodes ({op.name})")
        values = [None if v is None else self._own(v) for v in operands]
        while values and values[-1] is None:
            values.pop()
        origin = origin or current_origin()
        if types is None:
            types = self.inferred(op, values, name, origin)
        bodies = nested_graphs(op)
        if bodies and any(body.depth >= MOST_NESTED for body in bodies.values()):
            raise TraceError(
                f"{op.title}: graphs are nested more than {MOST_NESTED} deep",
                hint="inline the innermost: how long one graph is has no limit",
            )
        work = current_work()
        if work is not None:
            work.expect_nodes(len(self.nodes) + 1, f"graph {self.name}")
        node = Node(op, tuple(values), types, self, len(self.nodes), name, origin)
        self.nodes.append(node)
        if isinstance(op, GraphArgument):
            self._leaf_names.add(op.label)
        return node.results

    def as_copy(self, value: Value) -> Value:
        """Mark `value` as a copy, assignable because it shares elements with no other value although its op only moves them."""
        self._copies.add(value)
        return value

    def assign(self, name: Value, new: Value) -> None:
        """Rebind the Python object `name` to the value `new`; values computed from it before keep theirs.

        Raises:
            TraceError: `name` is an input or a parameter, whose elements belong to the caller; or it is a part of another
                value or the same elements in another shape, which arrays would change with it; or of another graph.
        """
        node, index = name.node, name.index
        if node.owner is not self or new.node.owner is not self or ambient_builder() not in (self, None):
            raise TraceError(
                f"trace: a value of graph {node.owner.name} cannot be assigned to in another one",
                Fact("value", repr(name), node.origin.source),
                hint="assign to a copy: rlx.asarray(x, copy=True)",
            )
        if isinstance(node.op, GraphArgument) and not isinstance(node.op, Constant):
            raise TraceError(
                f"trace: {name} is an argument of the program, and its elements are the caller's",
                hint="assign to a copy: x = rlx.asarray(x, copy=True)",
            )
        if _is_view(node, index) and name not in self._copies:
            raise TraceError(
                f"trace: {name} is a view by {node.op.title}, and what it is a view of would have to change with it",
                Fact("value", repr(name), node.origin.source),
                hint="assign to the whole (x[0, :2] = y instead of row = x[0]; row[:2] = y), or to rlx.asarray(x, copy=True)",
            )
        if node.results[index] is name:
            before = Value(node, index)
            results = (*node.results[:index], before, *node.results[index + 1 :])
            object.__setattr__(node, "results", results)
            for reader in self.nodes[node.index + 1 :]:
                if any(v is name for v in reader.operands):
                    replaced = tuple(before if v is name else v for v in reader.operands)
                    object.__setattr__(reader, "operands", replaced)
            self._constants = {data: before if v is name else v for data, v in self._constants.items()}
        name.node, name.index = new.node, new.index
        self._copies.add(name)

    def expect_operands(self, op: Op, operands: Sequence[Value | None]) -> None:
        """Require as many operands as the op declares, before anything is done with them.

        Raises:
            WrongInputCountError: There are more or fewer, or a required one is absent.
        """
        try:
            check_operand_count(op, operands)
        except WrongInputCountError as error:
            raise self._explain(error, op, operands, current_origin()) from None

    def finish(self, outputs: Iterable[Value]) -> Graph:
        """The finished graph with these outputs."""
        owned = tuple(self._own(v) for v in outputs)
        self.is_finished = True
        return Graph(self.name, tuple(self.nodes), owned, tuple(self.guards))

    def add_guards(self, guards: Iterable[SizeGuard]) -> None:
        self.guards.update(dict.fromkeys(guards))

    def inferred(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str | None,
        origin: Origin,
        *,
        is_kept: bool = True,
    ) -> tuple[TensorType, ...]:
        """Return the result types that a node of these operands would have; the guards that they need are added to the graph.

        Args:
            is_kept: Whether the answer is kept for nodes that are alike, as `infer` takes it.

        Raises:
            ShapeError, DtypeError, AxisError, WrongInputCountError: As `emit`.
        """
        try:
            with collecting_guards() as guards:
                types = infer(op, [None if v is None else v.type for v in operands], is_kept=is_kept)
        except RlxError as error:
            raise self._explain(error, op, operands, origin) from None
        if guards:
            label = f"%{name or len(self.nodes)} = {op.name}"
            self.add_guards(SizeGuard(g.relation, g.left, g.right, label, origin.source) for g in guards)
        return types

    @staticmethod
    def _explain(error: RlxError, op: Op, operands: Sequence[Value | None], origin: Origin) -> RlxError:
        message = error.message if error.message.startswith(f"{op.title}:") else f"{op.title}: {error.message}"
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
        value = value.node.results[value.index]  # the object of the graph; `value` may be a name that was assigned to
        if value.node.owner is self:
            return value
        if not self.capturing:
            if value.node.owner.trace_has_ended:
                raise leaked(value)
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


def _is_view(node: Node, index: int) -> bool:
    """Return whether a result may lie inside the bytes of the first operand; a conversion never does."""
    source = next(node.present(), None)
    return node.op.view is not None and source is not None and source.dtype is node.types[index].dtype


def infer(op: Op, types: Sequence[TensorType | None], *, is_kept: bool = True) -> tuple[TensorType, ...]:
    """The result types of `op` on operands of `types`: by its own rule, or read off its decomposition.

    Args:
        is_kept: Whether the result is looked up in and added to a cache; false for callers that ask only once.
    """
    # Leaves are as cheap to infer as to look up, and ops with graphs inside would be hashed node by node.
    if not (types and is_kept) or nested_graphs(op) or not is_hashable(op):
        check_operand_count(op, types)
        return _inferred(op, types)
    result, guards = _inferred_once(op, tuple(types))
    if guards:
        record(guards)
    return result


@lru_cache(maxsize=8192)
def _inferred_once(
    op: Op, types: tuple[TensorType | None, ...]
) -> tuple[tuple[TensorType, ...], tuple[SizeGuard, ...]]:
    """The result types and the guards that they need: most nodes of a long program are like others in it."""
    check_operand_count(op, types)
    with collecting_guards() as guards:
        result = _inferred(op, types)
    return result, tuple(guards)


def is_hashable(op: Op) -> bool:
    """Return whether an op's attributes are hashable; those of an invalid op may be lists, which the verifier reports."""
    try:
        hash(op)
    except TypeError:
        return False
    return True


def _inferred(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    rule = op.infer
    if rule is None:
        return decomposition(op, types).output_types
    try:
        result = rule(*types)
        results = result if isinstance(result, tuple) else (result,)
        for each in results:
            if not isinstance(each, TensorType):
                raise TypeError(f"it returned {type(each).__name__}, not a TensorType")
    except Exception as error:  # noqa: BLE001 - contributed code may raise anything; it is raised again, with its owner
        reraise(error, "ops", op.name, "its `infer`")
    return results


def decomposition(op: Op, types: Sequence[TensorType | None]) -> Graph:
    """Return the op's decomposition as a separate graph, with one input per operand."""
    decompose = op.decompose
    assert decompose is not None, f"{op.name} is a primitive"
    with contained("ops", op.name, "its decomposition"):
        return graph_of(op.name, types, decompose, operand_names(op, len(types)))


def graph_of(
    name: str,
    types: Sequence[TensorType | None],
    function: Callable[..., Any],
    names: Sequence[str] | None = None,
) -> Graph:
    """Return the graph of a function of values of these types, `None` for an absent one; its inputs are `x0`, … by default."""
    builder = Builder(name)
    with building(builder):
        names = [f"x{i}" for i in range(len(types))] if names is None else names
        operands = [None if t is None else builder.input(n, t) for n, t in zip(names, types, strict=True)]
        return builder.finish(as_results(function(*operands)))


def probe(op: Op, types: Iterable[TensorType | None]) -> Node:
    """Return a node of `op` on operands of `types`, in a separate graph; for queries about an op before it is in a program."""
    builder = Builder("probe")
    operands = [None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(types)]
    return builder.emit(op, operands)[0].node


def as_results(results: Any) -> tuple[Any, ...]:
    """Return the result of a rule as a tuple: a single value becomes a tuple of one."""
    return tuple(results) if isinstance(results, tuple | list) else (results,)
