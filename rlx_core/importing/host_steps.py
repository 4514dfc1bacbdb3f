"""Steps on the host, whose results have data-dependent sizes, and compiled functions that have such steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from rlx_core.errors import Fact, ShapeError, UnsupportedError
from rlx_core.functions.model import argument_names
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.report import CompilationReport
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import bind_arguments


@frozen(eq=False)
class HostStep:
    """A function of NumPy arrays that runs between two programs.

    Attributes:
        node: The node to which it belongs, as named in errors and reports.
        key: The key of its results.
        operands: Keys of its operands; `None` for an omitted one.
        types: Types of its results: one of their sizes is a new symbol.
        function: A function of arrays, and of `None` for omitted operands.
    """

    node: str
    key: Hashable
    operands: tuple[Hashable, ...]
    types: tuple[TensorType, ...]
    function: Callable[..., tuple[np.ndarray, ...]]

    def run(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Return its results.

        Raises:
            ShapeError: The operands do not fit; sizes with symbols are compared only here.
        """
        try:
            return self.function(*(None if each is None else np.asarray(each) for each in arrays))
        except (ValueError, IndexError, TypeError, OverflowError) as error:
            shapes = ", ".join("nothing" if each is None else str(list(np.shape(each))) for each in arrays)
            raise ShapeError(f"{self.node}: its operands do not fit ({error})", Fact("operands", shapes)) from error


@frozen(eq=False)
class ProgramPart:
    """A program, with the keys of the values that it reads and computes.

    Attributes:
        reads: Keys of its arguments.
        makes: Keys of its results.
        program: The compiled program.
    """

    reads: tuple[Hashable, ...]
    makes: tuple[Hashable, ...]
    program: CompiledFunction[..., Any]


@frozen(eq=False, repr=False)
class PartitionReport:
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
        lines = [f"{self.name}: {programs} programs, and {steps} steps on the host, which determine sizes"]
        lines += [f"  on the host: {each}" if isinstance(each, str) else str(each) for each in self.stages]
        return "\n".join(lines)

    __repr__ = __str__


class PartitionedFunction(Bundled):
    """A model that was compiled in parts; call it with its inputs, in order or by name.

    Attributes:
        name: The model.
        stages: Parts and steps in the order in which they run.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        results: Sequence[Hashable],
        stages: Sequence[ProgramPart | HostStep],
        known: Mapping[Hashable, Any],
        assemble: Callable[[list[Any]], Any],
    ) -> None:
        """`inputs` are keys too; `known` has operands and results that no part computes; `assemble` returns the result of a call
        from the results.
        """
        self.name, self.stages = name, tuple(stages)
        self._inputs, self._results, self._known = tuple(inputs), tuple(results), dict(known)
        self._assemble, self._arguments = assemble, argument_names(inputs)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != len(self._inputs):
            args = tuple(bind_arguments(signature_of(self.name, self._arguments), args, named).values())
        values: dict[Hashable, Any] = {**self._known, **dict(zip(self._inputs, args, strict=True))}
        computed: dict[Hashable, tuple[Any, ...]] = {}
        for stage in self.stages:
            if isinstance(stage, HostStep):
                computed[stage.key] = stage.run(*(None if key is None else values[key] for key in stage.operands))
            else:
                operands = (computed[key] if key in computed else values[key] for key in stage.reads)
                values |= dict(zip(stage.makes, stage.program(*operands), strict=True))
        return self._assemble([values[key] for key in self._results])

    @property
    def report(self) -> PartitionReport:
        """The reports of the compiled parts, and the steps on the host."""
        stages = (each.node if isinstance(each, HostStep) else each.program.report for each in self.stages)
        return PartitionReport(self.name, tuple(stages))

    def bundle(self) -> Bundle:
        """Refuse: a file holds one program.

        Raises:
            UnsupportedError: Always.
        """
        self.refuse("a file holds one program")

    def refuse(self, reason: str) -> NoReturn:
        """Report that this is more than one program.

        Raises:
            UnsupportedError: Always.
        """
        steps = (each.node for each in self.stages if isinstance(each, HostStep))
        raise UnsupportedError(
            f"{self.name}: it runs in parts, because it has data-dependent sizes, and {reason}",
            *(Fact("on the host", node) for node in steps),
            hint="keep the model in its original format, or divide it before these nodes",
        )

    def __repr__(self) -> str:
        return f"<compiled {self.name}({', '.join(self._arguments)}) in {len(self.stages)} stages>"


def signature_of(name: str, arguments: Iterable[str]) -> Callable[..., None]:
    """Return a function with a model's name and arguments, for errors about the arguments of a call."""

    def run(*args: Any) -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(run)["__signature__"] = inspect.Signature([inspect.Parameter(each, kind) for each in arguments])
    run.__name__ = name if name.isidentifier() else "model"
    return run
