"""Programs on a WebGPU device: the numbers, bytes that begin inside words, the heap, faults and what would abort the process."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core import nn
from rlx_core.device.driver import At
from rlx_core.errors import DtypeError, KernelBuildError, OutOfMemoryError, RlxError
from rlx_core.plugins import PluginHost
from rlx_wgpu import discovery
from rlx_wgpu import driver as driver_module
from rlx_wgpu.driver import WgpuDriver
from rlx_wgpu.limits import limits_of

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="wgpu", host=host, **options)


@pytest.fixture
def driver(host: PluginHost) -> WgpuDriver:
    found = rlx.device_put(X, "wgpu:0", host=host).device.driver
    assert isinstance(found, WgpuDriver)
    return found


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64"])
def test_parts_of_arrays_may_begin_inside_a_word(host: PluginHost, dtype: str) -> None:
    data = (np.arange(37) % 3).astype(dtype)

    def parts(x: Any) -> Any:
        same = rlx.where(x == x, x, x)
        return same[3:], rlx.concat([x[1:6], same[7:]], axis=0), x[5:9]

    for found, right in zip(on(host, parts)(data), rlx.jit(parts)(data), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.slow
def test_more_groups_than_a_launch_has_are_divided_among_those_it_has(host: PluginHost) -> None:
    """65,535 groups of 256 threads are 16,776,960; a row of one element each would be more."""
    data = np.arange(65_600 * 33, dtype=np.int32).reshape(65_600, 33) % 1000
    np.testing.assert_array_equal(on(host, lambda x: rlx.max(x, axis=1))(data), data.max(axis=1))


@pytest.mark.parametrize("is_wide", [False, True], ids=["in pairs of words", "by the feature"])
def test_whole_numbers_of_64_bits(
    host: PluginHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_wide: bool
) -> None:
    """Lavapipe has them; without the feature they are pairs. Both are exact."""
    if is_wide and "shader-int64" not in discovery.found()[0].adapter.features:
        pytest.skip("this adapter has no shader-int64; lavapipe has: apt-get install mesa-vulkan-drivers")
    monkeypatch.setattr(discovery, "FEATURES", ("shader-int64",) if is_wide else ())
    monkeypatch.setattr(discovery, "found", discovery.found.__wrapped__)
    monkeypatch.setattr(discovery, "_device", cache(discovery._device.__wrapped__))
    x = np.array([-123456789012345, 2**62, -(2**63), 7, -7, 2**40 + 3], np.int64)
    y = np.array([98765, -3, 10, -2, 2, 2**33 - 1], np.int64)

    def program(x: Any, y: Any) -> Any:
        return x * y, rlx.floor_divide(x, y), rlx.remainder(x, y)

    f = on(PluginHost(host.entries), program, config={"cache": {"directory": str(tmp_path)}})
    for found, right in zip(f(x, y), rlx.jit(program)(x, y), strict=True):
        np.testing.assert_array_equal(found, right)
    assert ("u64(" in f.executables[0].emit("wgsl")) is is_wide


def test_numbers_that_the_device_has_not_are_refused_by_name(host: PluginHost) -> None:
    with pytest.raises(DtypeError, match="the device has no f64"):
        rlx.device_put(X.astype(np.float64), "wgpu:0", host=host)
    with pytest.raises(RlxError, match="f64"):
        on(host, lambda x: x + x)(X.astype(np.float64))


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(driver: WgpuDriver) -> None:
    with pytest.raises(KernelBuildError, match="wgpu:0: its compiler refuses the source") as caught:
        driver.build("fn k( {")
    assert "parsing error" in str(caught.value)


def test_its_language_is_printed_a_module_for_each_function(host: PluginHost) -> None:
    f = on(host, lambda x: rlx.sum(rlx.exp(x)))
    f(np.ones((3, 1 << 15), np.float32))
    text = f.executables[0].emit("wgsl")
    assert text.count("@compute") == text.count("var<uniform>") > 1


@pytest.mark.parametrize(("start", "to", "nbytes"), [(0, 64, 60), (1, 66, 1), (3, 64, 17), (8, 65, 30), (2, 70, 6)])
def test_bytes_are_copied_from_anywhere_to_anywhere(driver: WgpuDriver, start: int, to: int, nbytes: int) -> None:
    room = driver.allocate(128)
    data = np.arange(128, dtype=np.uint8)
    driver.write(room, 0, data, waits=True)
    driver.copy(room, start, room, to, nbytes)
    driver.write(room, to + nbytes, np.uint8([7, 8, 9]), waits=True)
    found = np.empty(127, np.uint8)
    driver.read(room, 1, found)
    data[to : to + nbytes] = data[start : start + nbytes].copy()
    data[to + nbytes :][:3] = 7, 8, 9
    np.testing.assert_array_equal(found, data[1:])
    driver.free(room)


def test_the_heap_grows_and_everything_keeps_its_place(driver: WgpuDriver, host: PluginHost) -> None:
    f = on(host, lambda x: x + 1)
    before = rlx.device_put(X, "wgpu:0", host=host)
    f(before)
    size = driver._heap.nbytes
    room = driver.allocate(size)
    assert driver._heap.nbytes > size
    np.testing.assert_array_equal(f(before).to_host(), X + 1)
    driver.free(room)
    assert driver.allocate(size).start == room.start


def test_memory_beyond_what_a_binding_holds_is_refused_with_the_limit(driver: WgpuDriver) -> None:
    with pytest.raises(OutOfMemoryError, match="the memory of its programs would be") as caught:
        driver.allocate(driver.facts.largest_buffer)
    assert "one binding" in str(caught.value)


@pytest.fixture
def small(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host whose device has bindings of a quarter of a MiB, so that arrays lie across several."""
    monkeypatch.setattr(driver_module, "limits_of", lambda adapter: evolve(limits_of(adapter), segment_nbytes=1 << 18))
    monkeypatch.setattr(discovery, "_device", cache(discovery._device.__wrapped__))
    return host


