"""A planned program computes what the graph means, on memory that is poisoned wherever the plan says it is free."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rlx_core.errors import ConfigError, NoKernelError, UnknownNameError
from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import placement
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.strides import is_dense
from rlx_core.ir.types import TensorType, spec
from rlx_core.ir.verify_lir import verify_lir
from rlx_core.ops.arithmetic import add, multiply, subtract
from rlx_core.ops.movement import concat, narrow
from rlx_core.ops.structural import reshape, transpose
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.planner import PlanOptions, make_lir
from rlx_core.pipeline.planning.verify_steps import step_faults

SEEDS = range(60)
VARIANTS = [dict(zip(("accepts_strides", "in_place"), v, strict=True)) for v in product((True, False), repeat=2)]


@pytest.mark.medium
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("order", ["insertion", "memory"])
def test_a_planned_program_computes_what_the_graph_means(generated, fake_target, execute, variant, order):
    target = fake_target(workspace=24, **variant)
    for seed in SEEDS:
        graph, feeds = generated(seed)
        lir = make_lir(graph, target, options=PlanOptions(order=order))

        results = execute(lir, target, feeds)

        for found, expected in zip(results, interpret(graph, feeds), strict=True):
            np.testing.assert_array_equal(found, expected, strict=True, err_msg=f"seed {seed}")


def joining(seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Concatenations of what was just computed, along any axis, whose operands others read as well now and then."""
    rng = np.random.default_rng(seed)
    builder = Builder(f"joining{seed}")
    values = [builder.input("x", spec("f32[2, 4, 8]"))]
    outputs = []
    for _ in range(int(rng.integers(1, 5))):
        fresh = [add(*(values[int(i)] for i in rng.integers(len(values), size=2))) for _ in range(rng.integers(1, 4))]
        axis = int(rng.integers(3))
        joined = concat(fresh, axis=axis)
        start = int(rng.integers(joined.shape[axis] - values[0].shape[axis] + 1))
        values += [narrow(joined, axis=axis, start=start, length=values[0].shape[axis]), *fresh[: rng.integers(2)]]
        outputs += [joined] if rng.random() < 0.3 else []
    graph = builder.finish([*outputs, subtract(values[-1], values[0])])
    return graph, {"x": rng.integers(-8, 8, (2, 4, 8)).astype(np.float32)}


@pytest.mark.medium
@pytest.mark.parametrize("in_place", [True, False])
def test_operands_may_be_computed_between_the_rows_of_others(fake_target, execute, monkeypatch, in_place):
    """Rows of any length here, at any place, so that small programs have many of them."""
    monkeypatch.setattr("rlx_core.pipeline.planning.alias.LEAST_RUN", 1)
    target = fake_target(workspace=24, writes_strides=True, alignment=1, in_place=in_place)
    strided = 0
    for seed in range(150):
        graph, feeds = joining(seed)
        lir = make_lir(graph, target)
        assert verify_lir(lir) == []
        assert step_faults(lir, target.kernels) == []
        results = execute(lir, target, feeds)
        for found, expected in zip(results, interpret(graph, feeds), strict=True):
            np.testing.assert_array_equal(found, expected, strict=True, err_msg=f"seed {seed}")
        strided += sum(
            not is_dense(v.type, placement(v, lir.aliases).strides) for s in lir.steps for v in s.node.results
        )
    assert strided > 50


@pytest.mark.medium
def test_donated_leaves_come_back_with_their_next_value(generated, fake_target, execute):
    """Every leaf that some output could replace is donated, and the results are still those of the graph."""
    target = fake_target()
    replaced = 0
    for seed in range(200):
        graph, feeds = generated(seed)
        donations: dict[str, int | None] = {}
        for leaf in (*graph.inputs, *graph.params):
            fitting = [i for i, v in enumerate(graph.outputs) if v.type == leaf.type and i not in donations.values()]
            donations[leaf.node.op.label] = fitting[0] if fitting else None
        replaced += sum(index is not None for index in donations.values())
        lir = make_lir(graph, target, donations=donations)

        results = execute(lir, target, feeds)

        for found, expected in zip(results, interpret(graph, feeds), strict=True):
            np.testing.assert_array_equal(found, expected, strict=True, err_msg=f"seed {seed}")
    assert replaced > 20


@pytest.mark.medium
@pytest.mark.parametrize("is_donating", [True, False])
def test_the_verifier_finds_nothing_in_a_plan(generated, fake_target, is_donating):
    """The verifier does not know the planner: it follows who writes and who reads which bytes."""
    for seed in range(60):
        graph, _ = generated(seed)
        donations = dict.fromkeys((*graph.input_types, *graph.param_types)) if is_donating else {}
        assert verify_lir(make_lir(graph, fake_target(workspace=24), donations=donations)) == []


def test_a_training_step_updates_its_parameter_where_it_lies(fake_target, execute):
    builder = Builder()
    w, g = builder.param("w", spec("f32[4]")), builder.input("g", spec("f32[4]"))
    graph = builder.finish([subtract(w, multiply(g, 0.5))])
    target = fake_target()

    lir = make_lir(graph, target, donations={"w": 0})

    assert lir.root_of(graph.outputs[0]) is w
    assert [d.kind for d in lir.deliveries] == ["donor"]
    (result,) = execute(lir, target, {"w": np.ones(4, np.float32), "g": np.ones(4, np.float32)})
    np.testing.assert_array_equal(result, np.full(4, 0.5, np.float32))


