"""An `ExportedProgram` as an `rlx.Model`: which inputs are parameters, which are state, and what they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import optree
import torch
from attrs import field, frozen
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind

import rlx_core as rlx
from rlx_core import random
from rlx_core.errors import ConfigError, Fact, UnsupportedError
from rlx_core.functions.model import PARAMETERS, argument_names
from rlx_core.importing.host_steps import HostStep
from rlx_core.importing.partition import Partition, WalkedProgram, untraceable
from rlx_core.importing.symbols import SymbolTable, expect_relation
from rlx_core.ir.dims import Expr
from rlx_torch.arrays import array_of
from rlx_torch.symbols import type_of
from rlx_torch.trees import leaves, plain
from rlx_torch.walk import TorchProgram, TorchWalk, outputs_of, results_of

STATE = "state"
"""The input that holds the buffers that a program writes."""

UNBOUNDED = 2**31
"""Bounds of torch from this value on mean that a size is unbounded."""

KEY = "key"
"""The input from which a program that draws takes its random numbers."""


@frozen(eq=False, kw_only=True)
class TorchModel(rlx.Model):
    """A model that was a torch module, with the buffers that it writes.

    Of a module that writes none, `model(*inputs)` is the result. Of one that does (batch norm in training, a cache), the first
    input is `state`, and the result is `(result, state)`: `rlx.jit(model.function, donate="state")` writes them in place.

    Attributes:
        state: The buffers that are written, by torch's names, as they were when the module was read.
    """

    state: Mapping[str, np.ndarray] = field(factory=dict, repr=False)


def model_of(program: torch.export.ExportedProgram, name: str, symbols: SymbolTable) -> TorchModel:
    """The model of an exported program whose ops all have handlers.

    Args:
        program: The result of `torch.export`.
        name: For reports and errors.
        symbols: Symbols by torch's names of sizes.

    Raises:
        UnsupportedError: Operations have no handler, or none for their operands; all of them are named.
        ConfigError: An input is an object, or a number that only the call knows.
    """
    graph = TorchProgram(program.graph_module, name, symbols)
    graph.expect_supported()
    signature = program.graph_signature
    written = {each.target for each in signature.output_specs if each.kind == OutputKind.BUFFER_MUTATION}
    tensors = {**program.constants, **program.state_dict}
    parameters = {n: array_of(tensors[n]) for n in signature.parameters}
    buffers = {n: array_of(tensors[n]) for n in _constants(signature)}
    state = {n: buffers.pop(n) for n in list(buffers) if n in written}
    inputs = _inputs(program, symbols)
    specs = dict(inputs)
    if state:
        specs = {STATE: {n: type_of(tensors[n], symbols) for n in state}, **specs}
    if graph.draws:
        specs = {**specs, KEY: random.Key(rlx.spec("u32[2]"))}
    export = _ExportReader(program, graph, buffers, bool(state))
    seen: list[Any] = []

    def check(parameters: Any, *values: Any) -> Any:
        walk, scope, written_state = export.walk({}, parameters, *values)
        seen[:] = walk, scope
        return export.assembled(results_of(graph.module, scope), written_state)

    rlx.eval_shape(check, parameters, *specs.values())  # raises the errors of handlers now
    walk, scope = seen
    if walk.steps:
        walked = WalkedExport(export, specs, scope, walk.steps)
        return TorchModel(
            name=name,
            function=untraceable(walked),
            parameters=parameters,
            inputs=specs,
            state=state,
            compiler=Partition(walked).compile,
        )

    def function(parameters: Any, *values: Any) -> Any:
        _, scope, written_state = export.walk(None, parameters, *values)
        return export.assembled(results_of(graph.module, scope), written_state)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(each, kind) for each in (PARAMETERS, *specs)]
    vars(function)["__signature__"] = inspect.Signature(named)
    return TorchModel(name=name, function=function, parameters=parameters, inputs=specs, state=state)


def _constants(signature: ExportGraphSignature) -> list[str]:
    kinds = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return [each.target for each in signature.input_specs if each.kind in kinds and each.target is not None]


class _ExportReader:
    """An exported program, walked for `(parameters, [state], *inputs, [key])`."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        graph: TorchProgram,
        buffers: Mapping[str, np.ndarray],
        is_stateful: bool,
    ) -> None:
        self.graph, self.draws = graph, graph.draws
        self._buffers, self._is_stateful = buffers, is_stateful
        self._signature = program.graph_signature
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._fixed = [node.meta["val"] for node in nodes if _is_given(node, self._signature)]
        self._ranges, self._positions = _ranges(program), _positions(program)

    def walk(
        self,
        computed: Mapping[Any, Sequence[Any]] | None,
        parameters: Any,
        *inputs: Any,
        nodes: Sequence[torch.fx.Node] | None = None,
        values: Mapping[Any, Any] | None = None,
    ) -> tuple[TorchWalk, dict[Any, Any], dict[str, Any]]:
        """Return a walk with its values, and the state.

        Args:
            computed: Results of steps on the host; without it, handlers may not add steps.
            parameters: The parameters.
            inputs: State, inputs and key.
            nodes: The nodes to walk; all, if omitted.
            values: Values of other nodes.
        """
        arguments = list(inputs)
        state = dict(arguments.pop(0)) if self._is_stateful else {}
        key = arguments.pop() if self.draws else None
        walk = TorchWalk(self.graph, computed)
        with walk.drawing(key):
            scope = walk.run(self.graph.module, self._placeholders(parameters, state, arguments), nodes, values)
        return walk, scope, state

    def assembled(self, results: Sequence[Any], state: dict[str, Any]) -> Any:
        """Return the result of the model, for the graph's results."""
        return _results(self._signature, results, self._out_spec, state, self._is_stateful)

    def _placeholders(self, parameters: Any, state: Mapping[str, Any], inputs: Sequence[Any]) -> list[Any]:
        user_values = leaves(self._in_spec, _whole(self._in_spec, self._positions, inputs, self._fixed))
        for place, axis, lower, upper in self._ranges:
            size = user_values[place].shape[axis]
            expect_relation(">=", size, lower, "range of torch.export")
            if upper < UNBOUNDED:
                expect_relation(">=", upper, size, "range of torch.export")
        user = iter(user_values)
        values = []
        for each in self._signature.input_specs:
            if each.kind == InputKind.USER_INPUT:
                value = next(user)
                values.append(rlx.asarray(value) if _is_array(value) else value)
            else:
                values.append({**parameters, **state}.get(each.target, self._buffers.get(each.target)))
        return [rlx.asarray(each) if isinstance(each, np.ndarray) else each for each in values]


