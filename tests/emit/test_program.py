"""Programs on a device: the numbers, what crosses, where results lie, and what a run asks the device for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core import nn
from rlx_core.device.array import DeviceArray
from rlx_core.errors import (
    DeviceLostError,
    DonatedError,
    IndexRangeError,
    LegalizeError,
    NonFiniteError,
    OutOfMemoryError,
    PlaceError,
)
from rlx_core.ir.array import HostArray
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.planning.verify_steps import step_faults
from rlx_core.runtime.executable import Executable
from rlx_core.testing.fake_device import FACTS

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def waves(x: Any) -> Any:
    return nn.softmax(rlx.exp(x) * 0.5), rlx.sum(x, axis=0)


def expected() -> tuple[np.ndarray, np.ndarray]:
    e = np.exp(np.exp(X) * 0.5 - (np.exp(X) * 0.5).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), X.sum(0)


def test_it_computes_what_the_host_would(bench: Any) -> None:
    for found, right in zip(bench.jit(waves)(X), expected(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_results_lie_where_the_inputs_do_or_where_the_caller_says(bench: Any) -> None:
    there = bench.put(X)
    assert isinstance(bench.jit(waves)(X)[0], HostArray)
    assert isinstance(bench.jit(waves)(there)[0], DeviceArray)
    assert isinstance(bench.jit(waves, outputs="device")(X)[0], DeviceArray)
    found = bench.jit(waves, outputs="host")(there)
    np.testing.assert_array_equal(found[1], X.sum(0))
    with pytest.raises(PlaceError, match="runs in the host's memory"):
        rlx.jit(waves, outputs="device")(X)


VIEWS = {
    "strided": lambda y: (y * 2)[::2],
    "strided argument": lambda y: y[:, ::2],
    "transposed": lambda y: (y + 1).T,
    "transposed argument": lambda y: y.T,
    "broadcast": lambda y: rlx.broadcast_to(y[0], (3, 4)),
    "backwards": lambda y: y[::-1],
    "of one another": lambda y: (lambda z: (z, z.T, z[1:], z[:, 1:3]))(y * 2),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views_are_made_dense_on_the_device(bench: Any, name: str) -> None:
    f, there = bench.jit(VIEWS[name]), bench.put(X)
    found, right = f(there), rlx.jit(VIEWS[name])(X)
    assert (bench.driver.count("read"), bench.driver.count("write")) == (0, 1)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, right)), strict=True):
        np.testing.assert_array_equal(one.to_host(), other)


def test_with_results_on_the_device_a_call_waits_for_nothing(bench: Any) -> None:
    f, there = bench.jit(waves), bench.put(X)
    f(there)
    bench.driver.synchronize()
    first, second = f(there)
    assert bench.driver.waiting > 0
    np.testing.assert_allclose(first.to_host(), expected()[0], rtol=1e-5)
    assert bench.driver.waiting == 0
    np.testing.assert_array_equal(second, X.sum(0))


def test_a_run_after_the_first_allocates_nothing_and_sets_no_argument(bench: Any) -> None:
    f = bench.jit(waves)
    f(X)
    asked = bench.during(lambda: f(X))
    assert asked == {"write": 1, "launch": asked["launch"], "read": 2}


def test_every_launch_is_submitted_once_a_run(bench: Any) -> None:
    f = bench.jit(waves)
    f(X)
    steps = len(f.executables[0].lir.steps)
    assert bench.during(lambda: f(X))["launch"] == steps


def test_parameters_cross_once_for_all_sizes(bench: Any) -> None:
    f = bench.compile(lambda w, x: x * w + w, np.full(4, 2, np.float32), rlx.spec("f32[n, 4]"))
    f(X)
    assert f.report.traffic.to_json() == {"bound": 16, "inputs": 48, "outputs": 48, "steps": 0}
    f(X[:2])
    assert f.report.traffic.to_json() == {"bound": 0, "inputs": 32, "outputs": 32, "steps": 0}
    np.testing.assert_array_equal(f(X), 2 * X + 2)
    f.rebind(w=np.ones(4, np.float32))
    np.testing.assert_array_equal(f(X), X + 1)
    assert "crossed: 16 B when parameters were bound; a call 48 B in, 48 B out" in str(f.report)


def test_a_parameter_may_lie_on_the_device_already(bench: Any) -> None:
    f = bench.compile(lambda w, x: x * w, bench.put(np.full(4, 2, np.float32)), rlx.spec("f32[3, 4]"))
    np.testing.assert_array_equal(f(X), 2 * X)
    assert f.report.traffic.bound == 0


def test_what_is_computed_from_parameters_is_computed_when_they_are_bound(bench: Any) -> None:
    f = bench.compile(lambda w, x: x * rlx.exp(w), np.zeros(4, np.float32), rlx.spec("f32[3, 4]"))
    np.testing.assert_array_equal(f(X), X)


def test_it_is_computed_on_the_device_and_only_what_was_given_crosses(bench: Any) -> None:
    def layer(w: Any, b: Any, x: Any) -> Any:
        return rlx.sum(x[:, None, :] * rlx.exp(rlx.astype(w, "f32")), axis=-1) + b

    w, b = np.zeros((5, 4), np.float16), np.ones(5, np.float32)
    f = bench.compile(layer, w, b, rlx.spec("f32[n, 4]"))
    for x in (X, X[:2]):
        np.testing.assert_array_equal(f(x), x.sum(1, keepdims=True) + np.ones(5))
    assert bench.driver.count("read") == 2, "the results, and nothing that was computed from parameters"
    written = [nbytes for word, nbytes in bench.driver.records if word == "write"]
    assert written == [w.nbytes, b.nbytes, X.nbytes, X[:2].nbytes]
    assert "80 B computed on fake:0 from parameters when they are bound" in str(f.report)
    built = bench.driver.built
    f.rebind(w=np.full((5, 4), np.log(2), np.float16))
    np.testing.assert_allclose(f(X), 2 * X.sum(1, keepdims=True) + np.ones(5), rtol=1e-3)
    assert bench.driver.built == built
    assert f.report.traffic.bound == w.nbytes + b.nbytes
    f.rebind(w=bench.put(w))
    np.testing.assert_array_equal(f(X), X.sum(1, keepdims=True) + np.ones(5))
    assert f.report.traffic.bound == b.nbytes


def test_an_index_outside_in_what_is_computed_from_parameters_names_the_line(bench: Any) -> None:
    def rows(table: Any, at: Any, x: Any) -> Any:
        return x * rlx.exp(rlx.take(table, at, axis=0))  # the line that errors name

    f = bench.compile(rows, np.zeros((2, 4), np.float32), np.array([0, 1, 9]), rlx.spec("f32[3, 4]"))
    with pytest.raises(IndexRangeError, match="index 9 is outside an axis of 2 elements") as caught:
        f(X)
    assert "test_program.py" in str(caught.value)
    f.rebind(at=np.array([0, 1, 1]))
    np.testing.assert_array_equal(f(X), X)


def test_a_step_on_the_host_does_not_read_what_was_prepared_in_every_run(bench: Any) -> None:
    f = bench.compile(
        lambda w, x: x @ rlx.exp(w), np.zeros((4, 4), np.float32), rlx.spec("f32[3, 4]"),
        config={"dispatch.allow-host": ["rlx.matmul"]},
    )  # fmt: skip
    np.testing.assert_array_equal(f(X), X @ np.ones((4, 4)))
    assert f.report.traffic.to_json() == {"bound": 128, "inputs": 0, "outputs": 48, "steps": 48}


def test_donated_state_stays_where_it_is(bench: Any) -> None:
    step = bench.jit(lambda state, x: (state + rlx.sum(x), rlx.sum(state)), donate="state")
    state = bench.put(np.ones(4, np.float32))
    for turn in range(3):
        kept = state.block
        state, _ = step(state, X)
        assert state.block is kept, turn
    np.testing.assert_array_equal(state.to_host(), np.full(4, 1 + 3 * X.sum()))
    assert bench.during(lambda: step(state, X)).get("read", 0) == 0


def test_a_donated_array_that_is_another_argument_too_is_copied(bench: Any) -> None:
    f = bench.jit(lambda a, b: (a + 1, a * b), donate="a")
    there = bench.put(X)
    first, second = f(there, there)
    np.testing.assert_array_equal(second.to_host(), X * X)
    np.testing.assert_array_equal(first.to_host(), X + 1)


USES = {
    "read": lambda x: x.to_host(),
    "NumPy": np.asarray,
    "index": lambda x: x[0],
    "transpose": lambda x: x.T,
    "wait": lambda x: x.block_until_ready(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_donated_array_on_a_device_refuses_every_use(bench: Any, use: Any) -> None:
    f = bench.jit(lambda a: a * 2, donate="a")
    there = bench.put(X)
    np.testing.assert_array_equal(f(there).to_host(), 2 * X)
    with pytest.raises(DonatedError, match=r"donated \(argument a of lambda\)"):
        use(there)
    with pytest.raises(DonatedError):
        f(there)


def test_donated_arrays_of_the_host_are_given_up_and_numpys_are_not_written(bench: Any) -> None:
    f = bench.jit(lambda a: a * 2, donate="a")
    numpys, mine = X.copy(), rlx.asarray(X.copy())
    for given in (numpys, mine):
        np.testing.assert_array_equal(f(given), 2 * X)
    np.testing.assert_array_equal(numpys, X)
    assert mine.is_donated


@pytest.mark.parametrize("outputs", ["host", "device"])
@pytest.mark.parametrize("lies_on_device", [False, True])
def test_a_donated_parameter_has_its_next_value_in_the_next_run(bench: Any, lies_on_device: bool, outputs: str) -> None:
    """Its old value is still wanted, so the next one is not written over it but copied there at the end."""
    builder = Builder("turns")
    pair = spec("f32[2]")
    with building(builder):
        first, state, x = builder.param("first", pair), builder.param("state", pair), builder.input("x", pair)
        graph = builder.finish([first, state + x, rlx.flip(state * first, axis=0)])
    compiled = compile_graph(graph, target="fake", host=bench.host, donations={"state": 1})
    executable = Executable(compiled, outputs=outputs)
    start = np.array([1, 2], np.float32)
    executable.set_params({"first": start, "state": bench.put(start) if lies_on_device else start.copy()})
    for turn in range(3):
        _, state, turned = executable.run({"x": np.ones(2, np.float32)})
        np.testing.assert_array_equal(np.asarray(state), start + turn + 1)
        np.testing.assert_array_equal(np.asarray(turned), ((start + turn) * start)[::-1])


@pytest.mark.parametrize("outputs", ["host", "device"])
def test_a_state_goes_on_when_another_parameter_is_bound_anew(bench: Any, outputs: str) -> None:
    builder = Builder("turns")
    pair = spec("f32[2]")
    with building(builder):
        step, state = builder.param("step", pair), builder.param("state", pair)
        graph = builder.finish([state + step])
    compiled = compile_graph(graph, target="fake", host=bench.host, donations={"state": 0})
    executable = Executable(compiled, outputs=outputs)
    start = np.zeros(2, np.float32)
    executable.set_params({"step": np.ones(2, np.float32), "state": start})
    for _ in range(2):
        executable.run({})
    executable.set_params({"step": np.full(2, 10, np.float32)})
    np.testing.assert_array_equal(np.asarray(executable.run({})[0]), [12, 12])
    start[:] = 0
    executable.set_params({"state": start})
    np.testing.assert_array_equal(np.asarray(executable.run({})[0]), [10, 10])


@pytest.mark.parametrize("outputs", ["host", "device"])
def test_every_way_to_deliver_is_right(bench: Any, outputs: str) -> None:
    def ways(x: Any) -> Any:
        y = x + 1
        return x, y, y.T, y[1:, ::2], rlx.zeros((0, 2)), np.float32(3) * rlx.ones((2,)), y

    f = bench.jit(ways, outputs=outputs)
    y = X + 1
    for _ in range(2):
        for found, right in zip(f(X), (X, y, y.T, y[1:, ::2], np.zeros((0, 2)), [3, 3], y), strict=True):
            np.testing.assert_array_equal(np.asarray(found), right)


def test_results_are_the_callers_own(bench: Any) -> None:
    f, there = bench.jit(lambda x: x + 1), bench.put(X)
    first = f(there)
    f(bench.put(10 * X))
    np.testing.assert_array_equal(first.to_host(), X + 1)


def test_what_has_no_kernel_runs_on_the_host_only_where_that_is_allowed(bench: Any) -> None:
    with pytest.raises(LegalizeError, match=r"fake: nothing runs rlx\.sort"):
        bench.jit(lambda x: rlx.sort(rlx.exp(x)))(X)
    f = bench.jit(lambda x: rlx.exp(x) @ x.T + 1, config={"dispatch.allow-host": ["matmul"]})
    small = X / 12
    np.testing.assert_allclose(f(small), np.exp(small) @ small.T + 1, rtol=1e-5)
    assert f.report.tiers.counts["host"] == 1
    assert step_faults(f.executables[0].lir, f.report.device.kernels) == []
    assert f.report.traffic.steps == 48 + 36  # exp(x) is read and the product written; x is on the host anyway


def test_several_threads_may_run_one_executable(bench: Any) -> None:
    f = bench.jit(waves)
    f(X)
    wrong: list[object] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
        wrong.extend(seed for _ in range(20) if not np.array_equal(f(x)[1], x.sum(0)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_plain_calls_go_straight_to_the_program_and_others_are_checked(bench: Any) -> None:
    f = bench.jit(waves)
    for _ in range(3):
        f(X)
    door = f.executables[0].entry_cell
    assert door.entry is not None
    assert door.entry(X.astype(np.float64)) is NotImplemented
    assert door.entry(bench.put(X[:2])) is NotImplemented
    np.testing.assert_array_equal(f(np.asfortranarray(X))[1], X.sum(0))
    told = bench.jit(waves, outputs="device")
    for _ in range(3):
        assert isinstance(told(X)[1], DeviceArray)


def test_a_value_that_only_an_empty_step_reads_is_freed(bench: Any) -> None:
    """A step without elements does not run; what it was the last to read is poisoned all the same."""

    def f(x: Any, y: Any) -> Any:
        return rlx.sum(rlx.sort(x * rlx.sort(rlx.mean(y, axis=0)), axis=0), axis=0) + rlx.sort(rlx.exp(y[0]))

    config = {"dispatch.allow-host": ["*"], "options": {"fake.poison": True}}
    found = bench.jit(f, config=config)(X[:0], X)
    np.testing.assert_allclose(found, np.exp(X[0]), rtol=1e-6)


def test_poisoned_memory_changes_nothing(bench: Any) -> None:
    f = bench.jit(waves, config={"options": {"fake.poison": True}})
    for found, right in zip(f(X), expected(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)
    assert bench.driver.count("fill") > 0


@pytest.mark.medium
def test_a_program_that_does_not_fit_says_so_and_the_next_one_runs(bench: Any) -> None:
    tiny = type(bench)(facts=evolve(FACTS, memory_nbytes=4096, largest_buffer=4096))
    with pytest.raises(OutOfMemoryError, match=r"fake:0: the .*puts of a run of 40192 bytes"):
        tiny.jit(lambda x: x + 1)(np.ones(10000, np.float32))
    np.testing.assert_array_equal(tiny.jit(lambda x: x + 1)(X), X + 1)


def test_a_device_that_is_lost_in_the_middle_is_an_error_and_others_go_on(bench: Any) -> None:
    f = bench.jit(waves)
    f(X)
    bench.driver.fails_at = 0
    with pytest.raises(DeviceLostError, match="fake:0: the device does not answer any more"):
        f(X)
    np.testing.assert_array_equal(rlx.jit(waves)(X)[1], X.sum(0))


def test_equal_steps_are_one_function(bench: Any) -> None:
    f = bench.jit(lambda x, y: (rlx.sum(rlx.exp(x), 0), rlx.sum(rlx.exp(y), 0)))
    f(X, X + 1)
    text = f.executables[0].emit("fake")
    assert text.count("function ") == 1
    assert "# steps 0, 1: " in text


def test_a_device_profile_has_every_step(bench: Any) -> None:
    from rlx_core.pipeline.profile import profiled

    f = bench.jit(waves)
    f(X)
    with profiled() as profile:
        f(X)
    assert len(profile.times) == len(f.executables[0].lir.steps)
    assert "in all" in str(profile)


def test_a_profile_counts_what_is_transferred(bench: Any) -> None:
    f = bench.jit(waves)
    for _ in range(4):
        f(X)  # by now plain calls take the entry
    profile = rlx.profile(f)(X)
    assert profile.transferred_nbytes == X.nbytes + sum(y.nbytes for y in profile.result)
    assert len(profile.times) == len(f.executables[0].lir.steps)


def test_a_nan_on_a_device_is_located(bench: Any) -> None:
    f = bench.jit(lambda x: rlx.sum(rlx.log(x)), outputs="device")
    for _ in range(4):
        f(X)
    with rlx.debug.nans(), pytest.raises(NonFiniteError, match="log: it produces NaN") as raised:
        f(X - 3)
    assert raised.value.facts[0].where.text.startswith("f = bench.jit")
