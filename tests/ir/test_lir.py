"""Execution plans: text and file forms, and a verifier that finds every broken plan."""

import random

import numpy as np
import pytest
from attrs import evolve

from rlx_core.errors import FormatError, UnknownNameError, VerifyError
from rlx_core.ir.attributes import Encoder
from rlx_core.ir.dims import symbol
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.lir import Alias, OutputDelivery, Slot, Step
from rlx_core.ir.module import IrStage, Module
from rlx_core.ir.op import Op
from rlx_core.ir.plan_form import encode_lir, fingerprint_lir
from rlx_core.ir.serialize import load, save
from rlx_core.ir.text_lir import parse_lir, print_lir
from rlx_core.ir.types import TensorType, spec
from rlx_core.ir.verify_lir import check_lir, verify_lir
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, multiply, negative
from rlx_core.ops.movement import narrow
from rlx_core.ops.structural import reshape, transpose
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.planner import make_lir


def target():
    table = KernelTable("test")

    @table.register(Op, in_place=(0, 1), accepts_strides=True, workspace=lambda node: 100)
    def anything(op, *operands, out, workspace):
        """Only planned for, never run."""

    return Target("test", table, alignment=64)


def graph():
    b = Builder()
    x, w = b.input("x", spec("f32[4, 8]")), b.param("w", spec("f32[8, 4]"))
    with building(b):
        h = exp(add(x, 1.0))
        t = transpose(reshape(h, (8, 4)), (1, 0))
        k = negative(exp(t))
        y = multiply(reshape(k, (8, 4)), w)
        z = add(exp(y), reshape(k, (8, 4)))
    return b.finish([z, reshape(y, (32,))])


def plan(**changes):
    made = make_lir(graph(), target(), resolved={"passes": ["a", ("b", 1)], "x": {"y": 0.5}}, **changes)
    assert verify_lir(made) == []
    return made


def same(a, b):
    return fingerprint_lir(a) == fingerprint_lir(b) and a.fingerprint == b.fingerprint


PLANS = {
    "plain": {},
    "donated": {"donations": {"x": None}},
    "named": {"output_names": ["loss", "grad"], "fingerprint": "abc"},
}


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS.keys())
def test_a_plan_prints_and_parses_back(changes, ops):
    lir = plan(**changes)
    again = parse_lir(print_lir(lir), ops)
    assert same(again, lir)
    assert print_lir(again) == print_lir(lir)
    assert verify_lir(again) == []


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS.keys())
def test_a_plan_is_stored_and_loaded(changes, ops):
    module = Module.of_lir(plan(**changes))
    again = load(save(module), ops)
    assert again == module
    assert again.stage is IrStage.LIR
    assert again.inspect() == module.inspect()


def test_a_template_is_a_plan_without_offsets(ops):
    b = Builder()
    lir = make_lir(b.finish([exp(b.input("x", TensorType(spec("f32[]").dtype, (symbol("n"),))))]), target())
    assert verify_lir(lir) == []
    assert same(parse_lir(print_lir(lir), ops), lir)


def test_the_fingerprint_covers_the_plan():
    lir = plan()
    step = evolve(lir.steps[0], kernel="other")
    value, slot = next(iter(lir.slots.items()))
    changes = [
        evolve(lir, target="x"),
        evolve(lir, alignment=128),
        evolve(lir, arena_nbytes=lir.arena_nbytes + 64),
        evolve(lir, steps=(step, *lir.steps[1:])),
        evolve(lir, slots={**lir.slots, value: Slot(slot.offset + 64, slot.nbytes)}),
        evolve(lir, options={"x": 1}),
        evolve(lir, aliases={}),
        evolve(
            lir, manifest=evolve(lir.manifest, inputs=tuple(evolve(e, is_donated=True) for e in lir.manifest.inputs))
        ),
    ]
    assert len({fingerprint_lir(x) for x in (lir, *changes)}) == len(changes) + 1
    assert fingerprint_lir(lir, context={"device": "a"}) != fingerprint_lir(lir)


# -------------------------------------------------------------------------------------- broken plans


def faults(lir):
    return "\n".join(map(repr, verify_lir(lir)))


def with_slot(lir, value, **changes):
    return evolve(lir, slots={**lir.slots, value: evolve(lir.slots[value], **changes)})


def slotted(lir):
    return next(iter(lir.slots))


def first_alias(lir):
    return next(v for v, a in lir.aliases.items() if a.root is not v)


def overlapping(lir):
    return evolve(lir, slots={v: evolve(s, offset=0) for v, s in lir.slots.items()}, steps=tuple(moved(lir)))


def moved(lir):
    for step in lir.steps:
        yield evolve(step, in_place={}, workspace=None if step.workspace is None else evolve(step.workspace, offset=0))


