"""What the driver asks PyObjC's Metal for: on a fake one, which does it late and asserts what a real one would crash on."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from fake_metal import OUT_OF_MEMORY, FakeDevice, FakeError, FakeOptions

import rlx_core as rlx
import rlx_metal.plugin
from rlx_core import nn
from rlx_core.device.driver import At
from rlx_core.errors import DeviceLostError, IndexRangeError, KernelBuildError, OutOfMemoryError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
from rlx_core.testing.fuzz import complaint
from rlx_core.testing.generate import generate

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


@pytest.fixture
def host(device: FakeDevice) -> PluginHost:
    """A host whose plugin for Metal finds the fake device."""
    others = [e for e in default_host().entries if e.name != "metal"]
    return PluginHost([*others, given_entry(rlx_metal.plugin)])


@pytest.fixture
def driver(device: FakeDevice) -> Any:
    from rlx_metal.driver import MetalDriver
    from rlx_metal.facts import facts_of

    return MetalDriver(device, facts_of(device), 0)


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="metal", host=host, **options)


def filled(driver: Any, data: np.ndarray) -> Any:
    made = driver.allocate(data.nbytes)
    driver.write(made, 0, data, waits=True)
    return made


def held(driver: Any, buffer: Any, nbytes: int) -> np.ndarray:
    found = np.empty(nbytes, np.uint8)
    driver.read(buffer, 0, found)
    return found


# ----------------------------------------------------------------------------------------------- programs


@pytest.mark.medium
def test_programs_compute_what_the_cpu_does(host: PluginHost) -> None:
    def block(x: Any, w: Any) -> Any:
        h = nn.gelu(x * w)
        return nn.layer_norm(h, w, w), rlx.sum(h), h @ h.T, h > 0

    w = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    for found, right in zip(on(host, block)(X, w), rlx.jit(block)(X, w), strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=6e-6)


def test_a_call_is_one_command_buffer(host: PluginHost, device: FakeDevice) -> None:
    f = on(host, lambda x: rlx.sum(nn.softmax(x @ x.T), axis=1))
    f(X)
    before = device.command_buffers
    f(X)
    assert len(f.executables[0].lir.steps) > 1
    assert device.command_buffers == before + 1


def test_runs_are_asked_for_and_not_waited_for(host: PluginHost, device: FakeDevice) -> None:
    f = on(host, lambda x: x * 2 + 1)
    x = rlx.device_put(X, "metal:0", host=host)
    for _ in range(3):
        x = f(x)
    assert device.committed
    np.testing.assert_allclose(x.to_host(), 8 * X + 7, rtol=1e-6)
    assert not device.committed


def test_inputs_of_a_second_run_wait_for_the_first(host: PluginHost) -> None:
    """The memory that the second is staged in is that of the first, which nobody waited for."""
    f = on(host, lambda x: x * 2, outputs="device")
    runs = [f(X + i) for i in range(3)]
    for i, run in enumerate(runs):
        np.testing.assert_array_equal(run.to_host(), (X + i) * 2)


def test_an_index_outside_is_reported(host: PluginHost) -> None:
    f = on(host, lambda t, at: rlx.take(t, at, axis=0))
    with pytest.raises(IndexRangeError, match="outside an axis of 6 elements"):
        f(X, np.array([1, 6]))
    np.testing.assert_array_equal(f(X, np.array([1, 5])), X[[1, 5]])


@pytest.mark.parametrize("seed", [3, 116, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 116))])
def test_a_generated_program_is_computed(host: PluginHost, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With memory that nobody may read full of NaN."""
    monkeypatch.setenv("RLX_ALLOW_HOST", "*")
    monkeypatch.setenv("RLX_METAL_POISON", "1")
    assert complaint(generate(seed), target="metal", host=host) is None


# ------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(("start", "to", "nbytes"), [(0, 64, 60), (1, 66, 1), (3, 64, 17), (8, 65, 30), (2, 70, 6)])
def test_bytes_are_copied_from_anywhere_to_anywhere(driver: Any, start: int, to: int, nbytes: int) -> None:
    """By Metal's command where they are whole words, else by a kernel."""
    data = np.arange(128, dtype=np.uint8)
    room, target = filled(driver, data), filled(driver, np.zeros(128, np.uint8))
    driver.copy(room, start, target, to, nbytes)
    wanted = np.zeros(128, np.uint8)
    wanted[to : to + nbytes] = data[start : start + nbytes]
    np.testing.assert_array_equal(held(driver, target, 128), wanted)


