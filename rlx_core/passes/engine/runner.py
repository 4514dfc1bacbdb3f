"""Running passes: order checked first, then each pass timed, stamped, verified, printed and announced.

Nothing here knows a pass. A pass that breaks the rules of the stage is named in the error, because the verifier runs after
every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Literal

from attrs import Factory

from rlx_core.errors import Fact, RlxError, VerifyError
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Graph, Value, leaf_name
from rlx_core.ir.verify import IrStage, check
from rlx_core.passes.engine.base import LOWERED, Context, Conversion, Miss, Pass, Result
from rlx_core.passes.engine.order import check_order
from rlx_core.plugins.use import owner_of
from rlx_core.system.budget import current_work
from rlx_core.system.records import frozen

__all__ = ["PassEvent", "PassRun", "PassesRun", "Watch", "run_passes"]

Listener = Callable[["PassEvent"], None]
Printer = Callable[[str, Graph], None]
Check = Callable[[Graph, IrStage], None]


@frozen
class PassEvent:
    """The event that listeners get at the start and the end of a pass."""

    event: Literal["pass-start", "pass-end"]
    name: str
    nodes: int
    seconds: float = 0.0
    counts: Mapping[str, int] = Factory(dict)


@frozen
class Watch:
    """The observers of a run; none of them changes a result.

    Attributes:
        check: Raises if a graph breaks the rules of its stage; called after every pass that changed it. `None` trusts the
            passes.
        listeners: Called with a `PassEvent` at the start and the end of every pass.
        show: Given a heading and a graph, before and after the passes named in `before` and `after` ("*" is every pass).
    """

    check: Check | None = check
    listeners: tuple[Listener, ...] = ()
    show: Printer | None = None
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    def tell(self, event: PassEvent) -> None:
        for listener in self.listeners:
            listener(event)

    def print(self, moment: str, chosen: frozenset[str], name: str, graph: Graph) -> None:
        if self.show is not None and chosen & {"*", name, name.partition(".")[2]}:
            self.show(f"{moment} {name}", graph)


@frozen
class PassRun:
    """The changes of one pass."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int
    counts: Mapping[str, int]

    @property
    def has_effect(self) -> bool:
        return bool(self.counts) or self.nodes_before != self.nodes_after

    @property
    def effect(self) -> str:
        """The changes and their counts: `softmax 2, mean 1`."""
        return ", ".join(f"{what} {count}" for what, count in self.counts.items())


@frozen(eq=False)
class PassesRun:
    """The result of a list of passes: the graph, the map from the values of the input graph, and the changes of each pass.

    Attributes:
        lowered: The graph when it became MIR; `None` if no pass lowered it.
        conversions: Operations in narrower numbers, and operations that passes considered and kept.
    """

    graph: Graph
    values: Mapping[Value, Value]
    passes: tuple[PassRun, ...]
    misses: tuple[Miss, ...]
    notes: Mapping[str, Any]
    lowered: Graph | None = None
    conversions: tuple[Conversion, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.passes)


NO_WATCH = Watch()


def run_passes(
    passes: Sequence[Pass], graph: Graph, context: Context | None = None, watch: Watch = NO_WATCH
) -> PassesRun:
    """Run `passes` one after the other.

    Raises:
        PassOrderError: A pass requires a property that no earlier one ensures; nothing has run.
        VerifyError: A pass broke the rules of its stage; the error names it.
    """
    context = context or Context()
    check_order(passes)
    done: list[PassRun] = []
    total = Result.unchanged(graph)
    lowered: Graph | None = None
    for each in passes:
        nodes = len(total.graph)
        watch.print("before", watch.before, each.name, total.graph)
        watch.tell(PassEvent("pass-start", each.name, nodes))
        start = perf_counter_ns()
        with time_limit(f"the pass {each.name}"):
            result = run_one(each, total.graph, context)
        seconds = (perf_counter_ns() - start) * 1e-9
        if lowered is None and LOWERED in each.ensures:
            lowered = result.graph
        if watch.check is not None and result.graph is not total.graph:
            verify(each, result.graph, IrStage.HIR if lowered is None else IrStage.MIR, watch.check)
        watch.tell(PassEvent("pass-end", each.name, len(result.graph), seconds, result.counts))
        watch.print("after", watch.after, each.name, result.graph)
        done.append(PassRun(each.name, seconds, nodes, len(result.graph), result.counts))
        total = total.then(result)
    conversions = tuple(total.conversions)
    return PassesRun(total.graph, total.values, tuple(done), tuple(total.misses), total.notes, lowered, conversions)


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Limit the time of the block to the current budget, if one is set.

    Raises:
        BudgetError: It took longer.
    """
    work = current_work()
    if work is None:
        yield
        return
    with work.step(what):
        yield


def run_one(each: Pass, graph: Graph, context: Context) -> Result:
    try:
        with contained("passes", each.name, "the pass"):
            result = each.run(graph, context)
            if not isinstance(result, Result):
                raise TypeError(f"`run` returned {type(result).__name__}, not a Result")
    except RlxError as error:
        raise error.with_fact(Fact("pass", each.name)) from error.__cause__
    if result.graph is not graph:
        expect_signature(each, graph, result.graph)
    return result


def expect_signature(each: Pass, before: Graph, after: Graph) -> None:
    """Require that a pass kept the inputs and the outputs of a program, whose caller knows nothing of passes.

    Parameters may go: nothing reads them any more.

    Raises:
        VerifyError: An input or an output has another type, or there are more or fewer of them.
    """
    comparisons = (
        (
            "inputs",
            [f"{leaf_name(v)}: {v.type}" for v in before.inputs],
            [f"{leaf_name(v)}: {v.type}" for v in after.inputs],
        ),
        ("outputs", list(map(str, before.output_types)), list(map(str, after.output_types))),
    )
    for what, expected, actual in comparisons:
        if expected != actual:
            owner = owner_of("passes", each.name, None)
            raise VerifyError(
                f"{each.name}: the pass changed the {what} of {before.name}",
                Fact("expected", ", ".join(expected) or "none"),
                Fact("found", ", ".join(actual) or "none"),
                Fact("pass", each.name, None if owner is None else owner[0]),
                hint="a pass replaces what a program computes by equal values, and keeps its inputs and outputs",
            )


def verify(each: Pass, graph: Graph, stage: IrStage, check: Check) -> None:
    try:
        check(graph, stage)
    except RlxError as error:
        raise error.with_fact(Fact("after pass", each.name)) from None