def onto_param(lir):
    value = slotted(lir)
    w = lir.graph.find("w")
    slots = {v: s for v, s in lir.slots.items() if v is not value}
    taken = [v for v in lir.aliases if lir.aliases[v].root is value]
    aliases = {v: a for v, a in lir.aliases.items() if v not in taken}
    return evolve(lir, slots=slots, aliases={**aliases, value: Alias(w, 0, (32, 4))})


def apart(lir):
    """A result that says it takes over an operand, behind everything else in the arena."""
    result = next(step.node.result for step in lir.steps if step.in_place)
    room = evolve(lir.slots[result], offset=lir.arena_nbytes + -lir.arena_nbytes % lir.alignment)
    return evolve(lir, arena_nbytes=room.end, slots={**lir.slots, result: room})


def turned(lir, is_step):
    """The strides of an alias the other way round: of a step's result, or of a view."""
    results = {v for step in lir.steps for v in step.node.results}
    value = next(v for v, a in lir.aliases.items() if v.type.rank == 2 and (v in results) is is_step)
    alias = lir.aliases[value]
    return evolve(lir, aliases={**lir.aliases, value: evolve(alias, strides=alias.strides[::-1])})


def delivered(lir, *deliveries):
    return evolve(lir, deliveries=deliveries)


def in_arena(lir):
    return evolve(lir, slots={**lir.slots, lir.own_roots[0]: Slot(0, 128)})


def outside(lir):
    value = first_alias(lir)
    return evolve(lir, aliases={**lir.aliases, value: evolve(lir.aliases[value], byte_offset=64)})


BREAKS = {
    "a step is missing": (lambda p: evolve(p, steps=p.steps[1:]), "is needed, is no view, and is not scheduled"),
    "a step is there twice": (lambda p: evolve(p, steps=(*p.steps, p.steps[0])), "scheduled twice, as step 0 and"),
    "steps are exchanged": (lambda p: evolve(p, steps=p.steps[::-1]), "and an operand is computed by step"),
    "a leaf is scheduled": (
        lambda p: evolve(p, steps=(Step(p.graph.nodes[0], "k"), *p.steps)),
        "a leaf is scheduled",
    ),
    "a slot is not aligned": (lambda p: with_slot(p, slotted(p), offset=3), "not a multiple of the alignment 64"),
    "a slot leaves the arena": (lambda p: with_slot(p, slotted(p), offset=1 << 20), "outside the arena"),
    "a slot has another size": (lambda p: with_slot(p, slotted(p), nbytes=64), "and its slot has 64"),
    "values overlap": (overlapping, "shares bytes"),
    "a weight is written": (onto_param, "of param %w, which nobody donated"),
    "an alias leaves its root": (outside, "of %"),
    "an alias has too few strides": (
        lambda p: evolve(p, aliases={**p.aliases, first_alias(p): evolve(p.aliases[first_alias(p)], strides=())}),
        "alias has 0 strides",
    ),
    "a slot is missing": (lambda p: evolve(p, slots={}), "has no bytes to be written to"),
    "an output is listed twice": (
        lambda p: evolve(p, manifest=evolve(p.manifest, outputs=p.manifest.outputs * 2)),
        "are not the 2 of the graph",
    ),
    "an input is renamed": (
        lambda p: evolve(p, manifest=evolve(p.manifest, inputs=tuple(evolve(e, name="q") for e in p.manifest.inputs))),
        "its inputs are ['q'], those of the graph ['x']",
    ),
    "a delivery is missing": (lambda p: evolve(p, deliveries=()), "how 0 of 2 outputs are delivered"),
    "it is another graph's": (lambda p: evolve(p, graph=graph()), "another graph"),
    "in place, and elsewhere": (apart, "does not lie where it does"),
    "a view lies the other way round": (lambda p: turned(p, is_step=False), "and by its op at"),
    "a result lies the other way round": (lambda p: turned(p, is_step=True), "which are not rows"),
    "an own buffer is in the arena": (in_arena, "which lies in the arena"),
    "a buffer comes back that nobody gave": (
        lambda p: delivered(p, OutputDelivery("donor", p.graph.find("w")), p.deliveries[1]),
        "output out0 comes back in %w, which nobody donated",
    ),
    "a buffer comes back and is none": (
        lambda p: delivered(p, OutputDelivery("donor"), p.deliveries[1]),
        "delivered as donor, which needs a donor",
    ),
    "in place takes over nothing": (
        lambda p: evolve(p, steps=(evolve(p.steps[0], in_place={0: 7}), *p.steps[1:])),
        "no operand 7 to take over",
    ),
}


@pytest.mark.parametrize(("spoil", "says"), BREAKS.values(), ids=BREAKS.keys())
def test_a_broken_plan_is_found(spoil, says):
    broken = spoil(plan())
    assert says in faults(broken)
    with pytest.raises(VerifyError):
        check_lir(broken)


def handing(*, donations=None, **made):
    """A plan of a small graph: x and w of [4, 4], and outputs made from them."""
    b = Builder()
    x, w = b.input("x", spec("f32[4, 4]")), b.param("w", spec("f32[4, 4]"))
    with building(b):
        outputs = made["outputs"](x, w)
    lir = make_lir(b.finish(outputs), target(), donations=donations)
    assert verify_lir(lir) == []
    return lir