@pytest.mark.parametrize(("start", "nbytes"), [(0, 128), (4, 8), (3, 5), (0, 1)])
def test_bytes_are_filled_from_anywhere(driver: Any, start: int, nbytes: int) -> None:
    room = filled(driver, np.arange(128, dtype=np.uint8))
    driver.fill(room, start, nbytes, 0xAB)
    wanted = np.arange(128, dtype=np.uint8)
    wanted[start : start + nbytes] = 0xAB
    np.testing.assert_array_equal(held(driver, room, 128), wanted)


def test_what_is_written_while_the_gpu_is_busy_comes_in_its_order(driver: Any, device: FakeDevice) -> None:
    x = filled(driver, np.full(64, 1, np.uint8))
    y = driver.allocate(64)
    driver.copy(x, 0, y, 0, 64)
    driver.write(x, 0, np.full(64, 2, np.uint8), waits=True)
    assert device.begun
    assert held(driver, y, 64).tolist() == [1] * 64
    assert held(driver, x, 64).tolist() == [2] * 64


@pytest.mark.medium
def test_buffers_are_gone_with_their_last_reference_and_not_before_the_gpu_is_done(driver: Any) -> None:
    x, y = filled(driver, np.full(64, 7, np.uint8)), driver.allocate(64)
    driver.copy(x, 0, y, 0, 64)
    driver.free(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is not None
    assert held(driver, y, 64).tolist() == [7] * 64
    gc.collect()
    assert gone() is None


@pytest.mark.medium
def test_nothing_is_kept_of_commands_that_are_done(driver: Any, device: FakeDevice) -> None:
    """A program whose results stay on the device may run for ever without anybody waiting."""
    driver.fill(driver.allocate(64), 0, 64, 1)
    driver.submit([])
    first = weakref.ref(device.committed[0])
    device.committed[0].finish()
    driver.fill(driver.allocate(64), 0, 64, 1)
    driver.submit([])
    gc.collect()
    assert first() is None


def test_no_memory_left_is_a_typed_error(driver: Any, device: FakeDevice) -> None:
    device.has_memory = False
    with pytest.raises(OutOfMemoryError, match="metal:0: the device has no memory left"):
        driver.allocate(64)


# ------------------------------------------------------------------------------------------------ kernels


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(driver: Any) -> None:
    with pytest.raises(KernelBuildError, match="metal:0: its compiler refuses the source") as caught:
        driver.build("kernel void f( {")
    assert "compiler" in str(caught.value)


def test_older_systems_are_told_of_safe_numbers_in_the_older_way(
    driver: Any, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeOptions, "respondsToSelector_", lambda self, name: False)
    monkeypatch.delattr(FakeOptions, "setMathMode_")
    driver.build("#include <metal_stdlib>\n")  # the fake asserts that floats are what they are


def test_more_threads_or_arguments_than_there_may_be_are_a_typed_error(driver: Any, device: FakeDevice) -> None:
    buffer, module = driver.allocate(64), driver._bytes
    with pytest.raises(KernelBuildError, match="has 32 arguments, and Metal 31"):
        driver.launch(module, "rlx_fill_bytes", 1, 32, [At(buffer, 0)] * 32)
    device.most_threads = 128
    module.pipelines.clear()
    with pytest.raises(KernelBuildError, match="has groups of 256 threads, and registers for 128"):
        driver.launch(module, "rlx_fill_bytes", 1, 256, [At(buffer, 0), np.uint32(0), np.uint32(4)])


@pytest.mark.parametrize(
    ("failure", "error", "said"),
    [
        (FakeError("hang"), DeviceLostError, "gave up what it was asked for"),
        (FakeError("full", OUT_OF_MEMORY), OutOfMemoryError, "has no memory left"),
    ],
    ids=["lost", "memory"],
)
def test_what_the_gpu_says_of_a_command_buffer_is_raised_by_whoever_waits(
    driver: Any, device: FakeDevice, failure: FakeError, error: type[Exception], said: str
) -> None:
    x = filled(driver, np.zeros(64, np.uint8))
    driver.fill(x, 0, 64, 1)
    device.next_failure = failure
    with pytest.raises(error, match=said) as caught:
        driver.synchronize()
    assert failure.text in str(caught.value)
    assert held(driver, x, 64).tolist() == [0] * 64  # and it goes on


def test_a_launch_is_timed_by_the_gpus_clock(driver: Any) -> None:
    launch = driver.launch(
        driver._bytes, "rlx_fill_bytes", 1, 64, [At(driver.allocate(64), 0), np.uint32(0), np.uint32(64)]
    )
    assert driver.timed(launch) == 0.25
