"""The programs of an executable: one for each binding of the sizes that it met, and the parameters that they are bound to.

Parameters are bound once and shared by all programs, which bind them again when there are others. They are prepared before, from
the checked ones, by a plan's prepare program. It runs on the target: on a device with its kernels, so that only the checked
parameters are transferred; on the host with the interpreter, or compiled if it has loops, whose steps take the interpreter some
20 µs each.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import field

from rlx_core import ir
from rlx_core.errors import Fact, MissingInputError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Constant, Graph, Param, Value, leaf_name
from rlx_core.ir.graph.program import nested_graphs
from rlx_core.ir.lir import Entry, Lir
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import ABSENT, Params, Program
from rlx_core.pipeline.compiled import CompiledProgram
from rlx_core.runtime.arrays import Declared, ParameterMemory, separated
from rlx_core.runtime.straight import RUNS_BEFORE_ENTRY, Door
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.locks import Lock
from rlx_core.system.lru import LruCache
from rlx_core.system.records import define

if TYPE_CHECKING:
    from rlx_core.ir.element_functions import ElementFunctions

MIN_RECOMPUTED_NBYTES: Final = 1 << 20
"""Bytes of prepared parameters from which those that packed copies replace are freed."""

_PROGRAMS_KEPT: Final = 64
"""Maximum number of cached bindings of sizes; each has its own program and memory, and the least recently used is evicted."""


@define(eq=False)
class BoundProgram:
    """A program for one binding of the sizes, the version of the parameters that are bound and their addresses, its runs with
    them, and its entry.

    Attributes:
        planned: Returns its plan.
        output_types: The declared types of its outputs.
        preparing: The plan with its prepare program: its own, or its template's if that has the same one.
    """

    program: Program
    planned: Callable[[], Lir]
    output_types: Sequence[TensorType]
    preparing: Lir
    version: int = -1
    parameter_memory: ParameterMemory = field(factory=ParameterMemory)
    entry: Callable[..., Any] | None = None
    runs: int = 0
    is_checked: bool = False  # its results had the declared types once

    @property
    def lir(self) -> Lir:
        """The plan."""
        return self.planned()


@define(eq=False)
class BoundPrograms:
    """State that the clones of an executable share. Mutable under its lock; every run sees one version of the parameters.

    Attributes:
        inputs, params: The declared inputs and parameters of the program, by name.
        donated: The parameters that runs write to.
        has_donations: Whether they write to those, or to inputs.
        checked: The checked parameters; a program with another version of them binds again.
        latest: The program that ran last.
        symbolic_params: The parameters whose types have sizes that are still unknown.
        sized_types: The types of the inputs and of these parameters, which determine the sizes.
        entry_cell: The current entry, for calls on the fast path.
    """

    compiled: CompiledProgram
    inputs: Mapping[str, Declared]
    params: Mapping[str, Declared]
    donated: frozenset[str]
    has_donations: bool
    checked: Params = field(factory=lambda: Params({}))
    programs: LruCache[DimBinding, BoundProgram] = field(factory=lambda: LruCache(_PROGRAMS_KEPT))
    latest: BoundProgram | None = None
    symbolic_params: tuple[str, ...] = field(init=False)
    sized_types: Mapping[str, TensorType] = field(init=False)
    entry_cell: Door = field(factory=Door)
    lock: Lock = field(factory=lambda: Lock("a program's sizes and parameters"))

    @symbolic_params.default
    def _symbolic_params(self) -> tuple[str, ...]:
        return tuple(name for name, e in self.params.items() if not e.type.is_static)

    @sized_types.default
    def _sized_types(self) -> Mapping[str, TensorType]:
        types = {name: e.type for name, e in self.inputs.items()}
        return types | {name: self.params[name].type for name in self.symbolic_params}

    @classmethod
    def of(cls, compiled: CompiledProgram) -> BoundPrograms:
        """None yet, and no parameters."""

        def declared(entries: Sequence[Entry]) -> dict[str, Declared]:
            return {e.name: Declared(e.name, e.type, e.is_donated, compiled.sources.get(e.name)) for e in entries}

        manifest = compiled.lir.manifest
        donated = frozenset(e.name for e in manifest.params if e.is_donated)
        has_donations = bool(donated) or any(e.is_donated for e in manifest.inputs)
        return cls(compiled, declared(manifest.inputs), declared(manifest.params), donated, has_donations)

    def bind(self, checked: Mapping[str, np.ndarray], immutable: frozenset[str] = frozenset()) -> None:
        """Replace parameters by checked arrays, of which some are `immutable`; the other parameters stay as they are."""
        with self.lock:
            known = {**self.checked, **checked}
            if self.donated:
                copies = separated([self.params[name] for name in known], list(known.values()))
                known = dict(zip(known, copies, strict=True))
                for name in self.donated & checked.keys():
                    if isinstance(known[name], np.ndarray):
                        known[name] = known[name].view()  # a new view, even if it is the array that was passed before
            others = self.checked.immutable - checked.keys()
            self.checked = Params(known, (others | immutable) - self.donated)
            self.entry_cell.entry = None

    def bound(self, arrays: Sequence[np.ndarray]) -> BoundProgram:
        """Return the program for the sizes of some inputs, with the current parameters.

        Raises:
            MissingInputError: A parameter was never bound.
        """
        checked = self.checked
        self._expect_bound(checked)
        binding = self._binding(arrays, checked)
        program = self.programs.get(binding)
        if program is None or program.version != checked.version:
            program = self._newly_bound(arrays, binding, checked)
        self.latest = program
        return program

    def open(self, bound: BoundProgram) -> None:
        """Create the entry of a program that has just run, for the fast path: by now its frame can become the entry's."""
        if bound.runs >= RUNS_BEFORE_ENTRY and self.entry_cell.entry is bound.entry:
            return
        with self.lock:
            if bound.version != self.checked.version:
                return
            bound.runs += 1
            if bound.runs == RUNS_BEFORE_ENTRY:
                bound.entry = bound.program.entry(self.compiled.report.name)
            self.entry_cell.entry = bound.entry

    def planned(self, binding: DimBinding) -> tuple[Lir, Params]:
        """Return the plan for one binding of the sizes, and the prepared parameters of its program.

        Raises:
            MissingInputError: A parameter was never bound.
        """
        checked = self.checked
        self._expect_bound(checked)
        with collecting_seldom():
            lir = self.compiled.specialize(binding)
            params = self._prepared(lir, checked)
            for name in params.recomputed:
                params.use(name)
            return lir, params

    def _newly_bound(self, arrays: Sequence[np.ndarray], binding: DimBinding, expected: Params) -> BoundProgram:
        """Return the program for sizes that were read off the inputs and the parameters `expected`."""
        with self.lock, collecting_seldom():
            checked = self.checked
            if checked is not expected:  # another thread has bound others
                binding = self._binding(arrays, checked)
            bound = self.programs.get(binding)
            if bound is None:
                bound = self._recorded(binding) or self._planned(binding)
                self.programs.put(binding, bound)
            if bound.version != checked.version:
                bound.entry, bound.runs = None, 0
                params = self._prepared(bound.preparing, checked)
                bound.program.bind(params)
                bound.parameter_memory = (
                    ParameterMemory.of(params, self.donated) if self.has_donations else ParameterMemory()
                )
                bound.version = checked.version
            return bound

    def _recorded(self, binding: DimBinding) -> BoundProgram | None:
        """Return the program for sizes that need not be planned; `None` for other sizes."""
        planned = cache(partial(self.compiled.specialize, binding))
        recorded = self.compiled.recorded_program(binding, planned)
        return None if recorded is None else BoundProgram(recorded[0], planned, recorded[1], self.compiled.lir)

    def _planned(self, binding: DimBinding) -> BoundProgram:
        planned = self.compiled.specialize(binding)
        lir, program = self.compiled.planned_program(planned)
        if lir is planned:
            self.compiled.record(binding)
        return BoundProgram(program, lambda: lir, [value.type for value in lir.graph.outputs], lir)

    def _prepared(self, lir: Lir, checked: Params) -> Params:
        """Return the prepared parameters: one object for all sizes, unless sizes had to be bound in the prepare program."""
        if lir.prepare is not self.compiled.lir.prepare:
            return prepared(self.compiled, lir, checked)
        if checked.prepared is None:
            params = prepared(self.compiled, lir, checked)
            if checked.prepared is None:  # else a signal handler has computed them meanwhile
                checked.prepared = params
        return checked.prepared

    def _binding(self, arrays: Sequence[np.ndarray], checked: Params) -> DimBinding:
        if not self.compiled.is_template:
            return DimBinding()
        arrays_by_name = dict(zip(self.inputs, arrays, strict=True))
        for name in self.symbolic_params:
            arrays_by_name[name] = checked[name]
        return ir.solve.infer_binding(self.sized_types, arrays_by_name)

    def _expect_bound(self, checked: Params) -> None:
        if len(checked) == len(self.params):
            return
        missing = [name for name in self.params if name not in checked]
        if missing:
            raise MissingInputError(
                f"run: parameter {', '.join(missing[:5])} was never bound ({len(missing)} of {len(self.params)})",
                *(Fact(n, self.params[n].type, self.params[n].source) for n in missing[:5]),
                hint="bind them with set_params({...})",
            )


