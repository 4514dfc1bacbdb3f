"""Running a graph of ATen ops on values of rlx: every node's handler in turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import random
from rlx_core.importing.host_steps import HostStep
from rlx_core.importing.report import expect_handlers
from rlx_core.importing.symbols import SymbolTable
from rlx_core.importing.walk import GraphWalk, refuse
from rlx_torch.arrays import DTYPES, array_of
from rlx_torch.aten.context import Here, here
from rlx_torch.aten.table import TABLE
from rlx_torch.symbols import type_of

# Arguments that only describe the storage of a result, or select a generator.
STORAGE: Final = frozenset({"device", "layout", "memory_format", "pin_memory", "non_blocking", "generator"})

EFFECT: Final = "higher_order::with_effects.default"
"""An op that torch keeps in order with others by a token: here, the op."""


def name_of(target: Any) -> str:
    """Return the name of a node's target, as in the table: `add.Tensor`, `prims::iota.default`, `operator.add`."""
    if isinstance(target, torch._ops.OpOverload):
        space, _, name = target.name().partition("::")
        overload = name if "." in name else f"{name}.default"
        return overload if space == "aten" else f"{space}::{overload}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order::{target.name()}.default"
    module = getattr(target, "__module__", "") or ""
    return f"{module.lstrip('_')}.{target.__name__}" if callable(target) else str(target)


