"""Tracing of the functions of loops and choices: inputs, results, captures, and the carry of a loop.

The body of a loop must return the carry with the types of its input. A Python number as the initial carry is weakly typed: it
takes the dtype that the body returns for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx_core.errors import DtypeError, Fact, ShapeError
from rlx_core.ir.dtypes import DType, i32, weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder, building
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.transforms.lifting import as_value
from rlx_core.transforms.trace import Leaf, is_static_leaf, trace_flat
from rlx_core.trees.flatten import Tree, bind_arguments, flatten, function_name, same_structure

Function = Callable[..., Any]

Inputs = Sequence[tuple[str, TensorType]]
"""Leaves by name, with their types."""


@frozen(eq=False)
class TracedBody:
    """A traced function: its graph takes the leaves, then the captured values of the enclosing trace."""

    graph: Graph
    results: Tree
    captures: Mapping[str, Value]

    def over(self, leaves: Inputs, captured: Sequence[Value], extra: Inputs = ()) -> Graph:
        """Return the graph with these leaves, these values of the enclosing trace, and the remaining leaves as its inputs."""
        builder = Builder(self.graph.name)
        with building(builder):
            inputs = {name: builder.input(name, type) for name, type in leaves}
            stands_for = {v: builder.input(f"captured{i}", v.type) for i, v in enumerate(captured)}
            inputs |= {name: builder.input(name, type) for name, type in extra}
            inputs |= {name: stands_for[v] for name, v in self.captures.items()}
            return builder.finish(inline(builder, self.graph, inputs))


@frozen(eq=False)
class Carry:
    """The carry of a loop: its leaves as values of the enclosing trace, their names, and which were Python numbers."""

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
        """Return the leaves of a carry that a body returned."""
        leaves, tree = flatten(result, "carry")
        same_structure(f"{what}: the carry after a step", self.tree, tree)
        return [numbered(leaf, t.dtype) for leaf, t in zip(leaves, self.types, strict=True)]

    def stepped(self, what: str, trace: Callable[[Carry], TracedBody]) -> tuple[Carry, TracedBody]:
        """Return the body that `trace` creates for this carry, and the carry with the final dtypes of its Python numbers.

        Raises:
            ShapeError, DtypeError: A carry changes its type.
        """
        body = trace(self)
        outputs = body.graph.outputs[: len(self.types)]
        types = tuple(_settled(leaf, a, b.dtype) for leaf, a, b in zip(self.leaves, self.types, outputs, strict=True))
        if types == self.types:
            self._expect_kept(what, outputs)
            return self, body
        stable = Carry(self.builder, self.leaves, self.tree, types)
        body = trace(stable)
        stable._expect_kept(what, body.graph.outputs)
        return stable, body

    def _expect_kept(self, what: str, outputs: Sequence[Value]) -> None:
        for name, before, after in zip(self.tree.names, self.types, outputs, strict=False):
            if after.type == before:
                continue
            error = DtypeError if after.shape == before.shape else ShapeError
            called = "the carry" if name == "carry" else f"the carry {name}"
            raise error(
                f"{what}: {called} is {before} before a step and {after.type} after it",
                Fact("returned", after.type, after.node.origin.source),
                hint=f"begin with {after.type}, or rlx.astype(…, rlx.{before.dtype}) what the body returns"
                if error is DtypeError
                else "a carry keeps its shape: what grows is a result of each step (the second of the pair that rlx.scan's body "
                "returns)",
            )


def _is_weak_integer(leaf: Any) -> bool:
    """Return whether a leaf is an integer that combines with f32 to f32; as i64, its default dtype, it would promote to f64."""
    return type(leaf) is int and -(2**31) <= leaf < 2**31


def _settled(leaf: Any, begun: TensorType, returned: DType) -> TensorType:
    """Return the type of a carry after a body was traced on it: a Python number takes the type of the returned value."""
    if not is_static_leaf(leaf):
        return begun
    is_still_weak = _is_weak_integer(leaf) and returned is begun.dtype
    return TensorType(weak_dtype(leaf) if is_still_weak else returned, begun.shape)


def traced(
    function: Function, inputs: Sequence[tuple[str, TensorType]], call: Callable[[list[Any]], Any]
) -> TracedBody:
    """Return `call`, which calls `function`, traced on leaves of these names and types."""
    leaves = [Leaf(name, "input", type) for name, type in inputs]
    return TracedBody(*trace_flat(function_name(function), leaves, call, capturing=True))


def numbered(leaf: Any, dtype: DType) -> Any:
    """Return a leaf that a body returned; a Python number takes the dtype of the carry that it replaces."""
    if not is_static_leaf(leaf) or isinstance(leaf, str):
        return leaf
    builder = ambient_builder()
    assert builder is not None, "bodies are traced"
    return builder.constant(leaf, weak_dtype(leaf, [dtype]))


def captured_by(*bodies: TracedBody) -> list[Value]:
    """Return the values of the enclosing trace that some bodies use, each once."""
    return list(dict.fromkeys(v for body in bodies for v in body.captures.values()))


def expect_scalar(what: str, operand: str, value: Value) -> Value:
    """Return the value, which must be a scalar.

    Raises:
        ShapeError: It has axes.
    """
    if value.shape != ():
        raise ShapeError(
            f"{what}: {operand} must be a scalar, not {value.type}",
            Fact(operand, value.type, value.node.origin.source),
            hint="rlx.where chooses element by element; rlx.any and rlx.all make one bool of many",
        )
    return value


def with_arguments(function: Function, *args: Any) -> Any:
    """Call a function of the user with the arguments of a loop or a choice.

    Raises:
        WrongInputCountError: The function takes other arguments.
    """
    bind_arguments(function, args, {})
    return function(*args)
