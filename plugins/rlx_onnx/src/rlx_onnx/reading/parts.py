"""A model with data-dependent shapes, as `rlx_core.importing.partition` divides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlx_core.functions.model import Model, argument_names
from rlx_core.importing.partition import Partition, WalkedProgram, untraceable
from rlx_onnx.reading.inputs import ModelInput
from rlx_onnx.reading.structure import nested_graphs
from rlx_onnx.walking.values import Coded, is_known, traced
from rlx_onnx.walking.walk import ModelWalk, leaves


class WalkedModel(WalkedProgram):
    """A model that was walked to its end; its values have names."""

    def __init__(
        self,
        name: str,
        graph: Any,
        inputs: Sequence[ModelInput],
        values: Mapping[str, Any],
        walk: ModelWalk,
    ) -> None:
        results = list(dict.fromkeys(each.name for each in graph.output))
        super().__init__(name, graph.node, {each.name: each.spec for each in inputs}, results, values, walk.steps)
        self._inputs, self._outside = inputs, walk.outside

    def reads(self, node: Any) -> Iterable[str]:
        yield from node.input
        for graph in nested_graphs(node):
            yield from (each.name for each in graph.output)
            for inner in graph.node:
                yield from self.reads(inner)

    def makes(self, node: Any) -> Sequence[str]:
        return [name for name in node.output if name]

    def is_known(self, value: Any) -> bool:
        return is_known(value)

    def is_computed(self, value: Any) -> bool:
        return bool(leaves(value))

    def outgoing(self, value: Any) -> Any:
        return result_of(value)

    def incoming(self, key: Any, value: Any) -> Any:
        like = self.values[key]
        return ModelInput(key, None, like.element if isinstance(like, Coded) else 0).entered(value)

    def run(
        self,
        nodes: Sequence[Any],
        parameters: Any,
        inputs: Mapping[str, Any],
        values: Mapping[str, Any],
        computed: Mapping[str, tuple[Any, ...]],
    ) -> Mapping[str, Any]:
        scope = {**values, **parameters, **{each.name: each.entered(inputs[each.name]) for each in self._inputs}}
        ModelWalk(self._outside, computed=computed).nodes(nodes, scope)
        return scope

    def parameters_of(self, parameters: Mapping[str, Any], keys: set[Any]) -> dict[str, Any]:
        return {name: value for name, value in parameters.items() if name in keys}

    def assembled(self) -> Callable[[list[Any]], Any]:
        names = self.results
        return lambda results: results_of(dict(zip(names, results, strict=True)))


def partitioned(walked: WalkedModel, parameters: Mapping[str, Any]) -> Model:
    """Return a model that runs in parts."""
    return Model(
        name=walked.name,
        function=untraceable(walked),
        parameters=dict(parameters),
        inputs=dict(zip(argument_names(walked.inputs), walked.inputs.values(), strict=True)),
        compiler=Partition(walked).compile,
    )


def results_of(results: dict[str, Any]) -> Any:
    """Return the result of a call: a dictionary, unless there is one result."""
    return results if len(results) != 1 else next(iter(results.values()))


def result_of(value: Any) -> Any:
    """A value as a result of a program."""
    if isinstance(value, list):
        return [result_of(each) for each in value]
    if isinstance(value, dict):
        return {key: result_of(each) for key, each in value.items()}
    return traced(value.value if isinstance(value, Coded) else value)
