"""A compiled program with its parameters: named arrays in, arrays out, everything checked before a byte is written.

An executable of a program with symbolic sizes keeps one optimised template and specialises it for each binding it
meets; parameters are bound once and shared by all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from rlx_core.errors import (
    DtypeError,
    Fact,
    FormatError,
    LengthMismatchError,
    MissingInputError,
    ShapeError,
    UnknownNameError,
    nearest,
)
from rlx_core.ir.apply import as_array
from rlx_core.ir.bind import infer_binding
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import Entry, Lir
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Program
from rlx_core.pipeline.compile import Compiled
from rlx_core.pipeline.report import Report

__all__ = ["Executable", "checked"]


@define(eq=False)
class Weights:
    """Bound parameters, shared by clones: the arrays by name, and a count that tells programs to bind again."""

    arrays: dict[str, np.ndarray] = field(factory=dict)
    version: int = 0


@define(eq=False)
class Bound:
    """A program for one binding, and which version of the weights it has."""

    program: Program
    lir: Lir
    version: int = -1


class Executable:
    """A program ready to run. Runs are safe from several threads; clones share weights and nothing mutable.

    >>> executable.run({"x": x})                             # doctest: +SKIP
    """

    def __init__(self, compiled: Compiled, weights: Weights | None = None) -> None:
        self._compiled = compiled
        self._weights = weights or Weights()
        self._bound: dict[DimBinding, Bound] = {}
        self._lock = threading.Lock()
        self._handles: dict[str, np.ndarray] = {}
        manifest = compiled.lir.manifest
        self._inputs = {e.name: e for e in manifest.inputs}
        self._params = {e.name: e for e in manifest.params}

    # ------------------------------------------------------------------------------- what it is

    @property
    def report(self) -> Report:
        """What was compiled: stages, passes, memory, which plugin serves which op."""
        return self._compiled.report

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The inputs in calling order."""
        return {e.name: e.type for e in self._inputs.values()}

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

    def __repr__(self) -> str:
        def listed(types: Mapping[str, TensorType]) -> str:
            return ", ".join(f"{n}: {t}" for n, t in types.items())

        name = self._compiled.lir.graph.name
        return f"<executable {name}({listed(self.inputs)}) -> ({listed(self.outputs)}) on {self._compiled.lir.target}>"

    # ------------------------------------------------------------------------------- parameters

    def set_param(self, name: str, array: Any) -> None:
        """Bind one parameter; the array is used where it lies, so it must not be changed afterwards.

        Raises:
            UnknownNameError, DtypeError, ShapeError: There is no such parameter, or it has another type.
        """
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Bind several parameters at once: all of them, or on an error none."""
        ready = {name: checked(self._entry(name, self._params, "parameter"), a) for name, a in arrays.items()}
        with self._lock:
            self._weights.arrays = {**self._weights.arrays, **ready}
            self._weights.version += 1

    def set_param_typed(self, name: str, data: bytes, of: DType | str) -> None:
        """Bind one parameter from little-endian bytes.

        Raises:
            LengthMismatchError: The number of bytes is not the type's.
        """
        self.set_params({name: from_bytes(self._entry(name, self._params, "parameter"), data, dtype(of))})

    # --------------------------------------------------------------------------------- running

    def run(self, inputs: Mapping[str, Any] | None = None) -> tuple[np.ndarray, ...]:
        """The outputs, in order, for named inputs. A bound handle is the default for the input of its name.

        Raises:
            MissingInputError: An input is not given, or a parameter was never bound.
            UnknownNameError: A name that is not an input.
            ShapeError, DtypeError: An array that is not of its input's type.
            GuardError, BindingError: Sizes that contradict one another or the program's guards.
        """
        given = {**self._handles, **(inputs or {})}
        for name in given:
            self._entry(name, self._inputs, "input")
        missing = [n for n in self._inputs if n not in given]
        if missing:
            raise MissingInputError(
                f"run: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not given",
                *(Fact(n, self._inputs[n].type) for n in missing),
            )
        results = self.run_slots([given[n] for n in self._inputs])
        self._refresh_handles(results)
        return results

    def run_slots(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The outputs for inputs in manifest order."""
        entries = list(self._inputs.values())
        if len(arrays) != len(entries):
            raise MissingInputError(f"run: takes {len(entries)} inputs ({', '.join(self._inputs)}), not {len(arrays)}")
        ready = [checked(entry, array) for entry, array in zip(entries, arrays, strict=True)]
        return tuple(self._program(ready).run(ready))

    def run_flat(self, arrays: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """The outputs as one-dimensional arrays, for inputs given as flat arrays; sizes are inferred from lengths.

        Raises:
            BindingError, LengthMismatchError: The lengths do not determine the sizes, or do not fit them.
        """
        flat = {n: np.ravel(as_array(a)) for n, a in arrays.items()}
        for name in flat:
            self._entry(name, self._inputs, "input")
        binding = infer_binding({n: e.type for n, e in self._inputs.items()}, flat, flat=True)
        shaped = {n: _reshaped(self._inputs[n], a, binding) for n, a in flat.items()}
        return tuple(np.ravel(r) for r in self.run(shaped))

    def run_typed(self, inputs: Mapping[str, tuple[bytes, DType | str]]) -> list[tuple[bytes, DType, tuple[int, ...]]]:
        """Outputs as (bytes, dtype, dims) for inputs as (bytes, dtype)."""
        arrays = {
            n: from_bytes(self._entry(n, self._inputs, "input"), data, dtype(of)) for n, (data, of) in inputs.items()
        }
        return [(r.tobytes(), dtype(r.dtype), r.shape) for r in self.run(arrays)]

    # --------------------------------------------------------------------------------- handles

    def bind_handle(self, name: str, array: Any) -> None:
        """Keep `array` as the default for input `name`; the handle `outN` is refreshed from output N by each run."""
        entry = None if _output_number(name) is not None else self._entry(name, self._inputs, "input")
        self._handles[name] = as_array(array) if entry is None else checked(entry, array)

    def read_handle(self, name: str) -> np.ndarray:
        """What a handle holds now.

        Raises:
            UnknownNameError: It was never bound.
        """
        if name not in self._handles:
            raise UnknownNameError(f"handle: nothing is bound to {name!r}", hint=nearest(name, self._handles))
        return self._handles[name]

    def clone(self) -> Executable:
        """An executable that shares this one's weights and nothing that a run changes."""
        return Executable(self._compiled, self._weights)

    # --------------------------------------------------------------------------------- details

    def _program(self, arrays: Sequence[np.ndarray]) -> Program:
        types = {n: e.type for n, e in self._inputs.items()}
        binding = DimBinding()
        if self._compiled.is_template:
            binding = infer_binding(types, dict(zip(types, arrays, strict=True)))
        with self._lock:
            bound = self._bound.get(binding)
            if bound is None:
                lir = self._compiled.specialize(binding)
                bound = self._bound[binding] = Bound(self._compiled.program_for(lir), lir)
            if bound.version != self._weights.version:
                bound.program.bind(self._prepared(bound.lir))
                bound.version = self._weights.version
            return bound.program

    def _prepared(self, lir: Lir) -> dict[str, np.ndarray]:
        missing = [n for n in self._params if n not in self._weights.arrays]
        if missing:
            raise MissingInputError(
                f"run: parameter {', '.join(missing[:5])} was never bound ({len(missing)} of {len(self._params)})",
                *(Fact(n, self._params[n].type) for n in missing[:5]),
                hint="bind them with set_params({...})",
            )
        if lir.prepare is None:
            return self._weights.arrays
        values = interpret(lir.prepare, {}, {n: self._weights.arrays[n] for n in lir.prepare.param_types})
        return dict(zip(lir.graph.param_types, values, strict=True))

    def _refresh_handles(self, results: Sequence[np.ndarray]) -> None:
        for name in self._handles:
            number = _output_number(name)
            if number is not None and number < len(results):
                self._handles[name] = results[number]

    def _entry(self, name: str, entries: Mapping[str, Entry], what: str) -> Entry:
        if name in entries:
            return entries[name]
        other = "a parameter" if name in self._params else "an input" if name in self._inputs else None
        raise UnknownNameError(
            f"run: {self._compiled.lir.graph.name} has no {what} {name!r}" + (f"; it is {other}" if other else ""),
            Fact(f"{what}s", ", ".join(list(entries)[:12]) or "none"),
            hint=nearest(name, entries),
        )


Checker = Callable[[Entry, Any], np.ndarray]


def checked(entry: Entry, data: Any) -> np.ndarray:
    """`data` as an array of exactly the entry's dtype and, where they are known, its dims.

    Raises:
        DtypeError, ShapeError: It has others.
    """
    array = as_array(data)
    if dtype(array.dtype) is not entry.type.dtype:
        raise DtypeError(
            f"run: {entry.name} must be {entry.type.dtype}, not {dtype(array.dtype)}",
            Fact("declared", entry.type),
            Fact("given", f"{dtype(array.dtype)}{list(array.shape)}"),
            hint=f"convert it with numpy: {entry.name}.astype({entry.type.dtype.numpy.name!r})",
        )
    dims_fit = array.ndim == entry.type.rank and all(
        not isinstance(d, int) or d == n for d, n in zip(entry.type.shape, array.shape, strict=True)
    )
    if not dims_fit:
        found = f"{entry.type.dtype}[{', '.join(map(str, array.shape))}]"
        raise ShapeError(f"run: {entry.name} must be {entry.type}, not {found}")
    return array.astype(entry.type.dtype.numpy, copy=False)  # native byte order


def from_bytes(entry: Entry, data: bytes, of: DType) -> np.ndarray:
    """Little-endian bytes as an array of the entry's type.

    Raises:
        DtypeError, LengthMismatchError: The dtype or the number of bytes is not the entry's.
    """
    if of is not entry.type.dtype:
        raise DtypeError(f"run: {entry.name} must be {entry.type.dtype}, not {of}")
    if not entry.type.is_static:
        raise FormatError(f"run: the dims of {entry.name} ({entry.type}) cannot be told from bytes; pass an array")
    if len(data) != entry.type.nbytes:
        raise LengthMismatchError(f"run: {entry.name} ({entry.type}) has {entry.type.nbytes} bytes, not {len(data)}")
    return np.frombuffer(data, entry.type.dtype.numpy).reshape(entry.type.static_shape)


def _reshaped(entry: Entry, flat: np.ndarray, binding: DimBinding) -> np.ndarray:
    shape = entry.type.bind(binding).static_shape
    if int(np.prod(shape)) != flat.size:
        raise LengthMismatchError(f"run: {entry.name} ({entry.type}) has {np.prod(shape)} elements, not {flat.size}")
    return flat.reshape(shape)


def _output_number(name: str) -> int | None:
    digits = name.removeprefix("out")
    return int(digits) if name.startswith("out") and digits.isdigit() else None