def test_two_donated_leaves_may_be_exchanged(fake_target, execute):
    builder = Builder()
    a, b = builder.param("a", spec("f32[2]")), builder.param("b", spec("f32[2]"))
    graph = builder.finish([b, a])
    target = fake_target()
    lir = make_lir(graph, target, donations={"a": 0, "b": 1})

    results = execute(lir, target, {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)})

    np.testing.assert_array_equal(results, [[1, 1], [0, 0]])


def test_outputs_never_lie_in_memory_that_a_later_run_overwrites(fake_target):
    builder = Builder()
    x = builder.input("x", spec("f32[2, 3]"))
    y = add(x, 1.0)
    graph = builder.finish([y, reshape(y, (6,)), x, y, builder.constant(np.zeros(3))])

    lir = make_lir(graph, fake_target())

    assert [d.kind for d in lir.deliveries] == ["own", "copy", "copy", "copy", "copy"]
    assert lir.own_roots == (y,)
    assert not lir.slots


def test_views_are_not_steps_and_need_no_kernel(fake_target):
    table = KernelTable("few")
    table.register(add.op)(lambda *_, **__: None)
    builder = Builder()
    x = builder.input("x", spec("f32[2, 3]"))
    graph = builder.finish([add(reshape(x, (6,)), 1.0)])

    lir = make_lir(graph, Target("few", table))

    assert [s.node.op.name for s in lir.steps] == ["rlx.add"]


def test_every_step_without_a_kernel_is_listed():
    table = KernelTable("few")
    table.register(add.op, dtypes="f64", name="add64")(lambda *_, **__: None)
    builder = Builder()
    x = builder.input("x", spec("f32[2, 3]"))
    graph = builder.finish([add(transpose(x, (1, 0)), 1.0)])

    with pytest.raises(NoKernelError, match="2 of 2 steps have no kernel") as caught:
        make_lir(graph, Target("few", table))

    assert "add64 takes f64, not f32" in str(caught.value)
    assert "rlx.transpose: no kernel is registered" in str(caught.value)


def test_a_template_has_a_schedule_and_no_offsets(fake_target):
    builder = Builder()
    x = builder.input("x", spec("f32[n, 3]"))
    graph = builder.finish([add(reshape(x, (-1,)), 1.0)])

    lir = make_lir(graph, fake_target())

    assert not lir.is_planned
    assert len(lir.steps) == 2
    assert not lir.slots
    assert not lir.aliases


def test_planning_twice_gives_the_same_plan(generated, fake_target):
    def written(seed: int) -> list[object]:
        graph, _ = generated(seed)
        lir = make_lir(graph, fake_target())
        slots = sorted((v.node.index, v.index, s.offset, s.nbytes) for v, s in lir.slots.items())
        aliases = sorted((v.node.index, a.root.node.index, a.byte_offset, a.strides) for v, a in lir.aliases.items())
        return [slots, aliases, [s.node.index for s in lir.steps], [dict(s.in_place) for s in lir.steps]]

    assert all(written(seed) == written(seed) for seed in range(20))


@pytest.mark.parametrize(
    ("donations", "error", "says"),
    [
        ({"weights": None}, UnknownNameError, "no input or param 'weights'"),
        ({"w": 3}, ConfigError, "there are 2 outputs"),
        ({"w": 1}, ConfigError, "output 1 that replaces it is f32\\[2\\]"),
        ({"w": 0, "v": 0}, ConfigError, "replaces both w and v"),
    ],
)
def test_a_donation_that_cannot_be_is_refused(fake_target, donations, error, says):
    builder = Builder()
    w, v = builder.param("w", spec("f32[4]")), builder.param("v", spec("f32[4]"))
    graph = builder.finish([add(w, v), builder.input("x", spec("f32[2]"))])

    with pytest.raises(error, match=says):
        make_lir(graph, fake_target(), donations=donations)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": "random"}, "order is 'random'"),
        ({"strategy": "bset"}, "strategy is 'bset'"),
        ({"arena_holds": {"outputs"}}, "arena_holds is 'outputs'"),
        ({"alignment": 0}, "alignment must be at least 1"),
    ],
)
def test_an_unknown_planning_option_is_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        PlanOptions(**options)


@define_op(domain="test")
class Repeat(Op):
    """Runs `body` a number of times on its own result."""

    body: Graph
    other: Graph

    def infer(self, x: TensorType) -> TensorType:
        return x


def body_graph(steps: int) -> Graph:
    builder = Builder("body")
    x = builder.input("x", spec("f32[8]"))
    y = x
    for _ in range(steps):
        y = add(x, y)
    return builder.finish([y])


@pytest.mark.parametrize("runs_nested", [True, False])
def test_nested_graphs_are_planned_inside_the_step_that_runs_them(runs_nested):
    table = KernelTable("nesting")
    table.register(add.op, name="add")(lambda *_, **__: None)
    table.register(Repeat, name="repeat", runs_nested=runs_nested, workspace=lambda node: 20)(lambda *_, **__: None)
    builder = Builder()
    x = builder.input("x", spec("f32[8]"))
    graph = builder.finish([Repeat(body_graph(1), body_graph(3))(x)])

    (step,) = make_lir(graph, Target("nesting", table, alignment=16)).steps

    if not runs_nested:
        assert not step.nested
        assert step.workspace.nbytes == 20
        return
    body, other = step.nested["body"], step.nested["other"]
    assert [d.kind for d in body.deliveries] == ["copy"]
    assert body.arena_nbytes == 32  # its output lies in its arena, from where the step takes it
    assert other.arena_nbytes == 64
    assert step.nested_offset == 32
    assert step.workspace.nbytes == 32 + 64
