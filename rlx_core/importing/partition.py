"""Programs with data-dependent sizes: parts that are compiled, and steps on the host between them.

The index of a node's part is the maximum number of steps on a path to it, so the number of parts is minimal. A part takes all
inputs and all results of steps: every size in it is one of theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import optree

from rlx_core.errors import Fact, UnsupportedError
from rlx_core.functions.model import Model, argument_names
from rlx_core.importing.host_steps import HostStep, PartitionedFunction, ProgramPart
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.types import TensorType


class WalkedProgram(ABC):
    """A program of another system after a walk, with its steps on the host. Its values have hashable keys.

    Attributes:
        name: Its name.
        nodes: Its nodes, in order.
        inputs: Key of an input, which is its name → a pytree of types.
        results: Keys of its results.
        values: Key → value in the walk.
        steps: First key of a node's results → its step.
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Any],
        inputs: Mapping[str, Any],
        results: Sequence[Any],
        values: Mapping[Any, Any],
        steps: Mapping[Any, HostStep],
    ) -> None:
        self.name, self.nodes, self.inputs, self.results = name, nodes, inputs, tuple(results)
        self.values, self.steps = values, steps

    @abstractmethod
    def reads(self, node: Any) -> Iterable[Hashable]:
        """Return the keys of the values that a node uses, in programs inside of it too; those of parameters may be left out."""

    @abstractmethod
    def makes(self, node: Any) -> Sequence[Hashable]:
        """Return the keys of a node's results; the first is the key of its step on the host, if it has one."""

    @abstractmethod
    def is_known(self, value: Any) -> bool:
        """Return whether a value depends neither on inputs nor on sizes."""

    @abstractmethod
    def is_computed(self, value: Any) -> bool:
        """Return whether a value has traced values in it; others are known, or sizes."""

    @abstractmethod
    def outgoing(self, value: Any) -> Any:
        """Return a value as a result of a part: a pytree of traced values."""

    @abstractmethod
    def incoming(self, key: Hashable, value: Any) -> Any:
        """Return the value of the walk for the result of an earlier part."""

    @abstractmethod
    def run(
        self,
        nodes: Sequence[Any],
        parameters: Any,
        inputs: Mapping[str, Any],
        values: Mapping[Any, Any],
        computed: Mapping[Any, tuple[Any, ...]],
    ) -> Mapping[Any, Any]:
        """Walk some of the nodes.

        Args:
            nodes: The nodes.
            parameters: The parameters of the model.
            inputs: Its inputs.
            values: Values of earlier parts, and the known values and sizes that the nodes use.
            computed: Results of steps by their keys.

        Returns:
            All values.
        """

    @abstractmethod
    def parameters_of(self, parameters: Any, keys: set[Hashable]) -> Any:
        """Return the parameters that a part needs which uses the values of some keys."""

    @abstractmethod
    def assembled(self) -> Callable[[list[Any]], Any]:
        """Return a function from the results to the result of a call."""


def untraceable(program: WalkedProgram) -> Callable[..., Any]:
    """Return the function of a model in parts, for transformations and files, which take one program: it raises an error."""
    name, nodes = program.name, [step.node for step in program.steps.values()]

    def function(parameters: Any, *values: Any) -> Any:
        raise UnsupportedError(
            f"{name}: it is more than one program, because it has data-dependent sizes",
            *(Fact("on the host", node) for node in nodes),
            hint="model(...) and model.compile() run it; derivatives and batches end at a data-dependent size",
        )

    return function


class Partition:
    """The assignment of nodes to parts, and the values passed between parts."""

    def __init__(self, program: WalkedProgram) -> None:
        self.program = program
        self.parts: dict[int, list[Any]] = defaultdict(list)
        self.steps_after: dict[int, list[HostStep]] = defaultdict(list)
        self.level: dict[Hashable, int] = {}
        self.first_use: dict[Hashable, int] = {}
        required = set(program.results)
        for node in program.nodes:
            uses = self._uses(node)
            level = max((self.level.get(key, 0) for key in uses), default=0)
            makes = program.makes(node)
            step = program.steps.get(makes[0]) if makes else None
            if step is not None:
                ready = max(self.level.get(key, 0) for key in step.operands)
                self.steps_after[ready].append(step)
                self.first_use[step.key] = ready + 1
                required |= set(step.operands)
                level = max(level, ready + 1)
            self.parts[level].append(node)
            self.level |= dict.fromkeys(makes, level)
            required |= {key for key in uses if self.level.get(key, 0) < level}
        self.passed = [
            key
            for key in self.level
            if key in required and key not in program.inputs and not program.is_known(program.values[key])
        ]

    def compile(self, parameters: Any, **options: Any) -> PartitionedFunction:
        """Return every part compiled, in the order in which they and the steps between them run."""
        program, stages = self.program, []  # type: WalkedProgram, list[ProgramPart | HostStep]
        for level in range(max((*self.parts, *self.steps_after)) + 1):
            makes = [key for key in self.passed if self.level[key] == level]
            if makes:
                stages.append(self._part(level, makes, parameters, options))
            stages += self.steps_after[level]
        operands = {key for step in program.steps.values() for key in step.operands if key is not None}
        outside = {key for key in {*program.results, *operands} if key not in self.passed and key not in program.inputs}
        known = {key: program.outgoing(program.values[key]) for key in outside if program.is_known(program.values[key])}
        known |= {key: parameters[key] for key in outside - known.keys()}
        return PartitionedFunction(
            program.name, tuple(program.inputs), program.results, stages, known, program.assembled()
        )

    def _uses(self, node: Any) -> set[Hashable]:
        return {key for key in self.program.reads(node) if key in self.program.values}

    def _part(self, level: int, makes: list[Hashable], parameters: Any, options: Mapping[str, Any]) -> ProgramPart:
        program, nodes = self.program, self.parts[level]
        used = set[Hashable]().union(*map(self._uses, nodes))
        earlier = {
            key: optree.tree_map(_type, program.outgoing(program.values[key]))
            for key in self.passed
            if key in used and self.level[key] < level and program.is_computed(program.values[key])
        }
        steps = [step for step in program.steps.values() if self.first_use[step.key] <= level]
        specs = [*program.inputs.values(), *earlier.values(), *(step.types for step in steps)]
        names = argument_names([*map(str, (*program.inputs, *earlier)), *(f"{step.key}_results" for step in steps)])
        known = {key: program.values[key] for key in used if not program.is_computed(program.values[key])}

        def function(parameters: Any, *arguments: Any) -> Any:
            inputs = dict(zip(program.inputs, arguments, strict=False))
            operands = dict(zip(earlier, arguments[len(inputs) :], strict=False))
            computed = {step.key: each for step, each in zip(steps, arguments[len(specs) - len(steps) :], strict=True)}
            values = known | {key: program.incoming(key, each) for key, each in operands.items()}
            results = program.run(nodes, parameters, inputs, values, computed)
            return tuple(program.outgoing(results[key]) for key in makes)

        model = Model(
            name=f"{program.name}_part_{level}",
            function=function,
            parameters=program.parameters_of(parameters, used),
            inputs=dict(zip(names, specs, strict=True)),
        )
        reads = (*program.inputs, *earlier, *(step.key for step in steps))
        return ProgramPart(reads, tuple(makes), model.compile(**options))


def _type(value: Any) -> TensorType:
    return TensorType(dtype(value.dtype), tuple(value.shape))
