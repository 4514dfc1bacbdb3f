"""A small importer: programs are lists of lines `result = operation operands`, with values by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core.functions.model import Model
from rlx_core.importing.host_steps import HostStep
from rlx_core.importing.partition import Partition, WalkedProgram, untraceable
from rlx_core.importing.report import expect_handlers
from rlx_core.importing.table import Handler, HandlerTable
from rlx_core.importing.walk import GraphWalk, refuse
from rlx_core.ir.graph import Value

__all__ = ["TABLE", "Line", "ToyHandler", "ToyWalk", "imported", "partitioned", "program"]


@frozen
class ToyHandler(Handler):
    """A handler that may run on the host, between programs."""

    on_host: bool = False


TABLE = HandlerTable(
    ToyHandler,
    registration='@toy.TABLE.register("{}") registers a function of the operands',
    alternatives={"sort_words": "numbers"},
)

TABLE.register("double")(lambda x: x * 2)
TABLE.register("add")(rlx.add)
TABLE.register("sum")(rlx.sum)
TABLE.register("large")(lambda x: bytearray(1 << 62))
TABLE.register("take")(lambda x, places: rlx.take(x, places))
TABLE.register("apply")(lambda function: function())
TABLE.register("fail")(lambda x: x[3:].missing)
TABLE.register("nonzero", on_host=True)(lambda x: (np.flatnonzero(x),))


@TABLE.register("halve")
def halve(x: Any) -> Any:
    if x.dtype != np.float32:
        refuse("f32", subject="halve of integers")
    return x / 2


@frozen
class Line:
    """A node."""

    result: str
    name: str
    operands: tuple[str, ...] = field(converter=tuple)


def program(text: str) -> list[Line]:
    """The nodes of a program."""
    lines = [line.split() for line in text.strip().splitlines()]
    return [Line(result, name, operands) for result, _, name, *operands in lines]


class ToyWalk(GraphWalk[Line]):
    """A walk, which knows the results of host steps in `computed`, or records these steps."""

    invalid = (AttributeError,)

    def __init__(self, name: str, computed: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, TABLE)
        self.computed = computed or {}
        self.steps: dict[str, HostStep] = {}

    def operation(self, node: Line) -> str:
        return node.name

    def location(self, node: Line) -> str:
        return f"line {node.result}"

    def step(self, node: Line, values: dict[str, Any]) -> None:
        handler = TABLE[node.name]
        if handler.on_host:
            values[node.result] = self._on_host(node, handler.function)
        else:
            values[node.result] = handler.function(*(values[name] for name in node.operands))

    def skip(self, node: Line, values: dict[str, Any]) -> None:
        values[node.result] = values[node.operands[0]]

    def _on_host(self, node: Line, function: Callable[..., Any]) -> Any:
        if node.result in self.computed:
            return self.computed[node.result][0]
        types = (rlx.spec(f"i64[n_{node.result}]"),)
        self.steps[node.result] = HostStep(self.location(node), node.result, node.operands, types, function)
        return rlx.zeros(types[0].shape, dtype=types[0].dtype)


def imported(name: str, nodes: Sequence[Line], **inputs: str) -> Model:
    """A program as a model; its result is the last line's."""
    expect_handlers(name, TABLE, ((node.name, f"line {node.result}") for node in nodes))

    def function(parameters: Any, *values: Any) -> Any:
        walk, scope = ToyWalk(name), dict(zip(inputs, values, strict=True))
        walk.nodes(nodes, scope)
        walk.finish()
        return scope[nodes[-1].result]

    return Model(
        name=name, function=function, parameters={}, inputs={each: rlx.spec(text) for each, text in inputs.items()}
    )


class ToyProgram(WalkedProgram):
    """A program with host steps."""

    def reads(self, node: Line) -> tuple[str, ...]:
        return node.operands

    def makes(self, node: Line) -> tuple[str, ...]:
        return (node.result,)

    def is_known(self, value: Any) -> bool:
        return not isinstance(value, Value)

    def is_computed(self, value: Any) -> bool:
        return isinstance(value, Value)

    def outgoing(self, value: Any) -> Any:
        return value

    def incoming(self, key: Any, value: Any) -> Any:
        return value

    def run(self, nodes: Any, parameters: Any, inputs: Any, values: Any, computed: Any) -> Any:
        scope = {**values, **inputs}
        ToyWalk(self.name, computed).nodes(nodes, scope)
        return scope

    def parameters_of(self, parameters: Any, keys: Any) -> Any:
        return parameters

    def assembled(self) -> Callable[[list[Any]], Any]:
        return tuple


def partitioned(name: str, nodes: Sequence[Line], results: Sequence[str], **inputs: str) -> Model:
    """A program with host steps as a model."""
    specs = {each: rlx.spec(text) for each, text in inputs.items()}
    walk = ToyWalk(name)
    scope: dict[str, Any] = {}

    def check(*values: Any) -> Any:
        scope.update(zip(inputs, values, strict=True))
        walk.nodes(nodes, scope)
        return [scope[each] for each in results]

    rlx.eval_shape(check, *specs.values())
    walked = ToyProgram(name, nodes, specs, results, scope, walk.steps)
    return Model(
        name=name, function=untraceable(walked), parameters={}, inputs=specs, compiler=Partition(walked).compile
    )