def in_x(lir, *, reads_first=0):
    """The only step in the bytes of %x."""
    (step,) = lir.steps
    alias = Alias(lir.graph.find("x"), 0, (16, 4))
    made = evolve(lir, steps=(evolve(step, in_place={0: reads_first}),), deliveries=(OutputDelivery("copy"),))
    return evolve(made, aliases={**lir.aliases, step.node.result: alias})


HANDED = {
    "the caller's own input": (
        handing(outputs=lambda x, w: [x]),
        lambda p: delivered(p, OutputDelivery("own")),
        "output out0 is handed out as %x, which is the caller's",
    ),
    "one buffer twice": (
        handing(outputs=lambda x, w: [(y := exp(x)), y]),
        lambda p: delivered(p, OutputDelivery("own"), OutputDelivery("own")),
        "and so is another",
    ),
    "a part of a buffer": (
        handing(outputs=lambda x, w: [(y := exp(x)), narrow(y, axis=0, start=0, length=2)]),
        lambda p: delivered(p, OutputDelivery("copy"), OutputDelivery("own")),
        "of which it is a part",
    ),
    "one donor twice": (
        handing(outputs=lambda x, w: [exp(x), exp(w)], donations={"x": 0}),
        lambda p: delivered(p, p.deliveries[0], p.deliveries[0]),
        "output out0 comes back in %x, and so does another",
    ),
    "a donor of another type": (
        handing(outputs=lambda x, w: [reshape(exp(w), (16,))], donations={"x": None}),
        lambda p: delivered(p, OutputDelivery("donor", p.graph.find("x"))),
        "is f32[16] and comes back in %x, which is f32[4, 4]",
    ),
    "a value that another operand shows in another order": (
        handing(outputs=lambda x, w: [add(x, transpose(x, (1, 0)))], donations={"x": None}),
        in_x,
        "takes over %x, which it reads as %2 too",
    ),
    "what is read when the run ends": (
        handing(outputs=lambda x, w: [exp(x)]),
        in_x,
        "of input %x, which nobody donated",
    ),
}


@pytest.mark.parametrize(("lir", "spoil", "says"), HANDED.values(), ids=HANDED.keys())
def test_nobody_is_handed_or_overwrites_what_another_has(lir, spoil, says):
    assert says in faults(spoil(lir))


def test_a_donated_input_may_be_written():
    donated = plan(donations={"x": None})
    assert verify_lir(donated) == []


def test_a_broken_plan_is_not_loaded(ops):
    broken = overlapping(plan())
    with pytest.raises(VerifyError, match="LIR program"):
        load(save(Module(IrStage.LIR, broken)), ops)


def test_taking_over_needs_the_step_to_say_so():
    lir = plan()
    assert any(step.in_place for step in lir.steps)
    silent = evolve(lir, steps=tuple(evolve(s, in_place={}) for s in lir.steps))
    assert "shares bytes" in faults(silent)


def random_graph(seed):
    draw = random.Random(seed)
    b = Builder()
    values = [b.input("x", spec("f32[4, 8]")), b.param("w", spec("f32[4, 8]"))]
    with building(b):
        for _ in range(draw.randrange(3, 25)):
            x, y = draw.choice(values), draw.choice(values)
            made = draw.choice(
                [
                    lambda x=x: exp(x),
                    lambda x=x, y=y: add(x, y),
                    lambda x=x: reshape(transpose(x, (1, 0)), (4, 8)),
                    lambda x=x: transpose(transpose(x, (1, 0)), (1, 0)),
                ]
            )
            values.append(made())
    return b.finish(draw.sample(values, min(3, len(values))))


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_random_graphs_verify_and_round_trip(seed, ops):
    lir = make_lir(random_graph(seed), target())
    assert verify_lir(lir) == []
    assert same(parse_lir(print_lir(lir), ops), lir)


def test_every_truncated_text_is_a_format_error(ops):
    text = print_lir(plan()).rstrip()
    for end in range(0, len(text), 17):
        with pytest.raises(FormatError):
            parse_lir(text[:end], ops)


@pytest.mark.medium
def test_a_forged_plan_gives_a_plan_or_a_typed_error(ops):
    draw = random.Random(7)
    text = print_lir(plan())
    for _ in range(300):
        place = draw.randrange(len(text))
        forged = text[:place] + draw.choice('0159%{}(),."x -') + text[place + 1 :]
        try:
            check_lir(parse_lir(forged, ops))
        except (FormatError, VerifyError, UnknownNameError):
            continue


def test_options_keep_their_values(ops):
    lir = plan()
    assert parse_lir(print_lir(lir), ops).options == {"passes": ("a", ("b", 1)), "x": {"y": 0.5}}
    assert np.all([isinstance(k, str) for k in encode_lir(lir, Encoder())])
