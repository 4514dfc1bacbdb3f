"""Preparation of parameters: from the checked ones to those that programs are bound to, by a plan's prepare program.

The prepare program runs on the target: on a device with its kernels, so that only the checked parameters are transferred; on
the host with the interpreter, or compiled if it has loops, whose steps take the interpreter some 20 µs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core import ir
from rlx_core.ir.graph import Graph, Param, leaf_name
from rlx_core.ir.graph.program import nested_graphs
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import ABSENT, Params, Program
from rlx_core.pipeline.compiled import CompiledProgram

if TYPE_CHECKING:
    from rlx_core.ir.element_functions import ElementFunctions


def prepared(compiled: CompiledProgram, lir: Lir, checked: Params) -> Params:
    """The parameters that a program of a plan is bound to.

    Args:
        compiled: The compilation that the plan is of.
        lir: The plan.
        checked: The checked parameters.

    Raises:
        IndexRangeError, OutOfMemoryError: Something cannot be computed from these parameters.
    """
    params = _prepared(compiled, lir, checked)
    immutable_ids = {id(checked[name]) for name in checked.immutable}
    params.immutable = frozenset(name for name, array in params.items() if id(array) in immutable_ids)
    params.version = checked.version
    return params


def _prepared(compiled: CompiledProgram, lir: Lir, arrays: Mapping[str, Any]) -> Params:
    device = compiled.target.device
    if lir.prepare is None or (device is not None and device.name.endswith(f":{ABSENT}")):
        return prepared_on_host(lir, arrays, compiled.target.element_functions)
    if device is not None:
        return _prepared_on_device(compiled, lir, arrays)
    if any(nested_graphs(node.op) for node in lir.prepare.nodes):
        program = _bound_program(compiled, lir.prepare, arrays)
        return _with_computed(lir, arrays, iter(program.run([])))
    return prepared_on_host(lir, arrays, compiled.target.element_functions)


def prepared_on_host(lir: Lir, arrays: Mapping[str, Any], functions: ElementFunctions | None = None) -> Params:
    """The same, computed by the interpreter, with a target's functions of inexact element-wise ops."""
    if lir.prepare is None:
        return Params(arrays)
    params = {name: np.asarray(arrays[name]) for name in lir.prepare.param_types}
    values = ir.interpret.interpret(lir.prepare, {}, params, functions=functions)
    return Params(dict(zip(lir.graph.param_types, values, strict=True)))


def _bound_program(compiled: CompiledProgram, prepare: Graph, arrays: Mapping[str, Any]) -> Program:
    """Return a prepare program for the same target: a new one each time, because a program keeps its bindings alive."""
    preparing = compiled.to_prepare(prepare)
    _, program = preparing.planned_program(preparing.lir)
    program.bind(Params({name: arrays[name] for name in preparing.lir.graph.param_types}))
    return program


def _with_computed(lir: Lir, arrays: Mapping[str, Any], computed: Iterator[Any]) -> Params:
    """Return unchanged parameters and computed ones, in the order of the prepare graph's results."""
    assert lir.prepare is not None, "there is something to compute"
    pairs = zip(lir.graph.param_types, lir.prepare.outputs, strict=True)
    return Params(
        {
            name: arrays[leaf_name(value)] if isinstance(value.node.op, Param) else next(computed)
            for name, value in pairs
        }
    )


def _prepared_on_device(compiled: CompiledProgram, lir: Lir, arrays: Mapping[str, Any]) -> Params:
    assert lir.prepare is not None, "there is something to compute"
    program = _bound_program(compiled, lir.prepare, arrays)
    results = program.run_to([], "device")
    for array in results:
        if array.run is not None:
            array.run.settle()
    result = _with_computed(lir, arrays, iter(results))
    traffic = program.traffic
    result.transferred = traffic.bound + traffic.steps if traffic is not None else 0
    return result