@frozen(eq=False)
class TorchProgram:
    """A graph of torch as a function of values: `program(*inputs)` returns the graph's results, one value for each output.

    Attributes:
        module: The graph, functional: nothing in it writes into an operand.
        name: Its name in errors.
        symbols: Symbols by torch's names of sizes.
    """

    module: torch.fx.GraphModule
    name: str
    symbols: SymbolTable = field(factory=SymbolTable)

    def expect_supported(self) -> None:
        """Require that all operations have handlers.

        Raises:
            UnsupportedError: They do not; it names all of them.
        """
        expect_handlers(self.name, TABLE, ((operation_of(node), location_of(node)) for node in _calls(self.module)))

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn, so that a key is needed."""
        return any(_draws(node) for node in _calls(self.module))

    def __call__(self, *inputs: Any, key: random.Key | None = None) -> list[Any]:
        """Return the graph's results for values, sizes and `None`, in the order of its placeholders.

        Raises:
            UnsupportedError: A handler does not support its operands; all such nodes are named.
        """
        walk = TorchWalk(self)
        with walk.drawing(key):
            values = walk.run(self.module, inputs)
        return results_of(self.module, values)


class TorchWalk(GraphWalk[torch.fx.Node]):
    """One walk through a graph and the graphs inside of it.

    Attributes:
        steps: Nodes with results of data-dependent size → their steps on the host, between two programs.
    """

    def __init__(self, program: TorchProgram, computed: Mapping[Any, Sequence[Any]] | None = None) -> None:
        """`computed` has the results of steps that have run on the host; without it, handlers may not add steps."""
        super().__init__(program.name, TABLE)
        self.steps: dict[torch.fx.Node, HostStep] = {}
        self._symbols, self._computed = program.symbols, computed
        self._values: dict[Any, Any] = {}
        self._is_nested = False

    @contextmanager
    def drawing(self, key: random.Key | None) -> Iterator[None]:
        """Walk the program inside of the block, with a key for random numbers.

        Raises:
            UnsupportedError: Handlers refused operands.
        """
        token = here.set(Here(key, None if self._computed is None else self._on_host))
        try:
            yield
        finally:
            here.reset(token)
        self.finish()

    def run(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        nodes: Sequence[torch.fx.Node] | None = None,
        values: Mapping[Any, Any] | None = None,
    ) -> dict[Any, Any]:
        """Return the values of a graph, or of some of its nodes, which use values that are given."""
        every = module.graph.nodes
        placeholders = [node for node in every if node.op == "placeholder"]
        scope: dict[Any, Any] = dict(zip(placeholders, inputs, strict=True))
        scope |= {node: self._attribute(module, node.target) for node in every if node.op == "get_attr"}
        scope |= values or {}
        outer, self._values = self._values, scope
        try:
            self.nodes((node for node in nodes or every if node.op == "call_function"), scope)
        finally:
            self._values = outer
        return scope

    def _on_host(self, function: Callable[..., np.ndarray], operands: Sequence[Any], instead: str) -> Any:
        """Return the result of a step on the host; it is zeros while the steps are determined."""
        node = here.get().node
        assert self._computed is not None, "a walk without steps has no such function"
        if node in self._computed:
            return self._computed[node][0]
        if self._is_nested:
            refuse("the op outside of the branch or loop")
        keys = [None if x is None else next(key for key, value in self._values.items() if value is x) for x in operands]
        types = (type_of(node.meta["val"], self._symbols),)
        self.steps[node] = HostStep(self.location(node), node, tuple(keys), types, lambda *x: (function(*x),))
        return self._placeholder(node.meta["val"])

    def operation(self, node: torch.fx.Node) -> str:
        return operation_of(node)

    def location(self, node: torch.fx.Node) -> str:
        return location_of(node)

    def step(self, node: torch.fx.Node, values: dict[Any, Any]) -> None:
        here.get().node = node
        args = [_argument(each, values) for each in node.args]
        named = {name: _argument(each, values) for name, each in node.kwargs.items() if name not in STORAGE}
        function = TABLE[operation_of(node)].function
        if name_of(node.target) == EFFECT:
            values[node] = [args[0], function(*args[2:], **named)]
        else:
            values[node] = function(*args, **named)

    def skip(self, node: torch.fx.Node, values: dict[Any, Any]) -> None:
        values[node] = self._placeholder(node.meta["val"])

    def _attribute(self, module: torch.fx.GraphModule, path: str) -> Any:
        """A constant as a value, or a graph inside of this one as a function."""
        attribute = module
        for part in path.split("."):
            attribute = getattr(attribute, part)
        if isinstance(attribute, torch.fx.GraphModule):
            return lambda *inputs: self._run_nested(attribute, inputs)
        return rlx.asarray(array_of(attribute))

    def _run_nested(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
        outer, self._is_nested = self._is_nested, True
        try:
            return results_of(module, self.run(module, inputs))
        finally:
            self._is_nested = outer

    def _placeholder(self, like: Any) -> Any:
        """Return zeros of the type of a refused result."""
        if isinstance(like, torch.Tensor):
            kind = type_of(like, self._symbols)
            return rlx.zeros(kind.shape, dtype=kind.dtype)
        return [self._placeholder(each) for each in like] if isinstance(like, tuple | list) else like


def results_of(module: torch.fx.GraphModule, values: Mapping[Any, Any]) -> list[Any]:
    """Return the results of a graph."""
    return [_argument(each, values) for each in outputs_of(module)]


def outputs_of(module: torch.fx.GraphModule) -> Sequence[Any]:
    """Return the nodes and constants that a graph returns."""
    results: Any = next(node for node in module.graph.nodes if node.op == "output").args
    return results[0] if isinstance(results[0], tuple | list) else results


def _argument(argument: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """Return an argument of a node with values in place of nodes, and dtypes of rlx in place of torch's."""
    if isinstance(argument, torch.fx.Node):
        return values[argument]
    if isinstance(argument, tuple | list):
        return [_argument(each, values) for each in argument]
    return DTYPES.get(argument, argument) if isinstance(argument, torch.dtype) else argument


def _calls(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Every call in a graph and in the graphs inside of it."""
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            yield from (node for node in each.graph.nodes if node.op == "call_function")


def _draws(node: torch.fx.Node) -> bool:
    name = name_of(node.target)
    if name in ("dropout.default", "scaled_dot_product_attention.default"):
        schema = [argument.name for argument in node.target._schema.arguments]
        arguments = dict(zip(schema, node.args, strict=False)) | dict(node.kwargs)
        return bool(arguments.get("train") if name == "dropout.default" else arguments.get("dropout_p"))
    if name.split(".")[0] in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return bool(node.args[5] and node.args[6])  # dropout between layers, in training
    return name in TABLE and TABLE[name].draws


def operation_of(node: torch.fx.Node) -> str:
    """Return the name of a node's operation in the table; the op itself where torch orders it by a token."""
    name = name_of(node.target)
    return name_of(node.args[1]) if name == EFFECT else name


def location_of(node: torch.fx.Node) -> str:
    """A node with the user's line that made it, as far as torch kept it."""
    lines: list[tuple[str, str]] = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    users = [each for each in lines if "/torch/" not in each[0]] or lines
    return f"{node.name} ({users[-1][0].rsplit('/', 1)[-1]}:{users[-1][1]})" if users else node.name
