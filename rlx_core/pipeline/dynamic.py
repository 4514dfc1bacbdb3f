"""Programs with unknown sizes: one optimised template, a plan for each binding, and buckets that bound the number of plans.

Specialising substitutes sizes everywhere, infers and verifies again, and plans memory; nothing else is optimised, so the
result equals the compilation of the bound graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from attrs import field

from rlx_core.errors import BindingError, ConfigError, Fact, LengthMismatchError, NoKernelError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding, SizeSymbol, free_symbols
from rlx_core.ir.graph import Graph, Node, leaf_name
from rlx_core.ir.lir import Lir, TemplateOrigin
from rlx_core.pipeline.backend import Outline, Target
from rlx_core.pipeline.dispatch import Dispatcher
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable
from rlx_core.pipeline.planning.planner import ChooseKernel, PlanOptions, make_lir
from rlx_core.pipeline.planning.schedule import Flow
from rlx_core.system.logs import log_event
from rlx_core.system.lru import CacheCounts, LruCache
from rlx_core.system.records import define, evolve, frozen

if TYPE_CHECKING:
    from rlx_core.pipeline.recording import RecordedPlan

T = TypeVar("T")


def template_symbols(template: Lir) -> frozenset[SizeSymbol]:
    """Return every size that a binding of `template` must contain."""
    graphs = [template.graph, *([template.prepare] if template.prepare else [])]
    in_nodes: frozenset[SizeSymbol] = frozenset().union(*(g.symbols for g in graphs))
    in_guards = free_symbols(*(d for g in graphs for guard in g.guards for d in (guard.left, guard.right)))
    return in_nodes | in_guards


Candidates = Mapping[int, tuple[tuple[Kernel, tuple[Condition, ...]], ...]]
"""The kernels that may run a node, by its number, each with the conditions that depend on sizes."""


@define(eq=False)
class _TemplateData:
    """The data of a template that all its bindings share, computed once.

    Attributes:
        symbols: The sizes that a binding must contain.
        flow: The size-independent data of its graph for scheduling.
        output_names: The names of its outputs.
        donations: The donated names, as `make_lir` takes them.
        kernels: By table, the candidates for the node of each step, by its number (`KernelTable.candidates_for_sizes`).
    """

    symbols: frozenset[SizeSymbol]
    flow: Flow
    output_names: tuple[str, ...]
    donations: Mapping[str, int | None]
    kernels: dict[KernelTable, Candidates] = field(factory=dict)

    @classmethod
    def of(cls, template: Lir) -> _TemplateData:
        """The data of a template."""
        data = _templates.get(template)
        if data is None:
            names = tuple(entry.name for entry in template.manifest.outputs)
            symbols, flow = template_symbols(template), Flow.of(template.graph)
            data = _templates.setdefault(template, cls(symbols, flow, names, _donations(template)))
        return data

    def candidates(self, template: Lir, table: KernelTable) -> Candidates:
        """The candidates for the nodes of the template's steps."""
        result = self.kernels.get(table)
        if result is None:
            result = {step.node.index: table.candidates_for_sizes(step.node) for step in template.steps}
            self.kernels[table] = result
        return result


_templates: WeakKeyDictionary[Lir, _TemplateData] = WeakKeyDictionary()


def binding_key(binding: DimBinding, symbols: Iterable[SizeSymbol]) -> str:
    """Return the sizes of `symbols` as text that is the same in every process: by name, without sizes of other symbols.

    >>> binding_key(DimBinding.of(SEQ=8, BATCH=2, unused=5), [s for s in DimBinding.of(BATCH=0, SEQ=0).sizes])
    'BATCH=2 SEQ=8'
    """
    relevant = frozenset(symbols)
    sizes = {s.name: n for s, n in binding.sizes.items() if s in relevant}
    return " ".join(f"{name}={sizes[name]}" for name in sorted(sizes))


def specialize(
    template: Lir,
    binding: DimBinding,
    target: Target,
    *,
    choose: ChooseKernel | None = None,
    options: PlanOptions | None = None,
) -> Lir:
    """The planned program for one binding of `template`.

    Raises:
        BindingError: A symbol of the template has no size, or a quotient is not exact.
        GuardError: The sizes break a relation that the program relies on; checked before anything else.
        ShapeError: A node does not fit its bound operands.
        LegalizeError: No kernel takes a bound node, nor its decomposition.
    """
    data = _TemplateData.of(template)
    missing = sorted(s.name for s in data.symbols if s not in binding.sizes)
    if missing:
        raise BindingError(
            f"specialise: {template.graph.name} needs a size for {', '.join(missing)}", Fact("binding", binding)
        )
    if not data.symbols:
        return template
    key = binding_key(binding, data.symbols)
    fingerprint = hashlib.sha256(f"{template.fingerprint} {key}".encode()).hexdigest()
    return _planned(template, binding, target, fingerprint, choose=choose, options=options)


