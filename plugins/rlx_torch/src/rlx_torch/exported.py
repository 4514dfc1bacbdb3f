"""An `ExportedProgram` as an `rlx.Model`: which inputs are parameters, which are state, and what they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import field, frozen
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind

import rlx_core as rlx
from rlx_core import random
from rlx_core.errors import ConfigError, Fact
from rlx_core.functions.model import PARAMETERS, argument_names
from rlx_core.importing.symbols import SymbolTable, expect_relation
from rlx_torch.arrays import array_of
from rlx_torch.symbols import type_of
from rlx_torch.trees import leaves, plain
from rlx_torch.walk import TorchProgram

__all__ = ["KEY", "STATE", "TorchModel", "arguments_of", "model_of"]

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
    walk = TorchProgram(program.graph_module, name, symbols)
    walk.expect_supported()
    signature = program.graph_signature
    written = {each.target for each in signature.output_specs if each.kind == OutputKind.BUFFER_MUTATION}
    kept = {**program.constants, **program.state_dict}
    parameters = {n: array_of(kept[n]) for n in signature.parameters}
    buffers = {n: array_of(kept[n]) for n in _constants(signature)}
    state = {n: buffers.pop(n) for n in list(buffers) if n in written}
    inputs = _inputs(program, symbols)
    specs = dict(inputs)
    if state:
        specs = {STATE: {n: type_of(kept[n], symbols) for n in state}, **specs}
    if walk.draws:
        specs = {**specs, KEY: random.Key(rlx.spec("u32[2]"))}
    function = _function(program, walk, buffers, bool(state), walk.draws)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(each, kind) for each in (PARAMETERS, *specs)]
    vars(function)["__signature__"] = inspect.Signature(named)
    model = TorchModel(name=name, function=function, parameters=parameters, inputs=specs, state=state)
    rlx.eval_shape(function, parameters, *specs.values())  # raises the errors of handlers now
    return model


def _constants(signature: ExportGraphSignature) -> list[str]:
    kinds = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return [each.target for each in signature.input_specs if each.kind in kinds and each.target is not None]


def _function(
    program: torch.export.ExportedProgram,
    walk: TorchProgram,
    buffers: Mapping[str, np.ndarray],
    is_stateful: bool,
    draws: bool,
) -> Callable[..., Any]:
    """`function(parameters, [state], *inputs, [key])`, which walks the graph."""
    signature = program.graph_signature
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    fixed = [node.meta["val"] for node in nodes if _is_given(node, signature)]
    ranges = _ranges(program)
    positions = _positions(program)

    def run(parameters: Any, *inputs: Any) -> Any:
        rest = list(inputs)
        state = rest.pop(0) if is_stateful else {}
        key = rest.pop() if draws else None
        user_values = leaves(in_spec, _whole(in_spec, positions, rest, fixed))
        for place, axis, lower, upper in ranges:
            size = user_values[place].shape[axis]
            expect_relation(">=", size, lower, "range of torch.export")
            if upper < UNBOUNDED:
                expect_relation(">=", upper, size, "range of torch.export")
        user = iter(user_values)
        values = []
        for each in signature.input_specs:
            if each.kind == InputKind.USER_INPUT:
                given = next(user)
                values.append(rlx.asarray(given) if _is_array(given) else given)
            else:
                values.append({**parameters, **state}.get(each.target, buffers.get(each.target)))
        found = walk(*(rlx.asarray(v) if isinstance(v, np.ndarray) else v for v in values), key=key)
        return _results(signature, found, out_spec, {**state}, is_stateful)

    return run


def _is_array(given: Any) -> bool:
    return given is not None and not isinstance(given, bool | int | float | str)


def _is_given(node: torch.fx.Node, signature: ExportGraphSignature) -> bool:
    return node.name in {a.name for a in (s.arg for s in signature.input_specs if s.kind == InputKind.USER_INPUT)}


def _results(
    signature: ExportGraphSignature, found: Sequence[Any], out_spec: Any, state: dict[str, Any], is_stateful: bool
) -> Any:
    results = []
    for spec, value in zip(signature.output_specs, found, strict=True):
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
    given = plain(program.call_spec.in_spec, _user_values(program))
    signature = program.module_call_graph[0].signature
    known = list((signature and signature.forward_arg_names) or ())
    names = known[: positional.num_children] or [f"input{i}" for i in range(positional.num_children)]
    if len(names) < positional.num_children:
        names += [f"{names[-1]}_{i}" for i in range(positional.num_children - len(names))]
    return [*zip(names, given[0], strict=True), *given[1].items()]


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


def _whole(in_spec: Any, positions: Sequence[int], given: Sequence[Any], fixed: Sequence[Any]) -> Any:
    """Return all arguments of the module: the given ones, and the fixed ones."""
    args, named = plain(in_spec, fixed)
    every = [*args, *named.values()]
    for position, value in zip(positions, given, strict=True):
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
    found = []
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) in sizes:
            lower = int(bounds.lower) if bounds.lower.is_Integer and bounds.lower > 2 else 0
            upper = int(bounds.upper) if bounds.upper.is_Integer else UNBOUNDED
            found.append((*sizes[str(symbol)], lower, upper))
    return found