# ------------------------------------------------------------------------------------------- preparation of parameters


def prepared(compiled: CompiledProgram, lir: Lir, checked: Params) -> Params:
    """The parameters that a program of a plan is bound to.

    Args:
        compiled: The compilation that the plan is of.
        lir: The plan.
        checked: The checked parameters.

    Raises:
        IndexRangeError, OutOfMemoryError: Something cannot be computed from these parameters.
    """
    params = _prepared(compiled, lir, checked)
    immutable_ids = {id(checked[name]) for name in checked.immutable}
    params.immutable = frozenset(name for name, array in params.items() if id(array) in immutable_ids)
    params.version = checked.version
    return params


def _prepared(compiled: CompiledProgram, lir: Lir, arrays: Mapping[str, Any]) -> Params:
    device = compiled.target.device
    if lir.prepare is None or (device is not None and device.name.endswith(f":{ABSENT}")):
        return prepared_on_host(lir, arrays, compiled.target.element_functions)
    if device is not None:
        return _prepared_on_device(compiled, lir, arrays)
    if any(nested_graphs(node.op) for node in lir.prepare.nodes):
        program = _bound_program(compiled, lir.prepare, arrays)
        return _with_computed(lir, arrays, iter(program.run([])))
    return prepared_on_host(lir, arrays, compiled.target.element_functions)


