"""The arena: disjoint where lives overlap, aligned, close to the lower bound, the same every time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from ast import literal_eval
from itertools import pairwise

import pytest

from rlx_core.draw.plan_report import memory_report
from rlx_core.functions.functional import value_and_grad
from rlx_core.ir.dtypes import f32
from rlx_core.ir.graph import Builder, Graph, Value
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, negative, subtract
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import matmul
from rlx_core.ops.normalization import layer_norm
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import reshape, sum_axes, transpose
from rlx_core.pipeline.planning import memory
from rlx_core.pipeline.planning.memory import STRATEGIES, LiveRange, live_ranges, lower_bound
from rlx_core.pipeline.planning.planner import PlanOptions, make_lir
from rlx_core.transforms.trace import trace


def overlapping(ranges: list[LiveRange], offsets: list[int]) -> list[tuple[int, int]]:
    """Pairs of ranges that are needed together and share bytes."""
    placed = sorted(zip(offsets, ranges, range(len(ranges)), strict=True), key=lambda p: p[0])
    return [
        (i, j)
        for n, (low, a, i) in enumerate(placed)
        for high, b, j in placed[n + 1 :]
        if high < low + a.nbytes and a.birth <= b.death and b.birth <= a.death
    ]


def random_ranges(seed: int, count: int) -> list[LiveRange]:
    rng = random.Random(seed)
    births = [rng.randrange(count) for _ in range(count)]
    return [LiveRange(rng.choice((1, 7, 64, 100, 4096)) * rng.randrange(1, 5), b, b + rng.randrange(9)) for b in births]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("alignment", [1, 64, 48])
def test_ranges_that_are_needed_together_share_no_byte(strategy, alignment):
    for seed in range(25):
        ranges = random_ranges(seed, 1 + seed * 3)
        offsets = STRATEGIES[strategy](ranges, alignment)

        assert not overlapping(ranges, offsets)
        assert all(o % alignment == 0 and o >= 0 for o in offsets)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_ranges_need_no_bytes(strategy):
    assert STRATEGIES[strategy]([], 64) == []


@pytest.mark.medium
def test_a_strategy_is_a_function_of_its_ranges():
    """In another process too, where hashes and addresses are others."""
    code = """
from rlx_core.pipeline.planning.memory import STRATEGIES, LiveRange
ranges = [LiveRange(n, birth, death) for n, birth, death in %r]
print({name: plan(ranges, 64) for name, plan in STRATEGIES.items()})
"""
    ranges = random_ranges(3, 40)
    given = [(r.nbytes, r.birth, r.death) for r in ranges]
    done = subprocess.run(
        [sys.executable, "-c", code % given], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "17"},
    )  # fmt: skip
    assert literal_eval(done.stdout) == {name: plan(ranges, 64) for name, plan in STRATEGIES.items()}


def test_the_best_is_no_worse_than_any_other():
    def height(ranges: list[LiveRange], offsets: list[int]) -> int:
        return max(o + r.nbytes for o, r in zip(offsets, ranges, strict=True))

    for seed in range(15):
        ranges = random_ranges(seed, 30)
        found = {name: height(ranges, plan(ranges, 1)) for name, plan in STRATEGIES.items()}
        assert found["best"] == min(found.values())
        assert found["best"] >= lower_bound(ranges)


def test_disjoint_lives_share_and_overlapping_ones_do_not():
    first, second, third = LiveRange(64, 0, 1), LiveRange(64, 2, 3), LiveRange(64, 1, 2)
    offsets = STRATEGIES["best"]([first, second, third], 64)

    assert offsets[0] == offsets[1] != offsets[2]


def test_nothing_shares_without_a_strategy():
    assert STRATEGIES["none"]([LiveRange(10, 0, 0), LiveRange(10, 5, 5)], 16) == [0, 16]


# ---------------------------------------------------------------- arenas close to the lower bound


def transformer_ranges(layers: int, tokens: int, width: int) -> list[LiveRange]:
    """What one encoder layer after another needs: norm, three projections, scores, context, a wide hidden, residuals."""
    unit, wide, scores = tokens * width * 4, tokens * width * 16, tokens * tokens * 12 * 4
    ranges: list[LiveRange] = []
    step = 0
    for _ in range(layers):
        lives = [
            (unit, 0, 9), (unit, 1, 4), (unit, 2, 6), (unit, 3, 7), (unit, 4, 6), (scores, 6, 8), (scores // 4, 7, 7),
            (unit, 8, 9), (unit, 9, 14), (unit, 10, 11), (wide, 11, 12), (wide, 12, 13), (unit, 13, 14), (tokens * 4, 10, 11),
        ]  # fmt: skip
        ranges += [LiveRange(n, step + b, step + d) for n, b, d in lives]
        step += 14
    return ranges


def training_ranges(widths: list[int], batch: int) -> list[LiveRange]:
    """An MLP's training step: activations live until the backward pass reaches them, gradients until they are applied."""
    layers = len(widths) - 1
    ranges: list[LiveRange] = []
    for i in range(layers):
        back = 4 * layers - 2 * i
        ranges += [
            LiveRange(batch * widths[i + 1] * 4, 2 * i, 2 * i + 1),
            LiveRange(batch * widths[i + 1] * 4, 2 * i + 1, back),
            LiveRange(batch * widths[i + 1], 2 * i + 1, back),
            LiveRange(batch * widths[i] * 4, back - 1, back + 1),
            LiveRange(widths[i] * widths[i + 1] * 4, back, back + 1),
            LiveRange(widths[i + 1] * 4, back, back + 1),
        ]
    return ranges


