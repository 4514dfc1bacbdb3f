"""The walk itself: nodes in order, each by its handler, at once where everything it takes is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import optree

import rlx_core as rlx
from rlx_core.errors import FormatError, UnsupportedError
from rlx_core.importing.host_steps import HostStep
from rlx_core.importing.symbols import fresh_name
from rlx_core.importing.walk import GraphWalk
from rlx_core.ir.dims import Dim, free_symbols
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ir.graph import Value
from rlx_core.system.budget import current_work
from rlx_onnx.reading.structure import node_label
from rlx_onnx.reading.tensors import DTYPES, HELD, array_of, numpy_dtype
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import TABLE, OnnxHandler, operation_name
from rlx_onnx.walking.values import Coded, at_once, is_known, is_sizes, traced

SMALL: Final = 1 << 20
"""Elements: up to so many are made at once by operations whose results grow beyond their operands."""


LARGE: Final = 1 << 16
"""Elements: larger arrays are no sizes, axes or permutations."""


class NeedsKnown(Exception):
    """A value must be known now and comes from parameters or inputs alone: the walk begins again with those known."""

    def __init__(self, names: frozenset[str], message: str, what: str) -> None:
        super().__init__(message)
        self.names, self.said, self.what = names, message, what


class NeedsSizes(Exception):
    """The structure of the graph depends on sizes that are symbols: the model is read again for each binding of them."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.said = message


