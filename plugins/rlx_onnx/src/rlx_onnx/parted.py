"""A compiled model that runs in parts: programs, and steps on the host between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from rlx_core.errors import Fact, UnsupportedError
from rlx_core.functions.model import argument_names
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.pipeline.report import CompilationReport
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import bind_arguments
from rlx_onnx.walking.host import HostStep

__all__ = ["Part", "PartedFunction", "PartedReport", "called"]


@frozen(eq=False)
class Part:
    """A program, with the names of the values that it reads and adds.

    Attributes:
        reads: Names of its arguments.
        makes: Names of its results.
        program: The compiled program.
    """

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    program: CompiledFunction[..., Any]


@frozen(eq=False, repr=False)
class PartedReport:
    """The reports of the compiled parts, and the steps on the host between them.

    Attributes:
        name: The model.
        stages: A part's report, or the node of a step on the host, in the order in which they run.
    """

    name: str
    stages: tuple[CompilationReport | str, ...]

    def __str__(self) -> str:
        programs = sum(isinstance(each, CompilationReport) for each in self.stages)
        steps = len(self.stages) - programs
        lines = [f"{self.name}: {programs} programs, and {steps} steps on the host, which find sizes"]
        lines += [f"  on the host: {each}" if isinstance(each, str) else str(each) for each in self.stages]
        return "\n".join(lines)

    __repr__ = __str__


class PartedFunction(Bundled):
    """A model that was compiled in parts; call it with its inputs, in order or by name.

    Attributes:
        name: The model.
        stages: Parts and steps in the order in which they run.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        results: Sequence[str],
        stages: Sequence[Part | HostStep],
        known: Mapping[str, Any],
    ) -> None:
        self.name, self.stages = name, tuple(stages)
        self._inputs, self._results, self._known = tuple(inputs), tuple(results), dict(known)
        self._arguments = argument_names(inputs)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != len(self._inputs):
            args = tuple(bind_arguments(called(self.name, self._arguments), args, named).values())
        values = self._known | dict(zip(self._inputs, args, strict=True))
        found: dict[str, tuple[Any, ...]] = {}
        for stage in self.stages:
            if isinstance(stage, HostStep):
                found[stage.key] = stage.run(*(values[name] if name else None for name in stage.operands))
            else:
                given = (found[name] if name in found else values[name] for name in stage.reads)
                values |= dict(zip(stage.makes, stage.program(*given), strict=True))
        results = {name: values[name] for name in self._results}
        return results if len(results) != 1 else next(iter(results.values()))

    @property
    def report(self) -> PartedReport:
        """The reports of the compiled parts, and the steps on the host."""
        stages = (each.node if isinstance(each, HostStep) else each.program.report for each in self.stages)
        return PartedReport(self.name, tuple(stages))

    def bundle(self) -> Bundle:
        """Nothing: a file holds one program.

        Raises:
            UnsupportedError: Always.
        """
        self.refuse("a file holds one program")

    def refuse(self, why: str) -> NoReturn:
        """Say that this is more than one program.

        Raises:
            UnsupportedError: Always.
        """
        steps = (each.node for each in self.stages if isinstance(each, HostStep))
        raise UnsupportedError(
            f"{self.name}: it runs in parts, because sizes in it are found when it runs, and {why}",
            *(Fact("on the host", node) for node in steps),
            hint="keep the ONNX file, or cut the model before these nodes",
        )

    def __repr__(self) -> str:
        return f"<compiled {self.name}({', '.join(self._arguments)}) in {len(self.stages)} stages>"


def called(name: str, arguments: Iterable[str]) -> Callable[..., None]:
    """Return a function with a model's name and the arguments of a call to it, for errors about a call's arguments."""

    def run(*args: Any) -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(run)["__signature__"] = inspect.Signature([inspect.Parameter(each, kind) for each in arguments])
    run.__name__ = name if name.isidentifier() else "model"
    return run
