"""Templates, bindings and buckets: what is planned for a size is what compiling that size gives."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.errors import BindingError, ConfigError, GuardError, LengthMismatchError, ShapeError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding, symbol
from rlx_core.ir.graph import Builder, Graph, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.creation import dim_value
from rlx_core.ops.movement import narrow
from rlx_core.ops.structural import reshape, sum_axes, transpose
from rlx_core.pipeline.dynamic import (
    Bucket,
    BucketedCompileCache,
    DynamicDimCompileCache,
    binding_key,
    power_of_two_ladder,
    specialize,
    template_symbols,
    validity_mask,
)
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.system.lru import LruCache


def sequence_graph() -> Graph:
    """A residual over [batch, seq, 8] with views whose sizes are symbols."""
    builder = Builder("sequence")
    x = builder.input("x", spec("f32[batch, seq, 8]"))
    h = reshape(add(x, 1.0), (symbol("batch") * symbol("seq"), 8))
    total = sum_axes(multiply(h, h), axes=(1,))
    last = narrow(x, axis=1, start=symbol("seq") - 1, length=1)
    return builder.finish([reshape(total, (symbol("batch"), symbol("seq"))), transpose(last, (2, 1, 0)), x])


@pytest.mark.parametrize("sizes", [{"batch": 1, "seq": 1}, {"batch": 2, "seq": 5}, {"batch": 3, "seq": 128}], ids=str)
def test_a_specialised_template_is_the_static_program(fake_target, execute, sizes):
    target, graph = fake_target(workspace=16), sequence_graph()
    binding = DimBinding.of(**sizes)
    static = make_lir(bind(graph, binding)[0], target)

    lir = specialize(make_lir(graph, target), binding, target)

    assert lir.graph == static.graph
    assert lir.arena_nbytes == static.arena_nbytes
    assert [s.kernel for s in lir.steps] == [s.kernel for s in static.steps]
    assert list(lir.slots.values()) == list(static.slots.values())
    x = np.random.default_rng(0).normal(size=(sizes["batch"], sizes["seq"], 8)).astype(np.float32)
    for found, expected in zip(execute(lir, target, {"x": x}), interpret(lir.graph, {"x": x}), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_one_template_serves_several_lengths(fake_target):
    target = fake_target()
    template = make_lir(sequence_graph(), target, fingerprint="f")

    lirs = [specialize(template, DimBinding.of(batch=2, seq=n), target) for n in (4, 8, 16)]

    assert [lir.graph.input_types["x"] for lir in lirs] == [spec(f"f32[2, {n}, 8]") for n in (4, 8, 16)]
    assert all(lir.is_planned for lir in lirs)
    assert len({lir.fingerprint for lir in lirs}) == 3


def test_a_missing_size_is_named(fake_target):
    target = fake_target()

    with pytest.raises(BindingError, match="sequence needs a size for seq"):
        specialize(make_lir(sequence_graph(), target), DimBinding.of(batch=2), target)


def test_guards_are_checked_before_anything_is_planned(fake_target):
    builder = Builder()
    x, y = builder.input("x", spec("f32[n]")), builder.input("y", spec("f32[m]"))
    graph = builder.finish([add(x, y)])
    target = fake_target()

    with pytest.raises(GuardError, match="does not hold"):
        specialize(make_lir(graph, target), DimBinding.of(n=2, m=3), target)


def test_a_slice_that_leaves_its_bound_axis_is_an_error(fake_target):
    builder = Builder()
    graph = builder.finish([narrow(builder.input("x", spec("f32[n]")), axis=0, start=0, length=4)])
    target = fake_target()

    with pytest.raises((GuardError, ShapeError)):
        specialize(make_lir(graph, target), DimBinding.of(n=3), target)


def test_donations_and_names_survive_specialisation(fake_target):
    builder = Builder()
    state, x = builder.param("state", spec("f32[n]")), builder.input("x", spec("f32[n]"))
    graph = builder.finish([add(x, 1.0), add(state, x)])
    target = fake_target()
    template = make_lir(graph, target, donations={"state": 1, "x": None}, output_names=["y", "next"])

    lir = specialize(template, DimBinding.of(n=4), target)

    assert [e.name for e in lir.manifest.outputs] == ["y", "next"]
    assert lir.deliveries[1].donor is lir.graph.find("state")
    assert [e.is_donated for e in (*lir.manifest.inputs, *lir.manifest.params)] == [True, True]


def test_the_work_on_params_is_specialised_too(fake_target):
    prepare = Builder("prepare")
    packed = add(prepare.param("w", spec("f32[n, 2]")), 1.0)
    main = Builder("main")
    graph = main.finish([add(main.param("packed", spec("f32[n, 2]")), 1.0)])
    target = fake_target()
    template = make_lir(graph, target, prepare=prepare.finish([packed]))

    lir = specialize(template, DimBinding.of(n=3), target)

    assert lir.prepare is not None
    assert lir.prepare.param_types == {"w": spec("f32[3, 2]")}
    assert [e.name for e in lir.manifest.params] == ["w"]


# ---------------------------------------------------------------------------------------- the cache


def test_each_template_and_binding_is_compiled_once(fake_target):
    target, compiled = fake_target(), []
    cache = DynamicDimCompileCache(target, lambda lir: compiled.append(lir) or len(compiled), capacity=2)
    one = make_lir(sequence_graph(), target, fingerprint="one")
    two = make_lir(sequence_graph(), target, fingerprint="two")
    small, large = DimBinding.of(batch=1, seq=2), DimBinding.of(batch=1, seq=4)

    assert [cache.get(one, small), cache.get(one, small), cache.get(two, small)] == [1, 1, 2]
    assert cache.get(one, DimBinding.of(batch=1, seq=2, unrelated=9)) == 1
    assert cache.get(one, large) == 3  # evicts (two, small), unused for longest
    assert cache.get(one, small) == 1
    assert cache.get(two, small) == 4
    assert len(cache) == 2


def test_a_binding_is_spelled_by_name(fake_target):
    template = make_lir(sequence_graph(), fake_target())

    key = binding_key(DimBinding.of(seq=3, batch=2, other=1), template_symbols(template))

    assert key == "batch=2 seq=3"


def test_a_size_that_is_only_an_attribute_is_one_that_a_plan_waits_for(fake_target):
    builder = Builder("scaled")
    with building(builder):
        graph = builder.finish([builder.input("x", spec("i64[2]")) * dim_value(size=symbol("n"))])
    target = fake_target()
    template = make_lir(graph, target)

    assert not template.is_planned
    assert binding_key(DimBinding.of(n=3), template_symbols(template)) == "n=3"
    with pytest.raises(BindingError, match="needs a size for n"):
        specialize(template, DimBinding.of(), target)
    made = [specialize(template, DimBinding.of(n=n), target) for n in (3, 4)]
    assert all(lir.is_planned for lir in made)
    assert made[0].fingerprint != made[1].fingerprint


def test_a_failed_attempt_is_tried_again():
    cache: LruCache[str, int] = LruCache(2)

    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("k", lambda: 1 // 0)

    assert cache.get_or_make("k", lambda: 7) == 7


def test_a_cache_without_room_is_refused():
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        LruCache(0)


# ------------------------------------------------------------------------------------------ buckets


def test_buckets_are_compiled_when_needed_and_at_their_upper_end():
    compiled: list[int] = []
    cache = BucketedCompileCache([Bucket(9, 16), Bucket(1, 8)], lambda n: compiled.append(n) or f"program {n}")

    assert cache.get(3) == cache.get(8) == "program 8"
    assert compiled == [8]
    assert cache.get(9) == "program 16"
    assert cache.compiled == (Bucket(1, 8), Bucket(9, 16))
    assert cache.get(17) is None
    assert cache.get(0) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bucket(4, 3), "empty"),
        (lambda: Bucket(-1, 3), "at least 0, not -1"),
        (lambda: BucketedCompileCache([], int), "there is none"),
        (lambda: BucketedCompileCache([Bucket(1, 8), Bucket(8, 16)], int), "overlap \\(8 <= 8\\)"),
        (lambda: power_of_two_ladder(0, 8), "1 or above"),
        (lambda: power_of_two_ladder(9, 8), "empty"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


@pytest.mark.parametrize(("lo", "hi"), [(1, 1), (1, 2), (1, 1000), (3, 24), (5, 5), (64, 64), (17, 31), (100, 4096)])
def test_a_ladder_covers_its_range_once_and_at_most_doubles(lo, hi):
    ladder = power_of_two_ladder(lo, hi)

    assert [n for b in ladder for n in range(b.lo, b.hi + 1)] == list(range(lo, hi + 1))
    assert all(b.hi <= 2 * size for b in ladder for size in range(b.lo, b.hi + 1))


def test_a_mask_says_which_places_are_real():
    np.testing.assert_array_equal(validity_mask([0, 2, 3], 3), [[0, 0, 0], [1, 1, 0], [1, 1, 1]])

    with pytest.raises(LengthMismatchError, match="row 1 has length 4"):
        validity_mask([1, 4], 3)