@pytest.mark.medium
def test_memory_may_be_more_than_one_binding_holds(small: PluginHost) -> None:
    """Values that begin and end in any segment: read, written as words and below words, copied, and crossing to the host."""
    x = np.linspace(-2, 2, 300 * 511, dtype=np.float32).reshape(300, 511)
    small_x = np.arange(300 * 511, dtype=np.int8).reshape(300, 511)

    def program(x: Any, n: Any) -> Any:
        y = rlx.exp(x) - rlx.mean(x, axis=1, keepdims=True)
        return nn.softmax(y, axis=1), rlx.permute_dims(y, (1, 0)), rlx.sum(y), rlx.flip(n, axis=1) + n

    f = on(small, program)
    for found, right in zip(f(x, small_x), rlx.jit(program)(x, small_x), strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-6)
    on_device = rlx.device_put(x, "wgpu:0", host=small)
    np.testing.assert_array_equal(on_device.copy().to_host(), x)
    heap = on_device.device.driver._heap
    assert len(heap.buffers) > 4
    assert {buffer.size for buffer in heap.buffers[:-1]} == {1 << 18}


def test_small_arrays_lie_in_one_segment_each(small: PluginHost) -> None:
    driver = rlx.device_put(X, "wgpu:0", host=small).device.driver
    rooms = [driver.allocate(100 << 10) for _ in range(8)]
    large = driver.allocate(600 << 10)
    assert all(len(driver._heap.segments_of(room)) == 1 for room in rooms)
    assert large.start % (1 << 18) == 0
    for room in (*rooms, large):
        driver.free(room)
    assert len(driver._heap._gaps) == 1
    with pytest.raises(OutOfMemoryError, match="the memory of its programs would be"):
        driver.allocate(driver.facts.largest_buffer)


LOST = """
import numpy as np, rlx_core as rlx
from rlx_core.errors import RlxError
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
import rlx_wgpu.plugin
known = default_host()
host = known if any(e.name == "wgpu" for e in known.entries) else PluginHost([*known.entries, given_entry(rlx_wgpu.plugin)])
f = rlx.jit(lambda x: x + 1, target="wgpu", host=host)
x = rlx.device_put(np.ones(8, np.float32), "wgpu:0", host=host)
y = f(x)
doubled = rlx.jit(lambda x: rlx.while_loop(lambda x: rlx.sum(x) < 99, lambda x: 2 * x, x), target="wgpu", host=host)
doubled(x)
large = np.ones(16 << 20, np.float32)  # for which the heap has to grow, by a copy that is submitted
x.device.driver.device.destroy()
for name, do in (
    ("run", lambda: f(x)), ("run from the host", lambda: f(np.ones(8, np.float32))), ("read", y.to_host),
    ("copy", x.copy), ("put", lambda: rlx.device_put(np.ones(3, np.float32), "wgpu:0", host=host)),
    ("put what is large", lambda: rlx.device_put(large, "wgpu:0", host=host)), ("loop", lambda: doubled(x)),
    ("compile", lambda: rlx.jit(lambda x: x * 3, target="wgpu", host=host)(x)), ("wait", x.device.synchronize),
):
    try:
        do()
    except RlxError as error:
        print(name, type(error).__name__)
"""


