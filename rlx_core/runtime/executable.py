"""A compiled program with its parameters: named arrays in, arrays out, everything checked before a byte is written.

An executable of a program with symbolic sizes keeps one optimised template and specialises it for each binding it meets
(`bound.py`). Parameters are bound once and shared by all of its programs, and by all clones.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from rlx_core import ir, pipeline
from rlx_core.errors import Fact, FormatError, MissingInputError, RlxError, UnknownNameError, nearest
from rlx_core.errors.contained import reraise
from rlx_core.errors.lacks import in_our_words
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import HostArray, donate_together, donation_text, is_immutable, wrapped
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Graph, leaf_name
from rlx_core.ir.lir import Lir
from rlx_core.ir.placed import Placed
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Outputs, Params
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.report import CompilationReport
from rlx_core.runtime.arrays import Bytes, Declared, checked, flat_from_bytes, from_bytes, reshaped, separated
from rlx_core.runtime.bound import BoundProgram, BoundPrograms
from rlx_core.runtime.straight import Door
from rlx_core.system.context import watchers
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import Lock


class Executable:
    """A program ready to run. Runs are safe from several threads; clones share weights and programs, not handles.

    >>> executable.run({"x": x})                             # doctest: +SKIP
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        shared: BoundPrograms | None = None,
        *,
        outputs: Outputs | None = None,
        traced: Graph | None = None,
    ) -> None:
        self._compiled = compiled
        self._traced = traced  # the program before all passes, whose nodes are the ones that the user wrote
        self._memory = compiled.target.device
        self._wanted = None if outputs == "host" and self._memory is None else outputs
        self._shared = shared or BoundPrograms.of(compiled)
        self._handles: dict[str, np.ndarray] = {}
        self._handle_lock = Lock("handles")
        self._inputs, self._params = self._shared.inputs, self._shared.params
        self._entries = tuple(self._inputs.values())
        self._successors = dict(_successors(compiled.lir))

    # ------------------------------------------------------------------------------- properties

    @property
    def report(self) -> CompilationReport:
        """The compilation report: stages, passes, memory, the plugin of each op; for the sizes of the latest run."""
        latest = self._shared.latest
        return self._compiled.report if latest is None else self._compiled.report_for(latest.lir, latest.program)

    @property
    def entry_cell(self) -> Door:
        """The holder of the latest program's entry, for calls on the fast path."""
        return self._shared.entry_cell

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The inputs in calling order."""
        return {e.name: e.type for e in self._entries}

    @property
    def params(self) -> dict[str, TensorType]:
        """The parameters."""
        return {e.name: e.type for e in self._params.values()}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """The outputs in order."""
        return {e.name: e.type for e in self._compiled.lir.manifest.outputs}

    @property
    def lir(self) -> Lir:
        """The plan: with symbolic sizes, the template that is specialised for each binding."""
        return self._compiled.lir

    @property
    def compiled(self) -> CompiledProgram:
        """The compiled program that it runs."""
        return self._compiled

    def planned(self, binding: DimBinding) -> tuple[Lir, Params]:
        """Return the plan for one binding of the sizes, and the prepared parameters of its program.

        Raises:
            MissingInputError: A parameter was never bound.
            GuardError, BindingError: The sizes contradict the program's guards, or leave one open.
        """
        return self._shared.planned(binding)

    def emit(self, level: str, step: int | str | None = None) -> str:
        """Return the program as text at a level of its lowering: `mir`, `lir`, `loops`, then the target's own.

        With symbolic sizes, the levels below `lir` show the latest run.

        Args:
            level: The level; the error for an unknown one lists the available ones.
            step: The number of one step of the plan, or an op or a kernel whose steps are meant.

        Raises:
            UnknownNameError: The target has no such level, or the plan no such step.
            ConfigError: Sizes are still unknown.
        """
        from rlx_core.draw.emission import Planned, emit  # here, because programs are run more often than printed

        return emit(Planned(self._latest, self._compiled.backend, self._compiled.target), level, step)

    def __repr__(self) -> str:
        def listed(types: Mapping[str, TensorType]) -> str:
            return ", ".join(f"{n}: {t}" for n, t in types.items())

        name = self._compiled.report.name
        return f"<executable {name}({listed(self.inputs)}) -> ({listed(self.outputs)}) on {self._compiled.lir.target}>"

    def _repr_html_(self) -> str:
        return self.page(list(self.outputs))

    def page(self, outputs: Sequence[str], title: str = "") -> str:
        """Return the HTML of the program for notebooks, with names of its outputs or a title that only the caller knows."""
        from rlx_core.draw.pages import callable_html  # here, because programs are run more often than looked at

        results = dict(zip(outputs, self.outputs.values(), strict=True))
        groups = {"inputs": self.inputs, "parameters": self.params, "outputs": results}
        return callable_html(self.report, groups, outputs, title)

    def _repr_svg_(self) -> str:
        from rlx_core.draw.pages import program_svg  # here, because programs are run more often than looked at

        return program_svg(self.lir.graph, list(self.outputs))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The arrays that are bound to parameters now, by name."""
        return dict(self._shared.checked)

    # ------------------------------------------------------------------------------- parameters

    def set_param(self, name: str, array: Any) -> None:
        """Bind one parameter; the array is used where it lies, so it must not be changed afterwards.

        Raises:
            UnknownNameError, DtypeError, ShapeError: There is no such parameter, or it has another type.
        """
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Bind several parameters together: all of them, or on an error none. Clones have them too."""
        entries = {name: self._entry(name, self._params, "parameter") for name in arrays}
        values = {name: checked(entries[name], array, self._memory) for name, array in arrays.items()}
        self._shared.bind(values, frozenset(name for name, array in arrays.items() if is_immutable(array)))

    def set_param_typed(self, name: str, data: Bytes, of: DType | str) -> None:
        """Bind one parameter from little-endian bytes.

        Raises:
            LengthMismatchError: The number of bytes is not the type's.
        """
        self.set_params({name: from_bytes(self._entry(name, self._params, "parameter"), data, dtype(of))})

    # --------------------------------------------------------------------------------- running

    def run(self, inputs: Mapping[str, Any] | None = None, *, outputs: Outputs | None = None) -> tuple[Any, ...]:
        """The outputs, in order, for named inputs. A bound handle is the default for the input of its name.

        Args:
            inputs: NumPy arrays, or whatever converts to them without a copy; on a device's target also its own arrays.
            outputs: The location of results: on the "host" or the "device". By default as compiled, else on the
                device if an input lies there.

        Raises:
            MissingInputError: An input is not given, or a parameter was never bound.
            UnknownNameError: A name that is not an input.
            ShapeError, DtypeError: An array that is not of its input's type.
            GuardError, BindingError: Sizes that contradict one another or the program's guards.
            PlaceError: An array that lies on another device.
        """
        arrays = self._given(inputs or {})
        results = self.run_slots([arrays[n] for n in self._inputs], outputs=outputs)
        self._refresh_handles(results)
        return results

    def run_slots(self, arrays: Sequence[Any], *, outputs: Outputs | None = None) -> tuple[Any, ...]:
        """The outputs for inputs in manifest order; handles take no part."""
        entry = self._shared.entry_cell.entry
        if entry is not None and outputs is None and not self._shared.has_donations:
            result: tuple[Any, ...] = entry(*arrays)
            if result is not NotImplemented:
                return result
        return tuple(map(wrapped, self._run_checked(arrays, outputs or self._wanted)))

    @in_standard_modes
    def _run_checked(self, arrays: Sequence[Any], outputs: Outputs | None) -> tuple[Any, ...]:
        if len(arrays) != len(self._entries):
            raise MissingInputError(
                f"run: takes {len(self._entries)} inputs ({', '.join(self._inputs)}), not {len(arrays)}"
            )
        try:
            memory = self._memory
            ready = [checked(entry, array, memory) for entry, array in zip(self._entries, arrays, strict=True)]
            bound = self._shared.bound(ready)
            if self._shared.has_donations:
                self._take_donations(arrays, ready)
                ready = separated(self._entries, ready, bound.parameter_memory)
            results = NotImplemented if bound.entry is None or outputs is not None else bound.entry(*ready)
            if results is NotImplemented:
                results = self._run_observed(bound, ready, outputs)
            if self._wanted is None:  # an entry puts results where the inputs are
                self._shared.open(bound)
        except (MemoryError, ImportError, AttributeError, OSError) as error:
            translated = in_our_words("run", error)
            if translated is None:
                reraise(error, "backends", self._compiled.target.name, "a run of its program")
            raise translated from error
        return results

    def _take_donations(self, arrays: Sequence[Any], ready: list[Any]) -> None:
        """Replace donated inputs by arrays that the run may overwrite: the elements of a `HostArray`, copies of NumPy arrays."""
        donated = [n for n, e in enumerate(self._entries) if e.is_donated and isinstance(ready[n], np.ndarray)]
        owned = [number for number in donated if type(arrays[number]) is HostArray]
        for number in donated:
            ready[number] = None if number in owned else ready[number].copy()  # nothing else refers to the elements
        program = self._compiled.report.name
        names = [donation_text(self._entries[number].name, program) for number in owned]
        for number, elements in zip(owned, donate_together([arrays[n] for n in owned], names), strict=True):
            ready[number] = elements.astype(self._entries[number].stored, copy=False)

    def _run_observed(self, bound: BoundProgram, ready: Sequence[Any], outputs: Outputs | None) -> tuple[Any, ...]:
        """Run a program step by step, and report the run to the profile that is active, if one is."""
        is_observed = watchers[0] > 0
        checks = is_observed and self._traced is not None and ir.nonfinite.active() is not None
        # A run may overwrite its donated inputs, so the copies are kept to evaluate the program again with the original values.
        observed = [copy.copy(a) if e.is_donated and checks else a for e, a in zip(self._entries, ready, strict=True)]
        weights = {n: copy.copy(a) if n in self._shared.donated and checks else a for n, a in self.weights.items()}
        profile, start = pipeline.profile.active() if is_observed else None, time.perf_counter()
        results = self._run_program(bound, ready, outputs)
        for entry, array in zip(self._entries, ready, strict=True):
            if entry.is_donated and isinstance(array, Placed):
                array.donate(donation_text(entry.name, self._compiled.report.name))
        if profile is not None:
            profile.run(self._compiled.report.name, bound.lir, start, bound.program.traffic)
        if checks:
            assert self._traced is not None, "checks are made of programs whose graph is known"
            inputs = dict(zip(self._inputs, observed, strict=True))
            ir.nonfinite.expect_finite_results(self._traced, inputs, weights, results)
        return results

    def _run_program(self, bound: BoundProgram, ready: Sequence[Any], outputs: Outputs | None) -> tuple[Any, ...]:
        """Run a backend's program and return its results; the results of the first run are compared with the declared types.

        Raises:
            PluginError: The program raised, or its results have other types.
        """
        try:
            results = tuple(bound.program.run_to(ready, outputs))
            if not bound.is_checked:
                expect_results(bound.output_types, results)
                bound.is_checked = True
        except (RlxError, MemoryError, ImportError, AttributeError, OSError):  # typed, or made so by the caller
            raise
        except Exception as error:  # noqa: BLE001 - a backend may raise anything; it is raised again, with its owner
            reraise(error, "backends", self._compiled.target.name, "a run of its program")
        return results

    def run_flat(self, arrays: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """The outputs as one-dimensional arrays, for inputs given as flat arrays; sizes are inferred from lengths.

        Raises:
            BindingError, LengthMismatchError: The lengths do not determine the sizes, or do not fit them.
        """
        flat = {name: np.ravel(as_array(array)) for name, array in self._given(arrays).items()}
        return tuple(np.ravel(result) for result in self.run(self._shaped(flat)))

    def run_typed(self, inputs: Mapping[str, tuple[Bytes, DType | str]]) -> list[tuple[bytes, DType, tuple[int, ...]]]:
        """Outputs as (bytes, dtype, dims) for inputs as (bytes, dtype), all little-endian; sizes are inferred from lengths.

        Raises:
            DtypeError, LengthMismatchError: A dtype or a number of bytes is not the input's.
        """
        flat = {}
        for name, (data, element_type) in inputs.items():
            entry = self._entry(name, self._inputs, "input")
            read = from_bytes if entry.type.is_static else flat_from_bytes
            flat[name] = np.ravel(read(entry, data, dtype(element_type)))
        values = {name: np.ravel(array) for name, array in self._given(flat).items()}
        return [_typed(result) for result in self.run(self._shaped(values))]

    # --------------------------------------------------------------------------------- handles

    def bind_handle(self, name: str, array: Any) -> None:
        """Keep `array` as the default for input `name`; the handle `outN` holds output N after each `run`.

        After a run, the handle of a donated input holds the output that is its next value, so that a cache stays where it is.

        Raises:
            UnknownNameError: There is no such input, or no output of that number.
        """
        if name in self._inputs:
            bound = checked(self._inputs[name], array, self._memory)
        else:
            bound = as_array(array)
            self._expect_output(name)
        with self._handle_lock:
            self._handles[name] = bound

    def read_handle(self, name: str) -> np.ndarray:
        """Return the current value of a handle.

        Raises:
            UnknownNameError: It was never bound.
        """
        if name not in self._handles:
            raise UnknownNameError(f"handle: nothing is bound to {name!r}", hint=nearest(name, self._handles))
        return wrapped(self._handles[name])

    def clone(self) -> Executable:
        """Return an executable that shares this one's weights and programs and has separate handles."""
        return Executable(self._compiled, self._shared, outputs=self._wanted, traced=self._traced)

    def __copy__(self) -> Executable:
        """Return an executable with separate programs and handles. Weights are shared as long as no run writes to them."""
        known = self._shared.checked
        copies = {
            name: array.copy(order="K") if name in self._shared.donated else array for name, array in known.items()
        }
        return self._with(copies, {name: array.copy(order="K") for name, array in self._handles.copy().items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        """Return an executable with separate programs, handles and weights."""
        return self._with(copy.deepcopy(dict(self._shared.checked), memo), copy.deepcopy(self._handles.copy(), memo))

    def _with(self, weights: Mapping[str, np.ndarray], handles: Mapping[str, np.ndarray]) -> Executable:
        duplicate = Executable(self._compiled, outputs=self._wanted, traced=self._traced)
        duplicate.set_params(weights)
        duplicate._handles.update(handles)
        return duplicate

    def __reduce__(self) -> NoReturn:
        raise FormatError(
            f"pickle: {self!r} is machine code of this process, and does not travel",
            hint="pickle what rlx.compile returns, or the graph, and compile it there",
        )

    # --------------------------------------------------------------------------------- details

    def _given(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all inputs: the ones that are passed, and the handles of the others."""
        for name in inputs:
            self._entry(name, self._inputs, "input")
        handles = {name: array for name, array in self._handles.copy().items() if name in self._inputs}
        arrays = {**handles, **inputs}
        missing = [name for name in self._inputs if name not in arrays]
        if missing:
            raise MissingInputError(
                f"run: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not given",
                *(Fact(n, self._inputs[n].type, self._inputs[n].source) for n in missing),
            )
        return arrays

    def _shaped(self, flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        binding = ir.solve.infer_binding_from_counts(self.inputs, {name: array.size for name, array in flat.items()})
        shapes = {name: entry.type.bind(binding).static_shape for name, entry in self._inputs.items()}
        return {name: reshaped(self._inputs[name], array, shapes[name]) for name, array in flat.items()}

    @property
    def _latest(self) -> Lir:
        """Return the plan of the latest run; before any run, the plan of the program, which may be a template."""
        latest = self._shared.latest
        return self._compiled.lir if latest is None else latest.lir

    def _refresh_handles(self, results: Sequence[np.ndarray]) -> None:
        with self._handle_lock:
            for name in self._handles:
                number = self._successors.get(name) if name in self._inputs else _output_number(name)
                if number is not None:
                    self._handles[name] = results[number]

    def _expect_output(self, name: str) -> None:
        number = _output_number(name)
        if number is None:
            self._entry(name, self._inputs, "input")
        elif number >= len(self.outputs):
            raise UnknownNameError(f"handle: {name} is output {number}, and there are {len(self.outputs)}")

    def _entry(self, name: str, entries: Mapping[str, Declared], what: str) -> Declared:
        if name in entries:
            return entries[name]
        other = "a parameter" if name in self._params else "an input" if name in self._inputs else None
        raise UnknownNameError(
            f"run: {self._compiled.report.name} has no {what} {name!r}" + (f"; it is {other}" if other else ""),
            Fact(f"{what}s", ", ".join(list(entries)[:12]) or "none"),
            hint=nearest(name, entries),
        )


def _successors(lir: Lir) -> Iterator[tuple[str, int]]:
    """Donated leaf → the output that is its next value."""
    for number, delivery in enumerate(lir.deliveries):
        if delivery.donor is not None:
            yield leaf_name(delivery.donor), number


def _typed(result: Any) -> tuple[bytes, DType, tuple[int, ...]]:
    result = np.asarray(result)
    return result.astype(result.dtype.newbyteorder("<"), copy=False).tobytes(), dtype(result.dtype), result.shape


def _output_number(name: str) -> int | None:
    digits = name.removeprefix("out")
    return int(digits) if name.startswith("out") and digits.isdecimal() and digits.isascii() else None


def expect_results(types: Sequence[TensorType], results: Sequence[Any]) -> None:
    """Require that the results have the types that a program declares.

    Raises:
        TypeError: There are more or fewer, or one has another dtype or another shape; the backend's own fault.
    """
    if len(results) != len(types):
        raise TypeError(f"it returned {len(results)} results, and the program has {len(types)}")
    for number, (result, type) in enumerate(zip(results, types, strict=True)):
        shape = getattr(result, "shape", None)
        if shape is None or tuple(shape) != type.static_shape or result.dtype not in (type.dtype, type.dtype.numpy):
            actual = f"{result.dtype}{list(shape)}" if shape is not None else result.__class__.__name__
            raise TypeError(f"result {number} is {actual}, and {type} is declared")
