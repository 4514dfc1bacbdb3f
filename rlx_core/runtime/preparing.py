"""What programs are bound to: the caller's parameters, or what the prepare program of a plan makes of them.

It is computed where the programs run: on the host by the interpreter, on a device by kernels of its own, so that only what the
caller gave crosses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx_core.ir.element_functions import ElementFunctions
from rlx_core.ir.graph import Param, leaf_name
from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.compiled import Compiled
from rlx_core.pipeline.select.backend import ABSENT, Bindings

__all__ = ["prepared", "prepared_on_host"]


def prepared(compiled: Compiled, lir: Lir, arrays: Mapping[str, Any]) -> Bindings:
    """What a program of a plan is bound to.

    Args:
        compiled: The compilation that the plan is of.
        lir: The plan.
        arrays: The caller's parameters by name.

    Raises:
        IndexRangeError, OutOfMemoryError: Something cannot be computed from these parameters.
    """
    device = compiled.target.device
    if lir.prepare is None or device is None or device.name.endswith(f":{ABSENT}"):
        return prepared_on_host(lir, arrays, compiled.target.element_functions)
    return _prepared_on_device(compiled, lir, arrays)


def prepared_on_host(lir: Lir, arrays: Mapping[str, Any], functions: ElementFunctions | None = None) -> Bindings:
    """The same, computed by the interpreter, with a target's functions of inexact element-wise ops."""
    if lir.prepare is None:
        return Bindings(arrays)
    params = {name: np.asarray(arrays[name]) for name in lir.prepare.param_types}
    values = interpret(lir.prepare, {}, params, functions=functions)
    return Bindings(dict(zip(lir.graph.param_types, values, strict=True)))


def _prepared_on_device(compiled: Compiled, lir: Lir, arrays: Mapping[str, Any]) -> Bindings:
    """Parameters as they were given, and the others computed on the device."""
    assert lir.prepare is not None, "there is something to compute"
    preparing = compiled.to_prepare(lir.prepare)
    _, program = preparing.planned_program(
        preparing.lir
    )  # a new one each time, because a program keeps what it is bound to
    program.bind(Bindings({name: arrays[name] for name in preparing.lir.graph.param_types}))
    computed = iter(program.run_to([], "device"))
    found = Bindings({})
    for name, value in zip(lir.graph.param_types, lir.prepare.outputs, strict=True):
        if isinstance(value.node.op, Param):
            found[name] = arrays[leaf_name(value)]
            continue
        array = next(computed)
        if array.run is not None:
            array.run.settle()
        found[name] = array
    traffic = program.traffic
    found.crossed = traffic.bound + traffic.steps if traffic is not None else 0
    return found