@pytest.mark.slow
def test_a_lost_device_is_an_error_and_the_process_lives(host: PluginHost) -> None:
    """wgpu-native ends the process when something is submitted to a device that is lost."""
    out = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-2000:]
    whats = ("run", "run from the host", "read", "copy", "put", "put what is large", "loop", "compile", "wait")
    assert out.stdout.splitlines() == [f"{what} DeviceLostError" for what in whats]


def test_what_is_submitted_again_is_recorded_again(driver: WgpuDriver) -> None:
    """A command buffer is submitted once; wgpu-native would end the process at the second time."""
    module = driver.build(DOUBLE)
    room = driver.allocate(16)
    driver.write(room, 0, np.uint32([1, 2, 3, 4]), waits=True)
    launch = driver.launch(module, "double", 1, 4, [At(room, 0)])
    driver.submit([launch, launch])
    driver.submit([launch])
    found = np.empty(4, np.uint32)
    driver.read(room, 0, found)
    assert found.tolist() == [8, 16, 24, 32]


DOUBLE = """
@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;
@compute @workgroup_size(4, 1, 1)
fn double(@builtin(local_invocation_index) i: u32) {
  let at = (places[0].y >> 2u) + i;
  memory[at] = memory[at] * 2u;
}
"""


@pytest.mark.parametrize("groups", [0, 65_536])
def test_a_launch_of_more_groups_than_there_are_is_found_before_it_is_recorded(driver: WgpuDriver, groups: int) -> None:
    with pytest.raises(AssertionError, match="groups in one launch"):
        driver.launch(driver.build(DOUBLE), "double", groups, 4, [])


def test_memory_is_given_back_while_the_device_still_works_on_it(host: PluginHost) -> None:
    """What would be a destroyed buffer in a submission is a place in the heap that the next one takes."""
    f = on(host, lambda x: x * 2)
    x = rlx.device_put(X, "wgpu:0", host=host)
    for _ in range(20):
        f(f(x))
        x.device.pool.trim()
    np.testing.assert_array_equal(f(x).to_host(), 2 * X)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16"])
def test_a_view_that_begins_inside_a_word_is_read_as_it_lies(host: PluginHost, dtype: str) -> None:
    x = (np.arange(1 << 17) % 7).astype(dtype)
    turn = rlx.logical_not if dtype == "bool" else rlx.negative
    f = on(host, lambda x: turn(rlx.flip(x, axis=0)[1:-3]))
    np.testing.assert_array_equal(f(x), np.logical_not(x[::-1][1:-3]) if dtype == "bool" else -x[::-1][1:-3])


def test_memory_of_what_is_written_is_freed_without_a_read(
    host: PluginHost, driver: WgpuDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wgpu keeps a copy of each write until the queue is waited for: once for so many bytes, however small the writes are."""
    waits: list[int] = []
    wait = WgpuDriver._wait

    def counted(self: WgpuDriver) -> None:
        waits.append(self._staged)
        wait(self)

    monkeypatch.setattr(WgpuDriver, "_wait", counted)
    monkeypatch.setattr(driver_module, "MOST_STAGED", 1 << 20)
    driver.synchronize()
    waits.clear()
    data = np.arange(1 << 16, dtype=np.float32)  # 256 KiB
    for _ in range(20):
        put = rlx.device_put(data, "wgpu:0", host=host)
    assert len(waits) == 4
    np.testing.assert_array_equal(put.to_host(), data)
    assert driver._staged == 0, "a read waits too"


@pytest.mark.medium
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="this system does not say how much memory a process has"
)
def test_arrays_that_are_put_and_dropped_take_no_memory(host: PluginHost) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    data = np.ones(1 << 18, np.float32)  # 1 MiB
    rlx.device_put(data, "wgpu:0", host=host)
    before = resident()
    for _ in range(400):
        rlx.device_put(data, "wgpu:0", host=host)
    assert resident() - before < 200 << 20