PROGRAMS = {
    "MiniLM, 16 tokens": transformer_ranges(6, 16, 384),
    "MiniLM, 128 tokens": transformer_ranges(6, 128, 384),
    "encoder, 1024 tokens": transformer_ranges(12, 1024, 768),
    "32 layers": transformer_ranges(32, 64, 1024),
    "digits classifier": training_ranges([64, 128, 64, 10], 128),
    "deep MLP": training_ranges([784, 1024, 700, 512, 300, 256, 100, 10], 256),
}


@pytest.mark.parametrize("ranges", PROGRAMS.values(), ids=PROGRAMS)
def test_the_arena_is_close_to_the_lower_bound(ranges):
    offsets = STRATEGIES["best"](ranges, 64)

    height = max(o + r.nbytes for o, r in zip(offsets, ranges, strict=True))
    assert height <= 1.05 * lower_bound(ranges)
    assert not overlapping(ranges, offsets)


def encoder(layers: int, batch: int, tokens: int, width: int = 96, heads: int = 4) -> Graph:
    """A transformer encoder with its attention written out."""
    builder = Builder("encoder")

    def weight(name: str, *shape: int) -> Value:
        return builder.param(f"{name}{len(builder.nodes)}", TensorType(f32, shape))

    def split(x: Value) -> Value:
        return transpose(reshape(x, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))

    def dense(x: Value, name: str, out: int) -> Value:
        return matmul(x, weight(f"w{name}", x.type.static_shape[-1], out)) + weight(f"b{name}", out)

    x = builder.input("x", TensorType(f32, (batch, tokens, width))) * 2.0
    for _ in range(layers):
        q, k, v = (split(dense(x, name, width)) for name in "qkv")
        attended = matmul(softmax(matmul(q, transpose(k, (0, 1, 3, 2))) * 0.1, axis=-1), v)
        joined = reshape(transpose(attended, (0, 2, 1, 3)), (batch, tokens, width))
        x = layer_norm(x + dense(joined, "o", width), weight("g", width), weight("h", width))
        x = layer_norm(x + dense(tanh(dense(x, "u", 4 * width)), "d", width), weight("i", width), weight("j", width))
    return builder.finish([x])