def _planned(
    template: Lir,
    binding: DimBinding,
    target: Target,
    fingerprint: str,
    *,
    choose: ChooseKernel | None = None,
    options: PlanOptions | None = None,
) -> Lir:
    """The plan for sizes of all symbols; see `specialize`."""
    data = _TemplateData.of(template)
    graph, _ = bind(template.graph, binding)
    prepare = None if template.prepare is None else _sized(template.prepare, binding)
    plan = partial(
        make_lir,
        target=target,
        output_names=data.output_names,
        donations=data.donations,
        prepare=prepare,
        options=options,
        resolved=template.options,
        fingerprint=fingerprint,
    )
    first_choice = choose or _first_candidate(data.candidates(template, target.kernels), graph, target)
    try:
        return plan(graph, choose=first_choice, flow=data.flow, origin=TemplateOrigin(template, binding))
    except NoKernelError:
        # With zero elements some ops change their meaning: a gather from an empty array is no longer a loop, and its fusions end.
        from rlx_core.pipeline.legalize import legalize  # here, because few sizes need it

        return plan(legalize(graph, Dispatcher(target)).graph, choose=first_choice)


def record(
    template: Lir,
    binding: DimBinding,
    target: Target,
    outline: Callable[[Lir], Outline | None],
    options: PlanOptions | None = None,
) -> RecordedPlan | None:
    """Plan a binding again and record its sizes, so that other sizes need not be planned.

    Args:
        outline: See `Backend.outline`.

    Returns:
        `None` if programs of the template depend on more than sizes, or if code refuses recorded sizes, which is logged.
    """
    from rlx_core.pipeline.recording import recorded_plan  # here, because few programs have many sizes

    has_sizes = template.prepare is not None and (template.prepare.symbols or template.prepare.guards)
    if has_sizes or target.kernels.has_failures or 0 in binding.sizes.values():
        return None
    try:
        return recorded_plan(binding, lambda sizes: _planned(template, sizes, target, "", options=options), outline)
    except Exception as error:  # noqa: BLE001 - contributed code may refuse these sizes in any way; the binding has its plan
        log_event("unrecorded", {"program": template.graph.name, "sizes": binding, "reason": error})
        return None


def replanned(lir: Lir, target: Target, options: PlanOptions | None = None) -> Lir:
    """The plan of the same program with the kernels that its target has now: for a row that failed when its code was made.

    Raises:
        LegalizeError: Without that row nothing runs some node.
    """
    from rlx_core.pipeline.legalize import legalize  # here, because few programs need it

    result = make_lir(
        legalize(lir.graph, Dispatcher(target)).graph,
        target,
        output_names=[entry.name for entry in lir.manifest.outputs],
        donations=_donations(lir),
        prepare=lir.prepare,
        options=options,
        resolved=lir.options,
        fingerprint=lir.fingerprint,
    )
    return evolve(result, origin=lir.origin)


def _first_candidate(candidates: Candidates, graph: Graph, target: Target) -> ChooseKernel:
    """Return the kernel choice for a bound graph: conditions with the same answer for all sizes are not evaluated again."""
    nodes, kernels = graph.nodes, target.kernels
    empty = {type for node in nodes for type in node.types if 0 in type.shape}

    def choose(node: Node) -> Kernel | None:
        is_in_graph = node.index < len(nodes) and nodes[node.index] is node  # else it is one of a nested graph
        is_empty = bool(empty) and not empty.isdisjoint((*node.types, *node.operand_types))
        if not is_in_graph or is_empty or kernels.has_failures:
            return target.kernel_for(node)
        for kernel, conditions in candidates.get(node.index, ()):
            if not conditions or kernels.holds(kernel, conditions, node):
                return kernel
        return target.kernel_for(node)

    return choose


def _sized(graph: Graph, binding: DimBinding) -> Graph:
    """Return the graph with its sizes bound; the same object if it has none, so that its results are known to be equal."""
    return bind(graph, binding)[0] if graph.symbols or graph.guards else graph


def _donations(template: Lir) -> dict[str, int | None]:
    """Donated names as `make_lir` takes them, read off the template."""
    leaves = (*template.graph.inputs, *template.graph.params)
    by_leaf = {d.donor: i for i, d in enumerate(template.deliveries) if d.donor is not None}
    donated = {e.name for e in (*template.manifest.inputs, *template.manifest.params) if e.is_donated}
    return {leaf_name(leaf): by_leaf.get(leaf) for leaf in leaves if leaf_name(leaf) in donated}


