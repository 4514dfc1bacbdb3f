"""MIR to LIR: a legal graph becomes a program with a schedule, aliases and a memory plan.

The steps of this module in order: schedule, choose kernels, find views, let results share storage, give the rest offsets.
A graph with symbols becomes a *template*: scheduled, but without aliases or offsets, which need sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, get_args

from attrs import field

from rlx_core.errors import ConfigError, Fact, NoKernelError, nearest
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Constant, Graph, Input, Node, Param, Value, nested_graphs
from rlx_core.ir.lir import Alias, Lir, OutputDelivery, Slot, Step, TemplateOrigin, is_made_of_parts
from rlx_core.ir.op import Op
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import Kernel
from rlx_core.pipeline.planning.alias import Parts, Views, place_views, with_parts
from rlx_core.pipeline.planning.manifest import donated_leaves, make_manifest
from rlx_core.pipeline.planning.memory import STRATEGIES, plan_memory
from rlx_core.pipeline.planning.phases import phases
from rlx_core.pipeline.planning.schedule import Flow, Order, schedule
from rlx_core.pipeline.planning.storage import Reuse, outlets
from rlx_core.system.records import frozen

ChooseKernel = Callable[[Node], Kernel | None]

_LEAVES: Final[Mapping[str, type[Op]]] = {"inputs": Input, "params": Param, "constants": Constant}


@frozen
class PlanOptions:
    """Options of planning.

    Attributes:
        order: `insertion` keeps the graph's order; `relief` as well, but nodes that add no bytes come early; `memory` runs first
            the node that frees most.
        strategy: The packing of the arena; a name of `memory.STRATEGIES`.
        alignment: Bytes; the target's own if `None`.
        views: Whether results may be views of their operands.
        in_place: Whether results may take over bytes, and operands be computed inside a concatenation.
        arena_holds: Kinds of leaves that get arena bytes for the whole run: `inputs`, `params`, `constants`. Donated ones
            stay where the caller has them.

    Raises:
        ConfigError: A name is not one of these, or the alignment is not a positive number.
    """

    order: Order = "relief"
    strategy: str = "best"
    alignment: int | None = None
    views: bool = True
    in_place: bool = True
    arena_holds: frozenset[str] = field(default=frozenset(), converter=frozenset)

    def __attrs_post_init__(self) -> None:
        _expect_names("order", (self.order,), get_args(Order))
        _expect_names("strategy", (self.strategy,), tuple(STRATEGIES))
        _expect_names("arena_holds", sorted(self.arena_holds), tuple(_LEAVES))
        if self.alignment is not None and self.alignment < 1:
            raise ConfigError(f"plan: alignment must be at least 1 byte, not {self.alignment}")


def _expect_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"plan: {option} is {name!r}, which is none of {', '.join(known)}", hint=nearest(name, known)
            )


def make_lir(
    graph: Graph,
    target: Target,
    *,
    output_names: Sequence[str] | None = None,
    donations: Mapping[str, int | None] | None = None,
    prepare: Graph | None = None,
    choose: ChooseKernel | None = None,
    options: PlanOptions | None = None,
    resolved: Mapping[str, object] | None = None,
    fingerprint: str = "",
    flow: Flow | None = None,
    origin: TemplateOrigin | None = None,
) -> Lir:
    """The program that runs `graph` on `target`.

    Args:
        graph: MIR in which every node has a kernel on the target, or is a view there.
        target: The target of the program.
        output_names: The caller's names of the outputs; `out0`, `out1`, … if not given.
        donations: Names of inputs and params whose buffers the program may overwrite, each with the index of the output that
            is its next value (which then comes back in that very buffer), or `None`.
        prepare: The graph that computes `graph`'s params from the caller's, if they differ.
        choose: The kernel for a node, when the choice was made elsewhere; the first that accepts it otherwise.
        options: The options of planning.
        resolved: The resolved pipeline plan, kept with the program.
        fingerprint: Kept with the program.
        flow: The size-independent data of the graph for scheduling, if known.
        origin: The template that `graph` is a binding of, node by node; kept with the program.

    Raises:
        NoKernelError: A node that must run has no kernel; all such nodes are listed.
        UnknownNameError, ConfigError: A donation names no leaf, no output, or an output of another type.
    """
    plan = options or PlanOptions()
    donated = donated_leaves(graph, donations or {})
    manifest = make_manifest(graph, output_names, donations or {}, prepare)
    find = _Kernels(target, choose)
    draft = _draft(graph, target, plan, find, donated, flow)
    lir = Lir(
        graph,
        target.name,
        draft.steps,
        {},
        draft.aliases,
        draft.deliveries,
        manifest,
        prepare,
        0,
        plan.alignment or target.alignment,
        graph.guards,
        fingerprint,
        dict(resolved or {}),
        origin,
    )
    if not lir.is_planned:
        return lir
    return plan_memory(lir, plan.strategy, resident=_held(graph, plan, donated))


class _Kernels:
    """The kernel of each node, looked up once."""

    def __init__(self, target: Target, choose: ChooseKernel | None) -> None:
        self.target = target
        self._choose = choose or target.kernel_for
        self._found: dict[Node, Kernel | None] = {}

    def __call__(self, node: Node) -> Kernel | None:
        if node not in self._found:
            self._found[node] = self._choose(node)
        return self._found[node]

    def for_all(self, nodes: Iterable[Node]) -> tuple[tuple[Node, Kernel], ...]:
        """Each node with its kernel.

        Raises:
            NoKernelError: Some have none.
        """
        chosen: list[tuple[Node, Kernel]] = []
        missing: list[Fact] = []
        for node in nodes:
            kernel = self(node)
            if kernel is None:
                missing.append(Fact(node.label, f"{node.op.name}: {self._reasons(node)}", node.origin.source))
            else:
                chosen.append((node, kernel))
        if missing:
            raise NoKernelError(
                f"{self.target.name}: {len(missing)} of {len(chosen) + len(missing)} steps have no kernel",
                *missing,
                hint="legalise the graph for this target before it is planned",
            )
        return tuple(chosen)

    def _reasons(self, node: Node) -> str:
        refusals = self.target.kernels.choose(node).refusals
        return "; ".join(f"{r.kernel} {r.reason}" for r in refusals) or "no kernel is registered for it"


@frozen(eq=False)
class _Draft:
    """A program without offsets; workspaces have their sizes."""

    steps: tuple[Step, ...]
    aliases: Mapping[Value, Alias]
    deliveries: tuple[OutputDelivery, ...]


def _draft(
    graph: Graph,
    target: Target,
    plan: PlanOptions,
    find: _Kernels,
    donated: Mapping[Value, int | None],
    flow: Flow | None = None,
    *,
    is_nested: bool = False,
) -> _Draft:
    order = schedule(graph, plan.order, flow)
    phase = phases(order)
    if graph.symbols:
        steps = tuple(Step(node, kernel.name, phase=phase[node]) for node, kernel in find.for_all(order))
        leaves = {index: leaf for leaf, index in donated.items()}
        deliveries = tuple(
            OutputDelivery("donor", leaves[i]) if i in leaves else OutputDelivery("copy")
            for i in range(len(graph.outputs))
        )
        return _Draft(steps, {}, deliveries)

    possible = Views(graph, frozenset(order), find, target.accepts_views)
    views = place_views(possible, order) if plan.views else {}
    outs = outlets(graph, views, donated, are_own=not is_nested)
    parts = Parts(possible, views, plan.alignment or target.alignment)
    owned = parts.of(order, pinned=outs.lasting) if plan.in_place else {}
    moved = with_parts({}, {root: alias for parts in owned.values() for root, alias in parts.items()})
    aliases = place_views(possible, order, moved, views) if plan.views and moved else moved or views
    runs = [n for n in order if n.results[0] not in views and not (n in owned and is_made_of_parts(n))]
    assert views.keys() <= aliases.keys(), "what was a view is one where its operand is a part"
    kernels = find.for_all(runs)
    reuse = Reuse(graph, kernels, aliases, outs).run(in_place=plan.in_place)
    steps = tuple(
        _step(node, kernel, phase[node], reuse.in_place.get(node, {}), target, plan, find) for node, kernel in kernels
    )
    return _Draft(steps, with_parts(aliases, reuse.homes()), reuse.deliveries())


def _step(
    node: Node,
    kernel: Kernel,
    phase: str,
    in_place: Mapping[int, int],
    target: Target,
    plan: PlanOptions,
    find: _Kernels,
) -> Step:
    alignment = plan.alignment or target.alignment
    carried: Mapping[str, int] = {} if node.op.carried is None else node.op.carried()
    nested = (
        {name: _nested(body, carried.get(name, 0), target, plan, find) for name, body in nested_graphs(node.op).items()}
        if kernel.runs_nested
        else {}
    )
    local_nbytes = 0
    if kernel.workspace is not None:
        with contained("kernels", kernel.name, f"the workspace of {node.op.name}", kernel.plugin):
            local_nbytes = kernel.workspace(node).__index__()
    local_nbytes = -(-local_nbytes // alignment) * alignment if nested else local_nbytes
    nbytes = local_nbytes + max((body.arena_nbytes for body in nested.values()), default=0)
    return Step(
        node,
        kernel.name,
        Slot(0, nbytes) if nbytes else None,
        dict(in_place),
        phase,  # type: ignore[arg-type]
        nested,
        local_nbytes,
    )


def _nested(graph: Graph, carried: int, target: Target, plan: PlanOptions, find: _Kernels) -> Lir:
    """Return the plan of a nested graph: its outputs stay in its arena, from where the enclosing step copies them, or take over
    the carried values: the first inputs, whose next values are the first outputs."""
    donations = dict(zip(list(graph.input_types)[:carried], range(carried), strict=True))
    draft = _draft(graph, target, plan, find, donated_leaves(graph, donations), is_nested=True)
    manifest = make_manifest(graph, None, donations, None)
    alignment = plan.alignment or target.alignment
    lir = Lir(
        graph, target.name, draft.steps, {}, draft.aliases, draft.deliveries, manifest, None, 0, alignment, graph.guards
    )
    return plan_memory(lir, plan.strategy)


def _held(graph: Graph, plan: PlanOptions, donated: Mapping[Value, object]) -> frozenset[Value]:
    kinds = tuple(_LEAVES[name] for name in sorted(plan.arena_holds))
    return frozenset(n.result for n in graph.nodes if n.is_leaf and isinstance(n.op, kinds) and n.result not in donated)