def training_step(widths: tuple[int, ...], batch: int) -> Graph:
    """Loss, gradients and updated parameters of an MLP; output 0 is the loss, the others are the parameters in order."""

    def loss(layers: list[tuple[Value, Value]], x: Value, y: Value) -> Value:
        for w, b in layers:
            x = tanh(matmul(x, w) + b)
        return sum_axes((x - y) * (x - y), axes=(0, 1))

    def step(layers: list[tuple[Value, Value]], x: Value, y: Value) -> object:
        value, gradients = value_and_grad(loss)(layers, x, y)
        pairs = zip(layers, gradients, strict=True)
        return value, [(w - gw * 0.1, b - gb * 0.1) for (w, b), (gw, gb) in pairs]

    layers = [(TensorType(f32, (a, b)), TensorType(f32, (b,))) for a, b in pairwise(widths)]
    return trace(step, (layers, TensorType(f32, (batch, widths[0])), TensorType(f32, (batch, widths[-1])))).graph


GRAPHS = {
    "encoder, 1 layer, 16 tokens": lambda: encoder(1, 1, 16),
    "encoder, 6 layers, 8 x 32 tokens": lambda: encoder(6, 8, 32),
    "encoder, 32 layers": lambda: encoder(32, 1, 64),
    "digits classifier": lambda: training_step((64, 128, 64, 10), 128),
    "deep MLP": lambda: training_step((784, 1024, 700, 512, 300, 256, 100, 10), 256),
}


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("in_place", [True, False])
def test_the_arena_of_a_graph_is_close_to_the_lower_bound(fake_target, make, in_place):
    lir = make_lir(make(), fake_target(in_place=in_place))

    assert lir.arena_nbytes <= 1.05 * lower_bound(live_ranges(lir))
    assert lir.saved_nbytes == lir.unshared_nbytes - lir.arena_nbytes > 0


def test_a_training_step_updates_every_parameter_in_place(fake_target):
    graph = training_step((64, 128, 64, 10), 128)
    names = list(graph.input_types)[:-2]
    lir = make_lir(graph, fake_target(), donations={name: i + 1 for i, name in enumerate(names)})

    assert all(lir.root_of(v) is d.donor for v, d in zip(graph.outputs[1:], lir.deliveries[1:], strict=True))


@pytest.mark.medium
def test_the_local_search_has_a_budget_of_placements_whatever_the_program(monkeypatch):
    """Not of rounds: 32 times the layers may not cost 32 * 32 times the work."""
    placed: list[int] = []
    place = memory._Packer.place
    monkeypatch.setattr(memory._Packer, "place", lambda self, order: placed.append(len(order)) or place(self, order))
    rng = random.Random(1)
    births = [rng.randrange(3000) for _ in range(3000)]
    hard = [LiveRange(rng.randrange(1, 10_000), b, b + rng.randrange(200)) for b in births]

    STRATEGIES["best"](hard, 1)

    assert 3 * len(hard) < sum(placed) <= 3 * len(hard) + memory._WORK


# ------------------------------------------------------------------------------------ live ranges


@pytest.mark.medium
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plans_of_generated_programs_are_disjoint_and_aligned(generated, fake_target, strategy):
    for seed in range(40):
        graph, _ = generated(seed)
        lir = make_lir(graph, fake_target(workspace=40), options=PlanOptions(strategy=strategy, alignment=32))
        ranges = live_ranges(lir)
        slots = [lir.slots[r.values[0]] if r.values else lir.steps[r.step].workspace for r in ranges]

        assert not overlapping(list(ranges), [s.offset for s in slots])
        assert all(s.offset % 32 == 0 for s in slots)
        assert lir.arena_nbytes == max((s.end for s in slots), default=0)
        assert not any(v.node.is_leaf for v in lir.slots)


