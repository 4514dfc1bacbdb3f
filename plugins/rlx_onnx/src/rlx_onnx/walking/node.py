"""A node as its handler sees it: attributes, and operands that must be known now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from onnx import AttributeProto

import rlx_core as rlx
from rlx_core.errors import Fact, FormatError, UnsupportedError
from rlx_core.importing.symbols import expect_relation
from rlx_core.ir.dims import Dim, Expr, Relation
from rlx_core.ir.graph import Value
from rlx_onnx.reading.structure import node_label
from rlx_onnx.reading.tensors import array_of
from rlx_onnx.walking.values import is_array, is_sizes

if TYPE_CHECKING:
    from rlx_onnx.walking.walk import ModelWalk

MOST: Final = 1 << 24
"""Maximum number of elements that a handler creates while a model is read: positions, weights, windows."""


class OnnxNode:
    """One node of a graph that is walked.

    Attributes:
        op: The operation.
        operands: Its operands: see `values`; `None` for one that is left out.
        count: Number of requested results.
    """

    def __init__(self, walk: ModelWalk, proto: Any, operands: Sequence[Any], scope: Mapping[str, Any]) -> None:
        self.walk, self.proto, self.operands, self.scope = walk, proto, operands, scope
        self.op: str = proto.op_type
        self.count = len(proto.output)
        self._attributes = {each.name: each for each in proto.attribute}

    def __str__(self) -> str:
        return node_label(self.proto)

    def wants(self, result: int) -> bool:
        """Return whether a result of this number is used."""
        return result < self.count and bool(self.proto.output[result])

    # ------------------------------------------------------------------------------------------ attributes

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute: a number, a text, a list of them, an array; `default` where it is not given."""
        if name not in self._attributes:
            return default
        return self._value(self._attributes[name])

    def __contains__(self, name: str) -> bool:
        return name in self._attributes

    def _value(self, attribute: Any) -> Any:
        kind = attribute.type
        if kind == AttributeProto.INT:
            return int(attribute.i)
        if kind == AttributeProto.FLOAT:
            return float(attribute.f)
        if kind == AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        if kind == AttributeProto.INTS:
            return [int(each) for each in attribute.ints]
        if kind == AttributeProto.FLOATS:
            return [float(each) for each in attribute.floats]
        if kind == AttributeProto.STRINGS:
            return [each.decode("utf-8", "replace") for each in attribute.strings]
        if kind == AttributeProto.TENSOR:
            return array_of(attribute.t, f"{self}: {attribute.name}", self.walk.outside)
        raise FormatError(f"{self}: its attribute {attribute.name} is of a kind that no operation has")

    def tensor(self, name: str) -> Any:
        """An attribute that is a tensor, as the file has it."""
        return self._attributes[name].t

    def element(self, name: str, default: int = 0) -> int:
        """An attribute that is an element type."""
        return int(self.get(name, default) or default)

    def choice(self, name: str, default: str, *known: str) -> str:
        """An attribute that is one of some words.

        Raises:
            UnsupportedError: It is another.
        """
        result = str(self.get(name, default))
        if result not in (default, *known):
            self.refuse(f"{name}={result!r}", f"{name} as one of {', '.join((default, *known))}")
        return result

    def body(self, name: str) -> Callable[..., list[Any]]:
        """Return a graph attribute as a function of its inputs; it can use the values of the surrounding scope.

        Raises:
            FormatError: The node has no such graph.
        """
        attribute = self._attributes.get(name)
        if attribute is None or attribute.type != AttributeProto.GRAPH:
            raise FormatError(f"{self}: it has no graph {name}")
        graph = attribute.g
        return lambda *values: self.walk.run(graph, values, self.scope)

    def graph(self, name: str) -> Any:
        """The `GraphProto` itself."""
        return self._attributes[name].g

    # ------------------------------------------------------------------------------------------ operands

    def operand(self, number: int) -> Any:
        """Return an operand, or `None` if it is omitted."""
        return self.operands[number] if number < len(self.operands) else None

    def known(self, number: int, what: str) -> np.ndarray:
        """Return an operand that must be known now.

        Args:
            number: Index of the operand.
            what: Description of the operand, for the error.

        Raises:
            UnsupportedError: It depends on inputs of the program.
        """
        value = self.operand(number)
        if is_array(value):
            return np.asarray(value)
        if value is None:
            raise FormatError(f"{self}: its operand {number}, {what}, is missing")
        return self.walk.known(value, self, number, what)

    def dims(self, number: int, what: str) -> list[Dim]:
        """Return an operand that is a list of sizes, each a number or an expression of symbols.

        Raises:
            UnsupportedError: It depends on inputs of the program.
        """
        value = self.operand(number)
        result = value if is_sizes(value) else self.known(number, what)
        return [each if isinstance(each, Expr) else int(each) for each in np.asarray(result).ravel()]

    def ints(self, number: int, what: str) -> list[int] | None:
        """Return an operand that is a list of integers, or `None` if it is omitted.

        Raises:
            UnsupportedError: It depends on inputs of the program, or on sizes that are not known yet.
        """
        if self.operand(number) is None:
            return None
        result = self.dims(number, what)
        if any(isinstance(each, Expr) for each in result):
            self.refuse(f"{what} {result}", f"numbers for {what}")
        return [int(each) for each in result]

    def scalar(self, number: int, what: str, default: Any = None) -> Any:
        """An operand of one element as a Python number, or the default where it is left out."""
        value = self.operand(number)
        if value is None:
            return default
        if is_sizes(value) and value.size == 1:
            return value.ravel()[0]
        result = self.known(number, what)
        if result.size != 1:
            raise FormatError(f"{self}: {what} is one number, not {list(result.shape)}")
        return result.ravel()[0].item()

    def dim(self, number: int, what: str) -> Dim:
        """Return an operand that is a size: known, an expression of sizes, or a symbol for the result of a step on the host.

        Raises:
            UnsupportedError: It depends on inputs of the program, in a graph that is part of a node.
        """
        if self.is_computed(number):
            (each,) = self.on_host(_as_a_size, lambda n: [rlx.TensorType(rlx.bool_, (n,))], number)
            result: Dim = each.shape[0]
            return result
        known = self.scalar(number, what)
        return known if isinstance(known, Expr) else int(known)

    def is_computed(self, *numbers: int) -> bool:
        """Whether one of these operands is computed by the program, where a step on the host can find what follows from it."""
        return self.walk.is_outermost and any(isinstance(self.operands[i], Value) for i in numbers)

    def on_host(
        self,
        function: Callable[..., tuple[np.ndarray, ...]],
        types: Callable[[Dim], Sequence[rlx.TensorType]],
        *numbers: int,
    ) -> tuple[Any, ...]:
        """Return results of data-dependent size: computed now if the operands are known, else between two programs.

        Args:
            function: A function of arrays, and of `None` for omitted operands; its results have the types.
            types: Returns the types of the results, for the data-dependent size.
            numbers: Indices of the operands that it takes.

        Raises:
            UnsupportedError: The operands are not known, in a graph that is part of a node.
        """
        operands = [self.operand(i) for i in numbers]
        if all(each is None or is_array(each) for each in operands):
            return function(*operands)
        names = [self.proto.input[i] if i < len(self.proto.input) else "" for i in numbers]
        return self.walk.on_host(self, function, types, names, operands)

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis of an operand of this rank, counted from the front.

        Raises:
            FormatError: It has no such axis.
        """
        if not -rank <= axis < rank:
            raise FormatError(f"{self}: axis {axis} is outside of {rank} axes")
        return axis % rank

    def counted(self, number: int, what: str) -> int:
        """A count of elements or parts that are made while the model is read, from 0 to some millions.

        Raises:
            FormatError: It is another number.
        """
        if not 0 <= number <= MOST:
            raise FormatError(f"{self}: {number} is no {what}", Fact("at most", MOST))
        return int(number)

    def expect(self, relation: Relation, left: Dim, right: Dim, what: str) -> None:
        """Require a relation of sizes; one that is not decided yet becomes a guard of the program, which names this node.

        Args:
            relation: Of `left` and `right`.
            left: A size.
            right: Another.
            what: The object with these sizes, for the error.

        Raises:
            ShapeError: It does not hold.
        """
        expect_relation(relation, left, right, f"{self}: {what}")

    def refuse(self, what: str, instead: str | None = None) -> NoReturn:
        """Report that this node requires an unsupported feature.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"{self}: {what} is not supported", hint=instead)


def _as_a_size(count: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return a number encoded as the size of an array, from which programs read sizes."""
    return (np.zeros(int(count.item()), bool),)