def prepared_on_host(lir: Lir, arrays: Mapping[str, Any], functions: ElementFunctions | None = None) -> Params:
    """The same, computed by the interpreter, with a target's functions of inexact element-wise ops."""
    if lir.prepare is None:
        return Params(arrays)
    params = {name: np.asarray(arrays[name]) for name in lir.prepare.param_types}
    values = ir.interpret.interpret(lir.prepare, {}, params, functions=functions)
    result = Params(dict(zip(lir.graph.param_types, values, strict=True)))
    result.recomputed = _recomputed(lir.prepare, params, result, functions)
    return result


def _recomputed(
    prepare: Graph, params: Mapping[str, np.ndarray], result: Params, functions: ElementFunctions | None
) -> dict[str, Callable[[], np.ndarray]]:
    """Return functions that compute outputs of a prepare graph again, one at a time, for those that have memory of their own."""
    if sum(array.nbytes for array in result.values()) < MIN_RECOMPUTED_NBYTES:
        return {}
    # Here, because few weights are computed.
    from rlx_core.ir.mapped_pages import owner_of
    from rlx_core.ir.rewrite import needed_nodes, subgraph

    constants = [n.op.value.array for n in prepare.nodes if isinstance(n.op, Constant)]
    shared = Counter(id(owner_of(array)) for array in (*params.values(), *constants, *result.values()))

    def again(output: Value) -> np.ndarray:
        nodes = needed_nodes((*prepare.nodes,), [output])
        graph = subgraph(prepare, [output], nodes)
        return ir.interpret.interpret(graph, {}, {n: params[n] for n in graph.param_types}, functions=functions)[0]

    computed: dict[str, Callable[[], np.ndarray]] = {}
    for (name, array), output in zip(result.items(), prepare.outputs, strict=True):
        owner = owner_of(array)
        is_own = isinstance(owner, np.ndarray) and owner.flags.owndata and shared[id(owner)] == 1
        if is_own and array.flags.c_contiguous and array.flags.writeable and array.nbytes >= mmap.PAGESIZE:
            computed[name] = partial(again, output)
    return computed


def _bound_program(compiled: CompiledProgram, prepare: Graph, arrays: Mapping[str, Any]) -> Program:
    """Return a prepare program for the same target: a new one each time, because a program keeps its bindings alive."""
    preparing = compiled.to_prepare(prepare)
    _, program = preparing.planned_program(preparing.lir)
    program.bind(Params({name: arrays[name] for name in preparing.lir.graph.param_types}))
    return program


def _with_computed(lir: Lir, arrays: Mapping[str, Any], computed: Iterator[Any]) -> Params:
    """Return unchanged parameters and computed ones, in the order of the prepare graph's results."""
    assert lir.prepare is not None, "there is something to compute"
    pairs = zip(lir.graph.param_types, lir.prepare.outputs, strict=True)
    return Params(
        {
            name: arrays[leaf_name(value)] if isinstance(value.node.op, Param) else next(computed)
            for name, value in pairs
        }
    )


def _prepared_on_device(compiled: CompiledProgram, lir: Lir, arrays: Mapping[str, Any]) -> Params:
    assert lir.prepare is not None, "there is something to compute"
    program = _bound_program(compiled, lir.prepare, arrays)
    results = program.run_to([], "device")
    for array in results:
        if array.run is not None:
            array.run.settle()
    result = _with_computed(lir, arrays, iter(results))
    traffic = program.traffic
    result.transferred = traffic.bound + traffic.steps if traffic is not None else 0
    return result