class ModelWalk(GraphWalk[Any]):
    """One walk through a model, in a trace or outside of one.

    Attributes:
        outside: Reads the bytes of tensors that lie in other files.
        parameters: The names among the sources that may be made constants.
        sources: A value → the names of the parameters and inputs on which it depends.
        steps: First result of a node → its step on the host, between two programs.
    """

    invalid = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, NotImplementedError)

    def __init__(
        self,
        outside: Callable[[Any], np.ndarray] | None = None,
        parameters: Collection[str] = (),
        computed: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """`computed` has the results of steps that have run on the host, by their keys."""
        super().__init__("", TABLE)
        self.outside, self.parameters, self._computed = outside, parameters, computed or {}
        self.sources: dict[int, frozenset[str]] = {}
        self.steps: dict[str, HostStep] = {}
        self._alive: list[Any] = []
        self._symbols: set[str] = set()  # of inputs
        self._found: set[str] = set()  # of steps on the host
        self._depth = 0

    @property
    def is_outermost(self) -> bool:
        """Whether nodes are walked of the model's own graph, and not of one that is part of a node."""
        return self._depth == 0

    def named(self, name: str, value: Any) -> Any:
        """Note that a value is a parameter or an input."""
        for leaf in leaves(value):
            self._note(leaf, frozenset({name}))
            self._symbols |= {each.name for each in free_symbols(*leaf.shape)}
        return value

    @property
    def has_open_sizes(self) -> bool:
        """Whether sizes of inputs are symbols, so that `specialise` makes them numbers."""
        return bool(self._symbols)

    def specialise(self, node: OnnxNode, what: str) -> NoReturn:
        """Restart with sizes that are numbers, or refuse if the unknown sizes are data-dependent.

        Args:
            node: The node with results that depend on sizes in more than their own sizes.
            what: The property that depends on them.
        """
        message = f"{node}: {what} depends on sizes"
        if not self._symbols:
            raise UnsupportedError(f"{message} that are found when the model runs", hint="sizes of inputs")
        raise NeedsSizes(message)

    def follows_from_sizes(self, value: Any) -> bool:
        """Return whether a traced value is computed from sizes alone."""
        return not self._sources([value])

    def run(self, graph: Any, given: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        """Return the results of a graph.

        Args:
            graph: A `GraphProto`, checked.
            given: Its inputs, in order.
            around: Names and values of the surrounding scope.
        """
        if len(given) != len(graph.input):
            raise FormatError(f"graph {graph.name}: it takes {len(graph.input)} inputs, not {len(given)}")
        scope = dict(around)
        for tensor in graph.initializer:
            scope[tensor.name] = entered(array_of(tensor, f"tensor {tensor.name}", self.outside), tensor.data_type)
        scope |= {each.name: value for each, value in zip(graph.input, given, strict=True)}
        self._depth += 1
        try:
            self.nodes(graph.node, scope)
        finally:
            self._depth -= 1
        return [scope[each.name] for each in graph.output]

    def operation(self, node: Any) -> str:
        return operation_name(node.domain, node.op_type)

    def location(self, node: Any) -> str:
        return node_label(node)

    def step(self, node: Any, values: dict[str, Any]) -> None:
        operands = [values[name] if name else None for name in node.input]
        results = self._results(OnnxNode(self, node, operands, values))
        values.update((name, value) for name, value in zip(node.output, results, strict=False) if name)

    def known(self, value: Any, node: OnnxNode, number: int, what: str) -> np.ndarray:
        """Refuse, or begin again: a value is not known that must be."""
        message = f"{node}: its operand {number}, {what}, must be known when the program is compiled"
        names = self._sources([value])
        if not names or is_sizes(value):
            raise UnsupportedError(message, hint=f"a constant, or a size of an input, as {what}")
        raise NeedsKnown(names, message, what)

    def on_host(
        self,
        node: OnnxNode,
        function: Callable[..., tuple[np.ndarray, ...]],
        types: Callable[[Dim], Sequence[rlx.TensorType]],
        names: Sequence[str],
        operands: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Return the results of a step that runs on the host; they are zeros while the parts of a model are determined."""
        key = next(name for name in node.proto.output if name)
        if key in self._computed:
            return tuple(self._computed[key])
        sources = self._sources(operands)
        if sources and sources <= frozenset(self.parameters):
            raise NeedsKnown(sources, f"{node}: its operands must be known when the program is compiled", "operand")
        if not self.is_outermost:
            node.refuse(
                "a result whose size is found when it runs, in a graph that is part of a node", "the node outside of it"
            )
        operand_keys = tuple(name or None for name in names)
        step = self.steps[key] = HostStep(str(node), key, operand_keys, tuple(types(self._unknown(key))), function)
        return tuple(rlx.zeros(each.shape, dtype=each.dtype) for each in step.types)

    def _unknown(self, key: str) -> Dim:
        """Return a new symbol for a data-dependent size."""
        name = fresh_name(f"n_{key}", self._symbols | self._found)
        self._found.add(name)
        return rlx.symbol(name)

    # ----------------------------------------------------------------------------------------------

    def _sources(self, values: Iterable[Any]) -> frozenset[str]:
        result = (self.sources.get(id(leaf)) for each in values for leaf in leaves(each))
        return frozenset[str]().union(*(each for each in result if each))

    def _results(self, node: OnnxNode) -> Sequence[Any]:
        computed = self._handled(TABLE[self.operation(node.proto)], node)
        results = computed if isinstance(computed, tuple) else (computed,)
        if sum(map(bool, node.proto.output)) > len(results):
            raise UnsupportedError(f"{node}: it has {len(results)} results here, not {len(node.proto.output)}")
        names = self._sources(node.operands)
        if names:
            for leaf in (leaf for each in results for leaf in leaves(each)):
                self._note(leaf, names)
        return results

    def _handled(self, handler: OnnxHandler, node: OnnxNode) -> Any:
        operands = list(node.operands)
        if handler.max_operands is not None and len(operands) > handler.max_operands:
            raise FormatError(f"{node}: it takes {handler.max_operands} operands, not {len(operands)}")
        if not handler.takes_sizes:
            operands = [traced(each) for each in operands]
        if not handler.takes_coded:
            operands = [_plain(each, node) for each in operands]
        if (
            handler.is_pure
            and all(map(is_known, operands))
            and not (handler.grows and _is_large(handler, node, operands))
            and not (handler.widens and any(each.size > 1 for each in _arrays(operands[0])))
        ):
            _expect_foldable(handler, node, operands)
            return at_once(handler.function, node, *operands)
        return handler.function(node, *operands)

    def _note(self, leaf: Any, names: frozenset[str]) -> None:
        self.sources[id(leaf)] = names
        self._alive.append(leaf)  # so that its id stays its own


def entered(array: np.ndarray, element: int) -> Any:
    """An array as a value of the walk."""
    if element in DTYPES or array.dtype == object:
        return array
    return Coded(array.astype(HELD[element]), element)


def leaves(value: Any) -> list[Any]:
    """The traced values of a value."""
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    if isinstance(value, dict):
        return leaves(list(value.values()))
    if isinstance(value, Coded):
        return leaves(value.value)
    return [value] if isinstance(value, Value) else []


def _plain(value: Any, node: OnnxNode) -> Any:
    if isinstance(value, Coded):
        node.refuse(f"operands of {numpy_dtype(value.element)}", "Cast to a dtype of rlx before it")
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU" and not is_sizes_of_dims(value):
        node.refuse("texts", "texts outside of the model")
    return value


def is_sizes_of_dims(value: np.ndarray) -> bool:
    """Return whether an array of objects is of sizes, not of texts."""
    return value.dtype == object and not any(isinstance(each, str | bytes) for each in value.ravel()[:1])


def _is_large(handler: OnnxHandler, node: OnnxNode, operands: list[Any]) -> bool:
    """Return whether results are too large to be made before the program runs."""
    return any(isinstance(each.size, int) and each.size > SMALL for each in _result_types(handler, node, operands))


def _expect_foldable(handler: OnnxHandler, node: OnnxNode, operands: list[Any]) -> None:
    """Count the bytes of results that are about to be computed, if they may be many: no operation has more elements than its
    operands have pairs, except handlers that grow, which are small here.

    Raises:
        BudgetError: They exceed the budget of constants.
    """
    work = current_work()
    if work is None or math.prod(max(1, leaf.size) for each in operands for leaf in _arrays(each)) <= SMALL:
        return
    for each in _result_types(handler, node, operands):
        if isinstance(each.size, int):
            work.fold(each.size * each.dtype.itemsize, str(node))


def _result_types(handler: OnnxHandler, node: OnnxNode, operands: list[Any]) -> list[Any]:
    """The types of results. Large operands are types too, because a trace copies constants; small ones may decide sizes."""
    large = [
        n for n, each in enumerate(operands) if isinstance(each, np.ndarray) and each.size > LARGE and is_known(each)
    ]

    def function(*traced: Any) -> Any:
        values = dict(zip(large, traced, strict=True))
        return handler.function(node, *(values.get(n, each) for n, each in enumerate(operands)))

    types = [rlx.TensorType(dtype_of(operands[n].dtype), operands[n].shape) for n in large]
    return optree.tree_leaves(at_once(lambda: rlx.eval_shape(function, *types)))


def _arrays(value: Any) -> list[np.ndarray]:
    """The arrays of a value that is known."""
    if isinstance(value, list | tuple):
        return [array for each in value for array in _arrays(each)]
    return _arrays(value.value) if isinstance(value, Coded) else [value] if isinstance(value, np.ndarray) else []