class DynamicDimCompileCache(Generic[T]):
    """Executables by template and binding: each pair is specialised and compiled once, and the least recently used are evicted.

    Args:
        target: The target of the compilation.
        compile: A planned program → the executable that is kept.
        capacity: Maximum number of executables.
        options: The options of planning.
    """

    def __init__(
        self, target: Target, compile: Callable[[Lir], T], *, capacity: int = 64, options: PlanOptions | None = None
    ) -> None:
        self._target = target
        self._compile = compile
        self._options = options
        self._cache: LruCache[tuple[str, str], T] = LruCache(capacity)

    def get(self, template: Lir, binding: DimBinding) -> T:
        """The executable for `binding`.

        Raises:
            BindingError, GuardError, ShapeError, NoKernelError: As `specialize`.
        """
        key = template.fingerprint, binding_key(binding, template_symbols(template))
        return self._cache.get_or_make(
            key, lambda: self._compile(specialize(template, binding, self._target, options=self._options))
        )

    @property
    def counts(self) -> CacheCounts:
        return self._cache.counts

    def __len__(self) -> int:
        return len(self._cache)


# ----------------------------------------------------------------------------------------------- buckets


@frozen
class Bucket:
    """Sizes `lo` to `hi`, both included, that are padded to `hi`.

    Raises:
        ConfigError: It is empty, or holds a negative size.
    """

    lo: int
    hi: int

    def __attrs_post_init__(self) -> None:
        if self.lo < 0:
            raise ConfigError(f"bucket: a size is at least 0, not {self.lo}")
        if self.hi < self.lo:
            raise ConfigError(f"bucket: {self} is empty ({self.hi} < {self.lo})")

    def __contains__(self, size: int) -> bool:
        return self.lo <= size <= self.hi

    def __repr__(self) -> str:
        return f"[{self.lo}, {self.hi}]"


def power_of_two_ladder(lo: int, hi: int) -> tuple[Bucket, ...]:
    """Buckets that cover `lo` to `hi` and end at powers of two, the last one at `hi`: padding at most doubles a size.

    >>> power_of_two_ladder(3, 24)
    ([3, 4], [5, 8], [9, 16], [17, 24])

    Raises:
        ConfigError: The range is empty or begins below 1.
    """
    if lo < 1:
        raise ConfigError(f"bucket: a ladder begins at 1 or above, not {lo}")
    full = Bucket(lo, hi)
    ends = [1 << k for k in range(hi.bit_length()) if lo <= 1 << k < hi]
    starts = [full.lo, *(end + 1 for end in ends)]
    return tuple(Bucket(start, end) for start, end in zip(starts, [*ends, full.hi], strict=True))


class BucketedCompileCache(Generic[T]):
    """Executables by size, rounded up to the end of a bucket; each is compiled when a size first needs it.

    Args:
        buckets: Disjoint ranges of sizes, in any order.
        compile: The size at a bucket's end → the executable that is kept.

    Raises:
        ConfigError: There is no bucket, or two overlap.
    """

    def __init__(self, buckets: Sequence[Bucket], compile: Callable[[int], T]) -> None:
        if not buckets:
            raise ConfigError("buckets: there is none")
        self.buckets = tuple(sorted(buckets, key=lambda b: b.lo))
        for a, b in zip(self.buckets, self.buckets[1:], strict=False):
            if b.lo <= a.hi:
                raise ConfigError(f"buckets: {a} and {b} overlap ({b.lo} <= {a.hi})")
        self._compile = compile
        self._made: LruCache[Bucket, T] = LruCache(len(self.buckets))

    def bucket_for(self, size: int) -> Bucket | None:
        """The bucket that holds `size`, if one does."""
        return next((b for b in self.buckets if size in b), None)

    def get(self, size: int) -> T | None:
        """The executable for `size`, or `None` for a size in no bucket."""
        bucket = self.bucket_for(size)
        return None if bucket is None else self._made.get_or_make(bucket, lambda: self._compile(bucket.hi))

    @property
    def compiled(self) -> tuple[Bucket, ...]:
        """The buckets that have an executable by now."""
        return tuple(b for b in self.buckets if b in self._made)


def validity_mask(lengths: Sequence[int], size: int) -> np.ndarray:
    """Return a bool mask [batch, size] that is false where a row is padding to `size`.

    Raises:
        LengthMismatchError: A row is longer than `size`, or has a negative length.
    """
    for row, length in enumerate(lengths):
        if not 0 <= length <= size:
            raise LengthMismatchError(f"mask: row {row} has length {length}, which is not in 0..{size}")
    return np.arange(size)[None, :] < np.asarray(lengths, np.int64)[:, None]
