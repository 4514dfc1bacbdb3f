"""A function that runs from a package: with the programs that are in it, or with its own program compiled where that can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from rlx_core.errors import BindingError, Fact, FormatError, MissingInputError, RlxError
from rlx_core.ir.array import wrapped
from rlx_core.ir.bind import infer_binding
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Program, Unpack
from rlx_core.runtime.arrays import Declared, checked
from rlx_core.runtime.signature import Signature
from rlx_core.runtime.straight import RUNS_BEFORE_ENTRY, Door, StraightCall
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import Lock
from rlx_core.system.logs import log_event
from rlx_core.system.records import define, frozen

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction

_NO_CODE: Final = "none of its code runs here"


@frozen
class PackageReport:
    """The parts of a package that are used here.

    Attributes:
        name: The function's.
        code: The code that runs, as users write it: `cpu:avx2`; `None` if none of it runs here.
        summary: The machines of that code.
        sizes: The sizes that there are programs for.
        reasons: Reasons why code was skipped, by its name.
        compiled: The reason why the package's own program was compiled here; empty if it was not.
    """

    name: str
    code: str | None
    summary: str
    sizes: tuple[DimBinding, ...]
    reasons: Mapping[str, str]
    compiled: str = ""

    def __str__(self) -> str:
        lines = [f"{self.name} from a package, " + (f"{self.code}: {self.summary}" if self.code else "compiled here")]
        lines += [f"  {code} {reason}" for code, reason in self.reasons.items()]
        if any(binding.sizes for binding in self.sizes):
            lines.append(f"  programs for {', '.join(map(str, self.sizes))}")
        if self.compiled:
            lines.append(f"  compiled here: {self.compiled}")
        return "\n".join(lines)


@frozen(eq=False)
class Contents:
    """The parts of a package that a function uses.

    Attributes:
        report: The record of the parts in use.
        inputs: In order; sizes may be symbols.
        outputs: In order, as the inputs.
        unpack: Makes the program of a number, for the sizes of that number; `None` if no code runs here.
        bundle: Reads the program that the code was made from; raises FormatError where the package has none.
        compile: Compiles that program; raises if it cannot be compiled, or if compilation is disabled.
    """

    report: PackageReport
    inputs: Sequence[tuple[str, TensorType]]
    outputs: Sequence[tuple[str, TensorType]]
    unpack: Unpack | None
    bundle: Callable[[], Bundle]
    compile: Callable[[], CompiledFunction[..., Any]]


@define(eq=False)
class Unpacked:
    """A program, the number of its checked runs before the entry was created, and the entry."""

    program: Program
    runs: int = 0
    entry: Callable[..., Any] | None = None


class PackagedFunction(Bundled):
    """A function that runs from a package; call it like the packaged function. See `rlx.package`.

    Calls are safe from several threads. `rlx.save` writes its program to a `.rlx` file, if the package has one.

    Args:
        contents: The package's.
        signature: The structure of its arguments and results.
    """

    def __init__(self, contents: Contents, signature: Signature) -> None:
        self._contents, self._signature = contents, signature
        self._entries = tuple(Declared(name, type) for name, type in contents.inputs)
        self._is_open = any(entry.dims is None for entry in self._entries)
        self._numbers = {binding: number for number, binding in enumerate(contents.report.sizes)}
        self._programs: dict[int, Unpacked] = {}
        self._fallback: list[CompiledFunction[..., Any]] = []
        self._is_rebound = False
        self._why = ""
        self._results = signature.results
        self._door = Door()
        self._straight = StraightCall.of(self._door, signature.wanted, signature.leaves, signature.results)
        self._lock = Lock("a package's programs")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            result = self._straight.call(args)
            if result is not NotImplemented:
                return result
        return self._checked(args, kwargs)

    @property
    def report(self) -> PackageReport:
        """The parts of the package that are used here, and the program that was compiled instead, if any."""
        report = self._contents.report
        return PackageReport(report.name, report.code, report.summary, report.sizes, report.reasons, self._why)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The inputs in calling order."""
        return dict(self._contents.inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """The outputs in order."""
        return dict(self._contents.outputs)

    @property
    def compiled(self) -> CompiledFunction[..., Any]:
        """The package's own program, compiled here.

        Raises:
            FormatError: The package has none.
            DeviceError: It cannot be compiled here.
        """
        return self._compiled_for(_NO_CODE if self._contents.unpack is None else "it was asked for")

    def bundle(self) -> Bundle:
        """The program with its weights, as `.rlx` files hold it.

        Raises:
            FormatError: The package has none.
        """
        return self._fallback[0].bundle() if self._is_rebound else self._contents.bundle()

    def rebind(self, **parameters: Any) -> None:
        """Bind other arrays to the function's parameters. The package's weights lie in it as its code reads them, so from now on
        the package's own program runs, compiled here.

        Raises:
            FormatError, DeviceError: As `compiled`. Other errors are those of `CompiledFunction.rebind`.
        """
        self._compiled_for("parameters were bound anew").rebind(**parameters)
        with self._lock:
            self._is_rebound = True
            self._door.entry = None

    def __reduce__(self) -> NoReturn:
        raise FormatError(
            f"pickle: {self!r} is machine code of a file, and does not travel", hint="send the path of the package"
        )

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {type}" for name, type in self._contents.inputs)
        return f"<packaged {self._contents.report.name}({types})>"

    # --------------------------------------------------------------------------------------- details

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name, unpack = self._contents.report.name, self._contents.unpack
        inputs = self._signature.inputs(name, args, kwargs)
        if self._is_rebound or unpack is None:
            return self._results.unflatten(self._compiled_for(_NO_CODE).executable.run_slots(inputs))
        return self._results.unflatten([wrapped(each) for each in self._run(inputs, unpack)])

    @in_standard_modes
    def _run(self, inputs: Sequence[Any], unpack: Unpack) -> Sequence[Any]:
        if len(inputs) != len(self._entries):
            raise MissingInputError(f"run: takes {len(self._entries)} inputs, not {len(inputs)}")
        arrays = [checked(entry, array) for entry, array in zip(self._entries, inputs, strict=True)]
        binding = self._binding(arrays)
        number = self._numbers.get(binding)
        if number is None:
            return self._compiled_for(f"there is no program for {binding}", binding).executable.run_slots(arrays)
        unpacked = self._programs.get(number) or self._unpacked(number, unpack)
        results = NotImplemented if unpacked.entry is None else unpacked.entry(*arrays)
        if results is NotImplemented:
            results = unpacked.program.run(arrays)
        self._open(unpacked)
        return results

    def _binding(self, arrays: Sequence[np.ndarray]) -> DimBinding:
        if not self._is_open:
            return self._contents.report.sizes[0]
        names = [name for name, _ in self._contents.inputs]
        return infer_binding(dict(self._contents.inputs), dict(zip(names, arrays, strict=True)))

    def _unpacked(self, number: int, unpack: Unpack) -> Unpacked:
        with self._lock:
            if number not in self._programs:
                binding = self._contents.report.sizes[number]
                inputs, outputs = (
                    tuple(type.bind(binding) for _, type in row)
                    for row in (self._contents.inputs, self._contents.outputs)
                )
                self._programs[number] = Unpacked(unpack(number, inputs, outputs))
            return self._programs[number]

    def _open(self, unpacked: Unpacked) -> None:
        """Create the entry of a program that has just run, for the fast path; see `Executable`."""
        if unpacked.runs >= RUNS_BEFORE_ENTRY and unpacked.entry is self._door.entry:
            return
        with self._lock:
            unpacked.runs += 1
            if unpacked.runs == RUNS_BEFORE_ENTRY:
                unpacked.entry = unpacked.program.entry(self._contents.report.name)
            if not self._is_rebound:
                self._door.entry = unpacked.entry

    def _compiled_for(self, why: str, binding: DimBinding | None = None) -> CompiledFunction[..., Any]:
        with self._lock:
            if not self._fallback:
                try:
                    self._fallback.append(self._contents.compile())
                except RlxError as error:
                    raise self._lacking(binding, error) from error
                self._why = why
                log_event("package-compile", {"program": self._contents.report.name, "because": why})
            return self._fallback[0]

    def _lacking(self, binding: DimBinding | None, error: RlxError) -> RlxError:
        """Return the error for sizes without a program, where none can be compiled."""
        if binding is None:
            return error
        return BindingError(
            f"{self._contents.report.name}: the package has no program for {binding}, and none can be compiled here",
            Fact("programs", ", ".join(map(str, self._contents.report.sizes))),
            Fact("because", error.message),
            hint="pass sizes that it has, or package it with sizes=[…] for these too",
        )
