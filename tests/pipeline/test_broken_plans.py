"""Plans that are broken at random: one that the verifiers pass computes what the graph means, and harms nobody.

The kernels of the test target read as late and write as early as they may, so bytes that are shared wrongly show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import Alias, Lir, OutputDelivery, Step
from rlx_core.ir.strides import dense_strides
from rlx_core.ir.verify_lir import verify_lir
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.pipeline.planning.verify_steps import step_faults

Draw = random.Random

PROGRAMS, BATCH, TRIES = 200, 25, 40


def with_step(lir: Lir, number: int, **changes) -> Lir:
    return evolve(lir, steps=(*lir.steps[:number], evolve(lir.steps[number], **changes), *lir.steps[number + 1 :]))


def some_step(draw: Draw, lir: Lir) -> tuple[int, Step]:
    number = draw.randrange(len(lir.steps))
    return number, lir.steps[number]


def slot_moves(draw: Draw, lir: Lir) -> Lir:
    value, other = draw.choice(list(lir.slots)), draw.choice(list(lir.slots))
    anywhere = draw.randrange(0, lir.arena_nbytes, lir.alignment)
    offset = lir.slots[other].offset if draw.random() < 0.7 else anywhere
    return evolve(lir, slots={**lir.slots, value: evolve(lir.slots[value], offset=offset)})


def workspace_moves(draw: Draw, lir: Lir) -> Lir:
    number, step = some_step(draw, lir)
    if step.workspace is None:
        return lir
    offset = draw.choice([slot.offset for slot in lir.slots.values()])
    return with_step(lir, number, workspace=evolve(step.workspace, offset=offset))


def taking_over_is_forgotten(draw: Draw, lir: Lir) -> Lir:
    number, step = some_step(draw, lir)
    return with_step(lir, number, in_place={}) if step.in_place else lir


def more_is_taken_over(draw: Draw, lir: Lir) -> Lir:
    """A result takes over some operand, and lies where it does or where it did."""
    number, step = some_step(draw, lir)
    position = draw.randrange(len(step.node.operands))
    operand, result = step.node.operands[position], step.node.result
    made = with_step(lir, number, in_place={0: position})
    if draw.random() < 0.3 or result not in lir.slots:
        return made
    root = lir.root_of(operand)
    if root in lir.slots:
        return evolve(made, slots={**lir.slots, result: evolve(lir.slots[result], offset=lir.slots[root].offset)})
    aliases = {v: evolve(a, root=root) if a.root is result else a for v, a in lir.aliases.items()}
    slots = {v: slot for v, slot in lir.slots.items() if v is not result}
    return evolve(made, slots=slots, aliases={**aliases, result: Alias(root, 0, dense_strides(result.type))})


def alias_changes(draw: Draw, lir: Lir) -> Lir:
    value = draw.choice(list(lir.aliases))
    alias = lir.aliases[value]
    roots = [v for node in lir.graph.nodes for v in node.results if v not in lir.aliases]
    changed = draw.choice(
        [
            evolve(alias, root=draw.choice(roots)),
            evolve(alias, byte_offset=alias.byte_offset + draw.choice((-8, -4, 4, 8, 16))),
            evolve(alias, strides=tuple(draw.sample(alias.strides, len(alias.strides)))),
        ]
    )
    return evolve(lir, aliases={**lir.aliases, value: changed})


def steps_are_exchanged(draw: Draw, lir: Lir) -> Lir:
    number = draw.randrange(len(lir.steps) - 1)
    steps = list(lir.steps)
    steps[number : number + 2] = reversed(steps[number : number + 2])
    return evolve(lir, steps=tuple(steps))


def delivery_changes(draw: Draw, lir: Lir) -> Lir:
    number = draw.randrange(len(lir.deliveries))
    leaves = [node.result for node in lir.graph.nodes if node.is_leaf]
    made = draw.choice(
        [OutputDelivery("own"), OutputDelivery("copy"), OutputDelivery("donor", draw.choice(leaves)), *lir.deliveries]
    )
    return evolve(lir, deliveries=(*lir.deliveries[:number], made, *lir.deliveries[number + 1 :]))


def donation_changes(draw: Draw, lir: Lir) -> Lir:
    kind = draw.choice(["inputs", "params"])
    entries = list(getattr(lir.manifest, kind))
    number = draw.randrange(len(entries))
    entries[number] = evolve(entries[number], is_donated=not entries[number].is_donated)
    return evolve(lir, manifest=evolve(lir.manifest, **{kind: tuple(entries)}))


WAYS: tuple[Callable[[Draw, Lir], Lir], ...] = (
    slot_moves,
    workspace_moves,
    taking_over_is_forgotten,
    more_is_taken_over,
    alias_changes,
    steps_are_exchanged,
    delivery_changes,
    donation_changes,
)


def donations_of(draw: Draw, graph: Graph) -> dict[str, int | None]:
    """More than half of the leaves, most with an output as their next value."""
    found: dict[str, int | None] = {}
    for leaf in (*graph.inputs, *graph.params):
        if draw.random() < 0.6:
            fitting = [i for i, v in enumerate(graph.outputs) if v.type == leaf.type and i not in found.values()]
            found[leaf.node.op.label] = draw.choice(fitting) if fitting else None
    return found


@pytest.mark.medium
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_a_plan_that_is_verified_computes_what_the_graph_means(generated, fake_target, execute, first):
    target = fake_target(workspace=24)
    complained: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        graph, feeds = generated(seed, size=12)
        draw = random.Random(seed)
        plan = make_lir(graph, target, donations=donations_of(draw, graph))
        expected = interpret(graph, feeds)
        assert not verify_lir(plan)
        assert not step_faults(plan, target.kernels)
        for _ in range(TRIES):
            way = draw.choice(WAYS)
            try:
                broken = way(draw, plan)
            except (IndexError, ValueError):  # nothing there to be broken
                continue
            if broken is plan:
                continue
            is_verified = not (verify_lir(broken) or step_faults(broken, target.kernels))
            is_right = agrees(execute, broken, target, feeds, expected)
            assert is_right or not is_verified, (seed, way.__name__)
            complained[way.__name__] += not is_verified
    assert all(complained[way.__name__] for way in WAYS), "each way breaks something"


def agrees(execute, lir, target, feeds, expected) -> bool:
    """Whether a run ends and gives what is expected; the executor refuses to write to what was not given away."""
    try:
        found = execute(lir, target, feeds)
    except (AssertionError, KeyError, TypeError, ValueError):
        return False
    pairs = zip(found, expected, strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True) for a, b in pairs)