def test_sizes_are_those_of_the_dtype(fake_target):
    sizes = {"bool": 1, "f16": 2, "bf16": 2, "f32": 4, "c64": 8, "c128": 16, "i8": 1}
    for name, nbytes in sizes.items():
        builder = Builder()
        x = builder.input("x", spec(f"{name}[10]"))
        h = reshape(cast(x, to=x.dtype), (2, 5))
        twice = transpose(h, (1, 0))
        y = cast(sum_axes(cast(twice, to=spec("c128[]").dtype), axes=(0,)), to=spec("c128[]").dtype)
        lir = make_lir(builder.finish([y]), fake_target(), options=PlanOptions(views=False, in_place=False))
        assert lir.slots[h].nbytes == 10 * nbytes


def test_a_value_without_elements_has_no_slot(fake_target):
    builder = Builder()
    x = builder.input("x", spec("f32[0, 4]"))
    lir = make_lir(builder.finish([negative(negative(x))]), fake_target())

    assert not lir.slots
    assert lir.arena_nbytes == 0


def test_a_view_keeps_its_root_alive(fake_target):
    builder = Builder()
    h = add(builder.input("x", spec("f32[4, 8]")), 1.0)
    view = reshape(h, (32,))
    other = negative(builder.input("z", spec("f32[32]")))
    lir = make_lir(builder.finish([subtract(negative(other), view)]), fake_target(in_place=False))

    (live,) = (r for r in live_ranges(lir) if any(v is h for v in r.values))
    assert (live.birth, live.death) == (0, 3)


def test_leaves_are_held_for_the_whole_run_when_asked(fake_target):
    builder = Builder()
    x, w = builder.input("x", spec("f32[4]")), builder.param("w", spec("f32[4]"))
    graph = builder.finish([negative(add(negative(x), w))])
    lir = make_lir(graph, fake_target(), options=PlanOptions(arena_holds={"inputs", "params"}))

    held = [r for r in live_ranges(lir, frozenset([x, w])) if r.values[0].node.is_leaf]
    assert [(r.birth, r.death) for r in held] == [(0, 3), (0, 3)]
    assert lir.slots[x].offset != lir.slots[w].offset


def test_a_workspace_is_alive_during_its_step_only(fake_target):
    builder = Builder()
    x = builder.input("x", spec("f32[4, 4]"))
    lir = make_lir(builder.finish([sum_axes(sum_axes(x, axes=(0,)), axes=(0,))]), fake_target(workspace=100))

    spaces = [r for r in live_ranges(lir) if r.step is not None]
    assert [(r.birth, r.death, r.nbytes) for r in spaces] == [(0, 0, 100), (1, 1, 100)]
    assert lir.steps[0].workspace == lir.steps[1].workspace


def test_the_report_gives_totals_then_who_lies_where(fake_target):
    builder = Builder()
    h = add(builder.input("x", spec("f32[4, 8]")), 1.0)
    lir = make_lir(builder.finish([sum_axes(negative(h), axes=(0,))]), fake_target(workspace=24))

    assert (
        memory_report(lir)
        == """\
arena               152 bytes  1.000 of the lower bound (152)
unshared            320 bytes  without sharing
saved               168 bytes
views                 0 values  in the bytes of others

    offset         size  steps        value
         0          128  0..2         %2 : f32[4, 8] → %3 : f32[4, 8]
       128           24  2..2         workspace of %4 (generic)
"""
    )


def test_the_report_of_a_template_says_which_sizes_are_missing(fake_target):
    builder = Builder()
    lir = make_lir(builder.finish([negative(builder.input("x", spec("f32[n, m]")))]), fake_target())

    assert memory_report(lir) == "main: a template; bytes are known once m, n are bound\n"


def test_few_ranges_are_placed_as_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        ranges = random_ranges(seed, 1 + seed * 3)
        few = [STRATEGIES[strategy](ranges, 64) for strategy in STRATEGIES]
        monkeypatch.setattr(memory, "FEW_RANGES", 0)
        assert [STRATEGIES[strategy](ranges, 64) for strategy in STRATEGIES] == few
        monkeypatch.undo()
