"""The programs of an executable: one for each binding of the sizes that it met, and the weights that they are bound to.

Parameters are bound once and shared by all programs, which bind them again when there are others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core import ir
from rlx_core.errors import Fact, MissingInputError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.lir import Entry, Lir
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.pipeline.select.backend import Bindings, Program
from rlx_core.runtime.arrays import Declared, ParameterMemory, separated
from rlx_core.runtime.preparing import prepared
from rlx_core.runtime.straight import RUNS_BEFORE_ENTRY, Door
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.locks import Lock
from rlx_core.system.lru import LruCache
from rlx_core.system.records import define, frozen

__all__ = ["BoundProgram", "BoundPrograms", "Weights"]

_versions: Final = count(1)

_PROGRAMS_KEPT: Final = 64
"""Maximum number of cached bindings of sizes; each has its own program and memory, and the least recently used is evicted."""


@frozen(eq=False)
class Weights:
    """One state of the bound parameters.

    Attributes:
        arrays: By name.
        immutable: The names of those that are read-only.
        version: Unique number of the state; a program whose version differs binds again.
        prepared: The bindings of programs, once computed: the arrays, or the outputs of the template's prepare program.
    """

    arrays: Mapping[str, np.ndarray] = field(factory=dict)
    version: int = 0
    immutable: frozenset[str] = frozenset()
    prepared: list[Bindings] = field(factory=list)


@define(eq=False)
class BoundProgram:
    """A program for one binding of the sizes, the version of the weights that it has and where they lie, its runs with them,
    and its entry."""

    program: Program
    lir: Lir
    version: int = -1
    parameter_memory: ParameterMemory = field(factory=ParameterMemory)
    entry: Callable[..., Any] | None = None
    runs: int = 0
    is_checked: bool = False  # its results had the declared types once


@define(eq=False)
class BoundPrograms:
    """State that the clones of an executable share. Mutable under its lock; every run sees one consistent state of the weights.

    Attributes:
        inputs, params: The declared inputs and parameters of the program, by name.
        donated: The parameters that runs write to.
        has_donations: Whether they write to those, or to inputs.
        latest: The program that ran last.
        door: The current entry, for calls on the fast path.
    """

    compiled: CompiledProgram
    inputs: Mapping[str, Declared]
    params: Mapping[str, Declared]
    donated: frozenset[str]
    has_donations: bool
    weights: Weights = field(factory=Weights)
    programs: LruCache[DimBinding, BoundProgram] = field(factory=lambda: LruCache(_PROGRAMS_KEPT))
    latest: BoundProgram | None = None
    door: Door = field(factory=Door)
    lock: Lock = field(factory=lambda: Lock("a program's sizes and weights"))

    @classmethod
    def of(cls, compiled: CompiledProgram) -> BoundPrograms:
        """None yet, and no weights."""

        def declared(entries: Sequence[Entry]) -> dict[str, Declared]:
            return {e.name: Declared(e.name, e.type, e.is_donated, compiled.sources.get(e.name)) for e in entries}

        manifest = compiled.lir.manifest
        donated = frozenset(e.name for e in manifest.params if e.is_donated)
        has_donations = bool(donated) or any(e.is_donated for e in manifest.inputs)
        return cls(compiled, declared(manifest.inputs), declared(manifest.params), donated, has_donations)

    def bind(self, ready: Mapping[str, np.ndarray], immutable: frozenset[str] = frozenset()) -> None:
        """Bind parameters; those that are not given stay as they are.

        Args:
            immutable: The names of the arrays that are read-only.
        """
        with self.lock:
            known = {**self.weights.arrays, **ready}
            if self.donated:
                copies = separated([self.params[name] for name in known], list(known.values()))
                known = dict(zip(known, copies, strict=True))
                for name in self.donated & ready.keys():
                    if isinstance(known[name], np.ndarray):
                        known[name] = known[name].view()  # a new view, even if it is the array that was passed before
            others = self.weights.immutable - ready.keys()
            self.weights = Weights(known, next(_versions), (others | immutable) - self.donated)
            self.door.entry = None

    def bound(self, arrays: Sequence[np.ndarray]) -> BoundProgram:
        """Return the program for the sizes of some inputs, with the current weights.

        Raises:
            MissingInputError: A parameter was never bound.
        """
        weights = self.weights
        self._expect_bound(weights)
        binding = self._binding(arrays, weights)
        program = self.programs.get(binding)
        if program is None or program.version != weights.version:
            program = self._newly_bound(arrays, binding, weights)
        self.latest = program
        return program

    def open(self, bound: BoundProgram) -> None:
        """Create the entry of a program that has just run, for the fast path: by now its frame can become the entry's."""
        if bound.runs >= RUNS_BEFORE_ENTRY and self.door.entry is bound.entry:
            return
        with self.lock:
            if bound.version != self.weights.version:
                return
            bound.runs += 1
            if bound.runs == RUNS_BEFORE_ENTRY:
                bound.entry = bound.program.entry(self.compiled.report.name)
            self.door.entry = bound.entry

    def planned(self, binding: DimBinding) -> tuple[Lir, Bindings]:
        """Return the plan for one binding of the sizes, and the bindings of its program with the current weights.

        Raises:
            MissingInputError: A parameter was never bound.
        """
        weights = self.weights
        self._expect_bound(weights)
        lir = self.compiled.specialize(binding)
        return lir, self._prepared(lir, weights)

    def _newly_bound(self, arrays: Sequence[np.ndarray], binding: DimBinding, expected: Weights) -> BoundProgram:
        """Return the program for sizes that were read off the inputs and the weights `expected`."""
        with self.lock, collecting_seldom():  # once, although planning and building each ask for it
            weights = self.weights
            if weights is not expected:  # another thread has bound others
                binding = self._binding(arrays, weights)
            bound = self.programs.get(binding)
            if bound is None:
                lir = self.compiled.specialize(binding)
                lir, program = self.compiled.planned_program(lir)
                bound = BoundProgram(program, lir)
                self.programs.put(binding, bound)
            if bound.version != weights.version:
                bound.entry, bound.runs = None, 0
                prepared = self._prepared(bound.lir, weights)
                bound.program.bind(prepared)
                bound.parameter_memory = (
                    ParameterMemory.of(prepared, self.donated) if self.has_donations else ParameterMemory()
                )
                bound.version = weights.version
            return bound

    def _prepared(self, lir: Lir, weights: Weights) -> Bindings:
        """Return the bindings of a program: one object for all sizes, unless sizes had to be bound in the prepare program."""
        if lir.prepare is not self.compiled.lir.prepare:
            return prepared(self.compiled, lir, weights.arrays, weights.immutable)
        if not weights.prepared:
            weights.prepared.append(prepared(self.compiled, lir, weights.arrays, weights.immutable))
        return weights.prepared[0]  # a signal handler may have made another

    def _binding(self, arrays: Sequence[np.ndarray], weights: Weights) -> DimBinding:
        if not self.compiled.is_template:
            return DimBinding()
        types = {name: e.type for name, e in self.inputs.items()}
        symbolic = {name: e.type for name, e in self.params.items() if not e.type.is_static}
        arrays_by_name = dict(zip(self.inputs, arrays, strict=True)) | {name: weights.arrays[name] for name in symbolic}
        return ir.solve.infer_binding({**types, **symbolic}, arrays_by_name)

    def _expect_bound(self, weights: Weights) -> None:
        if len(weights.arrays) == len(self.params):
            return
        missing = [name for name in self.params if name not in weights.arrays]
        if missing:
            raise MissingInputError(
                f"run: parameter {', '.join(missing[:5])} was never bound ({len(missing)} of {len(self.params)})",
                *(Fact(n, self.params[n].type, self.params[n].source) for n in missing[:5]),
                hint="bind them with set_params({...})",
            )
