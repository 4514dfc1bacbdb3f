"""A planned program as text at each level of its lowering: the graph, the plan, loops, and the target's own code.

The core prints its own levels: HIR, MIR, LIR and the loop language. The backend names and prints the levels below
(`Backend.levels`, `Backend.emit`). Steps that share one function are printed once, under a line that lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve

from rlx_core.codegen import formula_of, kernel_of, print_kernel
from rlx_core.codegen.places import layout_of
from rlx_core.errors import ConfigError, Fact, UnknownNameError, nearest
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Lir, Step
from rlx_core.ir.text import print_graph, print_node, value_names
from rlx_core.ir.text_lir import print_lir, print_step
from rlx_core.pipeline.backend import Backend, Level, Listing, Target
from rlx_core.system.records import frozen

HIR: Final = Level("hir", "the program as it was given: blocks and ops")

LEVELS: Final = (
    Level("mir", "the graph after all passes, as the target runs it"),
    Level("lir", "the execution plan: steps, their kernels, and where every value lies"),
    Level("loops", "the loop language that native backends share"),
)
"""The levels that the core prints for every target."""


@frozen(eq=False)
class Planned:
    """A plan with the backend that makes code of it, and the program that it was made from where that is still known."""

    lir: Lir
    backend: Backend
    target: Target
    program: Graph | None = None


def levels_of(planned: Planned) -> dict[str, Level]:
    """Return the levels by name, from the graph down to the machine code."""
    above = () if planned.program is None else (HIR,)
    return {level.name: level for level in (*above, *LEVELS, *planned.backend.levels(planned.target))}


def emit(planned: Planned, level: str, step: int | str | None = None) -> str:
    """Return a program, or some of its steps, as text at one level.

    Args:
        planned: The program; below MIR its sizes are known.
        level: A name of `levels_of(planned)`.
        step: The number of one step, or an op or a kernel whose steps are meant; all steps by default.

    Raises:
        UnknownNameError: The target has no such level, or the plan no such step.
        ConfigError: Sizes are unknown, so that there are no places in memory yet; or steps of HIR, which has none.
    """
    known = levels_of(planned)
    if level not in known:
        why = planned.target.properties.get("why")
        raise UnknownNameError(
            f"emit: {planned.target.name} has no level {level!r}",
            Fact("levels", ", ".join(known)),
            *([Fact("tier", f"{planned.target.properties.get('tier')}: {why}")] if why else []),
            hint=nearest(level, known),
        )
    lir = planned.lir
    if level == HIR.name:
        if step is not None:
            raise ConfigError(f"emit: step {step} is a step of the plan, and hir has none", hint="emit it at mir")
        assert planned.program is not None, "the level is offered where the program is known"
        return print_graph(planned.program)
    steps = range(len(lir.steps)) if step is None else steps_called(lir, step)
    if level == "mir" and step is None:
        return print_graph(lir.graph)
    if level == "lir" and step is None:
        return print_lir(evolve(lir, options={}))  # `rlx plan` prints those; here they would be most of the page
    if level not in ("mir", "lir") and not lir.is_planned:
        symbols = ", ".join(sorted(map(str, lir.graph.symbols)))
        raise ConfigError(
            f"emit: {level} needs to know where values lie, and {symbols} {'are' if ',' in symbols else 'is'} not known",
            hint=f"bind sizes: --bind {symbols.partition(', ')[0]}=8",
        )
    return "\n".join(_written(lir, known[level], _listings(planned, level, steps)))


def steps_called(lir: Lir, which: int | str) -> tuple[int, ...]:
    """Return the steps that a number, an op, a kernel or the name of a result refers to.

    Raises:
        UnknownNameError: No step matches.
    """
    if isinstance(which, str) and not which.isdecimal():
        matches = tuple(i for i, step in enumerate(lir.steps) if which in _names(step))
        if matches:
            return matches
        names = {name for step in lir.steps for name in (step.node.op.name.removeprefix("rlx."), step.kernel)}
        raise UnknownNameError(
            f"emit: no step is called {which!r}",
            Fact("steps", f"0..{len(lir.steps) - 1}" if lir.steps else "none"),
            Fact("ops", ", ".join(dict.fromkeys(step.node.op.name for step in lir.steps)) or "none"),
            hint=nearest(which, names),
        )
    number = int(which)
    if not 0 <= number < len(lir.steps):
        valid = f"0..{len(lir.steps) - 1}" if lir.steps else "none"
        raise UnknownNameError(f"emit: there is no step {number}; the plan has {len(lir.steps)} ({valid})")
    return (number,)


def _names(step: Step) -> set[str]:
    name = step.node.op.name
    return {name, name.removeprefix("rlx."), step.kernel, step.node.label, step.node.label.removeprefix("%")}


def _listings(planned: Planned, level: str, steps: Sequence[int]) -> Sequence[Listing]:
    lir = planned.lir
    if level == "mir":
        names = value_names(lir.graph)
        return [Listing((i,), print_node(lir.steps[i].node, names)) for i in steps]
    if level == "lir":
        return [Listing((i,), print_step(lir, i)) for i in steps]
    if level == "loops":
        return list(_loops(lir, steps))
    return planned.backend.emit(lir, planned.target, lir.options, level, steps)


def _written(lir: Lir, level: Level, listings: Sequence[Listing]) -> Iterator[str]:
    """Yield every listing under a line that lists its steps, in the order of the first steps."""
    for each in sorted(listings, key=lambda listing: listing.steps):
        first = lir.steps[each.steps[0]]
        numbers = ", ".join(map(str, each.steps))
        note = f"; {each.note}" if each.note else ""
        whose = f"{'step' if len(each.steps) == 1 else 'steps'} {numbers}: {first.node.op.name} by {first.kernel}{note}"
        yield f"{level.comment} {whose}\n{each.text}"


# ------------------------------------------------------------------------------------------------ loops


def _loops(lir: Lir, steps: Sequence[int]) -> Iterator[Listing]:
    groups: dict[tuple[str, str], list[int]] = {}
    for i in steps:
        # The kernel's own name distinguishes steps that have the same meaning and run differently.
        groups.setdefault((_loop_text(lir, lir.steps[i]), lir.steps[i].kernel), []).append(i)
    for (text, _), numbers in groups.items():
        yield Listing(tuple(numbers), text, "" if text else "its meaning is not one loop kernel")


def _loop_text(lir: Lir, step: Step) -> str:
    """Return the step in the loop language, independent of its offsets; empty if it is no loop kernel."""
    node = step.node
    formula = formula_of(node.op, node.operand_types)
    if formula is None:
        return ""
    layout = layout_of(step, lir)
    return print_kernel(kernel_of(formula, layout.operands, layout.results))
