"""A model with data-dependent shapes: programs, and steps on the host between them.

The index of a node's part is the maximum number of steps on a path to it, so the number of parts is minimal. A part takes all
inputs and all results of steps: every size in it is one of theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import optree
from attrs import field

import rlx_core as rlx
from rlx_core.errors import Fact, UnsupportedError
from rlx_core.functions.model import Model, argument_names
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.system.records import frozen
from rlx_onnx.parted import Part, PartedFunction
from rlx_onnx.reading.inputs import ModelInput
from rlx_onnx.reading.structure import nested_graphs
from rlx_onnx.walking.host import HostStep, step_key
from rlx_onnx.walking.values import Coded, is_known, traced
from rlx_onnx.walking.walk import ModelWalk, leaves

__all__ = ["Walked", "parted", "result_of"]


@frozen(eq=False)
class Walked:
    """A model that was walked to its end.

    Attributes:
        name: Its name.
        nodes: The nodes of its graph.
        results: Names of its results.
        inputs: Its inputs.
        parameters: Its parameters by name.
        scope: Every value by its name.
        steps: First result of a node → its step on the host.
        outside: Reads the bytes of tensors in other files.
    """

    name: str
    nodes: Sequence[Any] = field(repr=False)
    results: tuple[str, ...]
    inputs: tuple[ModelInput, ...]
    parameters: Mapping[str, Any] = field(repr=False)
    scope: Mapping[str, Any] = field(repr=False)
    steps: Mapping[str, HostStep]
    outside: Callable[[Any], Any] | None = None


def parted(walked: Walked) -> Model:
    """A model that runs in parts."""
    plan = _PartPlan(walked)
    names = argument_names(each.name for each in walked.inputs)
    return Model(
        name=walked.name,
        function=_untraceable(walked),
        parameters=dict(walked.parameters),
        inputs={name: each.spec for name, each in zip(names, walked.inputs, strict=True)},
        compiler=plan.compiled,
    )


def _untraceable(walked: Walked) -> Callable[..., Any]:
    def function(parameters: Any, *values: Any) -> Any:
        raise UnsupportedError(
            f"{walked.name}: it is more than one program, because sizes in it are found when it runs",
            *(Fact("on the host", step.node) for step in walked.steps.values()),
            hint="model(...) and model.compile() run it; derivatives and batches end where a size is found",
        )

    return function


class _PartPlan:
    """The assignment of nodes to parts, and the values passed between parts."""

    def __init__(self, walked: Walked) -> None:
        self.walked = walked
        self.parts: dict[int, list[Any]] = defaultdict(list)
        self.after: dict[int, list[HostStep]] = defaultdict(list)
        self.level: dict[str, int] = {}
        self.found: dict[str, int] = {}
        wanted = set(walked.results)
        for node in walked.nodes:
            uses = self.uses(node)
            level = max((self.level.get(name, 0) for name in uses), default=0)
            step = walked.steps.get(step_key(node))
            if step is not None:
                ready = max(self.level.get(name, 0) for name in step.operands)
                self.after[ready].append(step)
                self.found[step.key] = ready + 1
                wanted |= set(step.operands)
                level = max(level, ready + 1)
            self.parts[level].append(node)
            self.level |= dict.fromkeys(filter(None, node.output), level)
            wanted |= {name for name in uses if self.level.get(name, 0) < level}
        inputs = {each.name for each in walked.inputs}
        self.handed = [
            name for name in self.level if name in wanted and name not in inputs and not is_known(walked.scope[name])
        ]

    def uses(self, node: Any) -> set[str]:
        """Names of the graph's values that a node uses, in graphs that are part of it too."""
        return {name for name in _names(node) if name in self.walked.scope}

    def compiled(self, parameters: Mapping[str, Any], **how: Any) -> PartedFunction:
        """Every part compiled, in the order in which they and the steps between them run."""
        walked, stages = self.walked, []  # type: Walked, list[Part | HostStep]
        last = max((*self.parts, *self.after))
        for level in range(last + 1):
            makes = [name for name in self.handed if self.level[name] == level]
            if makes:
                stages.append(self._part(level, makes, parameters, how))
            stages += self.after[level]
        names = {*walked.results, *(name for step in walked.steps.values() for name in step.operands if name)}
        known = {name: result_of(walked.scope[name]) for name in names if is_known(walked.scope[name])}
        known |= {name: parameters[name] for name in names & parameters.keys()}
        return PartedFunction(walked.name, tuple(each.name for each in walked.inputs), walked.results, stages, known)

    def _part(self, level: int, makes: list[str], parameters: Mapping[str, Any], how: Mapping[str, Any]) -> Part:
        walked, nodes = self.walked, self.parts[level]
        used = set[str]().union(*map(self.uses, nodes))
        earlier = [
            _handed_on(name, walked.scope[name])
            for name in self.handed
            if name in used and self.level[name] < level and leaves(walked.scope[name])
        ]
        steps = [step for step in walked.steps.values() if self.found[step.key] <= level]
        takes = (*walked.inputs, *earlier)
        reads = [*(each.name for each in takes), *(step.key for step in steps)]
        names = argument_names([*(each.name for each in takes), *(f"{step.key}_found" for step in steps)])
        specs = [*(each.spec for each in takes), *(step.types for step in steps)]
        known = {name: value for name, value in walked.scope.items() if name in used and not leaves(value)}
        outside = walked.outside

        def function(given: Mapping[str, Any], *values: Any) -> Any:
            found = {step.key: value for step, value in zip(steps, values[len(takes) :], strict=True)}
            walk = ModelWalk(outside, given=found)
            scope = known | dict(given)
            scope |= {each.name: each.entered(value) for each, value in zip(takes, values, strict=False)}
            walk.nodes(nodes, scope)
            return tuple(result_of(scope[name]) for name in makes)

        model = Model(
            name=f"{walked.name}_part_{level}",
            function=function,
            parameters={name: value for name, value in parameters.items() if name in used},
            inputs=dict(zip(names, specs, strict=True)),
        )
        return Part(tuple(reads), tuple(makes), model.compile(**how))


def _names(node: Any) -> Iterable[str]:
    yield from node.input
    for graph in nested_graphs(node):
        yield from (each.name for each in graph.output)
        for inner in graph.node:
            yield from _names(inner)


def _handed_on(name: str, value: Any) -> ModelInput:
    """A value of an earlier part as an input of a later one."""
    element = value.element if isinstance(value, Coded) else 0
    inner = value.value if isinstance(value, Coded) else value
    return ModelInput(name, optree.tree_map(_type, inner), element)


def _type(value: Any) -> rlx.TensorType:
    return rlx.TensorType(dtype_of(value.dtype), tuple(value.shape))


def result_of(value: Any) -> Any:
    """A value as a result of a program."""
    if isinstance(value, list):
        return [result_of(each) for each in value]
    if isinstance(value, dict):
        return {key: result_of(each) for key, each in value.items()}
    return traced(value.value if isinstance(value, Coded) else value)