class WalkedExport(WalkedProgram):
    """An exported program with steps on the host. Keys of values are nodes, and positions of constants among the results.

    Every part computes placeholders and constants of the graph from parameters and inputs.
    """

    def __init__(
        self, export: _ExportReader, inputs: Mapping[str, Any], values: Mapping[Any, Any], steps: Mapping[Any, HostStep]
    ) -> None:
        name, module = export.graph.name, export.graph.module
        if export.draws:
            message = f"{name}: random numbers next to data-dependent sizes are not supported"
            raise UnsupportedError(message, *(Fact("on the host", each.node) for each in steps.values()))
        results = [each if isinstance(each, torch.fx.Node) else i for i, each in enumerate(outputs_of(module))]
        constants = {i: each for i, each in enumerate(outputs_of(module)) if i in results}
        nodes = [node for node in module.graph.nodes if node.op != "output"]
        super().__init__(name, nodes, inputs, results, {**values, **constants}, steps)
        self._export = export

    def reads(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        return [each for each in node.all_input_nodes if each.op == "call_function"]

    def makes(self, node: torch.fx.Node) -> tuple[torch.fx.Node]:
        return (node,)

    def is_known(self, value: Any) -> bool:
        return not any(isinstance(each, rlx.Value | Expr) for each in optree.tree_leaves(value))

    def is_computed(self, value: Any) -> bool:
        return any(isinstance(each, rlx.Value) for each in optree.tree_leaves(value))

    def outgoing(self, value: Any) -> Any:
        return optree.tree_map(lambda each: rlx.asarray(cast(Any, each)) if isinstance(each, Expr) else each, value)

    def incoming(self, key: Any, value: Any) -> Any:
        return value

    def run(self, nodes: Any, parameters: Any, inputs: Any, values: Any, computed: Any) -> Mapping[Any, Any]:
        return self._export.walk(computed, parameters, *inputs.values(), nodes=nodes, values=values)[1]

    def parameters_of(self, parameters: Any, keys: Any) -> Any:
        return parameters

    def assembled(self) -> Callable[[list[Any]], Any]:
        return lambda results: self._export.assembled(results, {})


def _is_array(values: Any) -> bool:
    return values is not None and not isinstance(values, bool | int | float | str)


def _is_given(node: torch.fx.Node, signature: ExportGraphSignature) -> bool:
    return node.name in {a.name for a in (s.arg for s in signature.input_specs if s.kind == InputKind.USER_INPUT)}


def _results(
    signature: ExportGraphSignature, result: Sequence[Any], out_spec: Any, state: dict[str, Any], is_stateful: bool
) -> Any:
    results = []
    for spec, value in zip(signature.output_specs, result, strict=True):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            state[spec.target] = value
        elif spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            results.append(value)
    shown = plain(out_spec, results)
    return (shown, state) if is_stateful else shown


# --------------------------------------------------------------------------------------------------------- inputs


def _user_values(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the values of the placeholders of the user's inputs, in order: torch tensors, or fixed values."""
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    pairs = zip(program.graph_signature.input_specs, placeholders, strict=True)
    return [node.meta["val"] for spec, node in pairs if spec.kind == InputKind.USER_INPUT]


def arguments_of(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    """Return the arguments of the module by name, positional ones first, with the values of their leaves."""
    positional = program.call_spec.in_spec.children()[0]
    values = plain(program.call_spec.in_spec, _user_values(program))
    signature = program.module_call_graph[0].signature
    known = list((signature and signature.forward_arg_names) or ())
    names = known[: positional.num_children] or [f"input{i}" for i in range(positional.num_children)]
    if len(names) < positional.num_children:
        names += [f"{names[-1]}_{i}" for i in range(positional.num_children - len(names))]
    return [*zip(names, values[0], strict=True), *values[1].items()]


def _inputs(program: torch.export.ExportedProgram, symbols: SymbolTable) -> list[tuple[str, Any]]:
    """Return the inputs that are arrays: name → pytree of types. Numbers and `None` were fixed by the export."""
    listed = [(name, value) for name, value in arguments_of(program) if _has_tensor(value)]
    names = argument_names([name for name, _ in listed])
    return [(name, _types(value, symbols, name)) for name, (_, value) in zip(names, listed, strict=True)]


def _positions(program: torch.export.ExportedProgram) -> list[int]:
    return [i for i, (_, value) in enumerate(arguments_of(program)) if _has_tensor(value)]


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    return any(map(_has_tensor, value)) if isinstance(value, tuple | list) else isinstance(value, torch.Tensor)


def _types(value: Any, symbols: SymbolTable, name: str) -> Any:
    if isinstance(value, dict):
        return {n: _types(each, symbols, f"{name}.{n}") for n, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_types(each, symbols, name) for each in value)
    if isinstance(value, torch.Tensor):
        return type_of(value, symbols)
    if isinstance(value, torch.SymInt):
        raise ConfigError(
            f"from_torch: {name} is a number that only the call knows",
            Fact("found", str(value)),
            hint="pass it as a tensor, or fix it when the module is exported",
        )
    return value


def _whole(in_spec: Any, positions: Sequence[int], values: Sequence[Any], fixed: Sequence[Any]) -> Any:
    """Return all arguments of the module: the given ones, and the fixed ones."""
    args, named = plain(in_spec, fixed)
    every = [*args, *named.values()]
    for position, value in zip(positions, values, strict=True):
        every[position] = value
    return tuple(every[: len(args)]), dict(zip(named, every[len(args) :], strict=True))


def _ranges(program: torch.export.ExportedProgram) -> list[tuple[int, int, int, int]]:
    """Return torch's constraints on sizes: index of the input leaf, axis, and bounds.

    A minimum of 2 is only torch's specialisation of size 1, and no bound.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for place, value in enumerate(_user_values(program)):
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                sizes.setdefault(str(size.node.expr), (place, axis))
    result = []
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) in sizes:
            lower = int(bounds.lower) if bounds.lower.is_Integer and bounds.lower > 2 else 0
            upper = int(bounds.upper) if bounds.upper.is_Integer else UNBOUNDED
            result.append((*sizes[str(symbol)], lower, upper))
    return result
