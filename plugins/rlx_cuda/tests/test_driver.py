"""The driver on a fake CuPy: order, memory, arrays of other libraries, graphs, errors, threads."""

from __future__ import annotations

import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cupy import X, require_a_lost_device_is_an_error, require_every_step_is_timed, right, steps, words

import rlx_core as rlx
from rlx_core.device.array import DeviceArray
from rlx_core.device.driver import At
from rlx_core.errors import (
    DeviceCallError,
    DeviceLostError,
    IndexRangeError,
    KernelBuildError,
    OutOfMemoryError,
    PlaceError,
)
from rlx_core.plugins import PluginHost


@pytest.fixture(autouse=True)
def available(driven: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files tell of drivers is another test's."""
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: True)


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="cuda", host=host, **options)


def put(host: PluginHost, x: np.ndarray, device: str = "cuda:0") -> Any:
    return rlx.device_put(x, device, host=host)


@pytest.mark.medium
def test_programs_compute_what_the_cpu_does(driven: PluginHost) -> None:
    np.testing.assert_allclose(on(driven, steps)(X), right(X), rtol=2e-5)
    assert [d.target for d in rlx.devices("cuda", host=driven)] == ["cuda:0", "cuda:1"]


@pytest.mark.medium
def test_a_program_becomes_one_graph_and_a_call_one_launch(driven: PluginHost, world: Any) -> None:
    f = on(driven, steps)
    first, second, third = (words(world, lambda: f(X)) for _ in range(3))
    assert first.count("launch") > 2
    assert "graph" not in first
    assert second.count("capture") == 1
    assert third.count("graph") == 1
    assert not {"launch", "capture", "allocate"} & set(third)
    np.testing.assert_allclose(f(3 * X), right(3 * X), rtol=2e-5)


@pytest.mark.medium
def test_donated_state_stays_in_place_and_allocates_nothing(driven: PluginHost, world: Any) -> None:
    step = on(driven, lambda w, g: w - 0.5 * (g * rlx.sum(w * g)), donate=("w",))
    w, g = put(driven, X), put(driven, X / 8)
    wanted = X
    for _ in range(2):
        w, wanted = step(w, g), wanted - 0.5 * (X / 8 * (wanted * X / 8).sum())
    address = w.block.buffer.address
    asked = words(world, lambda: globals().__setitem__("_next", step(w, g)))
    assert "allocate" not in asked
    found: Any = globals().pop("_next")
    assert found.block.buffer.address == address
    np.testing.assert_allclose(found.to_host(), wanted - 0.5 * (X / 8 * (wanted * X / 8).sum()), rtol=1e-4)


@pytest.mark.medium
def test_what_is_asked_for_on_other_streams_is_in_order(driven: PluginHost, world: Any) -> None:
    """The fake runs of a stream only what somebody waits for, so every order here was asked for."""
    import cupy

    f, x = on(driven, lambda x: x * 2 + 1), put(driven, X)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for stream in streams:
        with stream:
            x = f(x)
    np.testing.assert_array_equal(x.to_host(), 8 * X + 7)


@pytest.mark.medium
def test_cupys_work_on_the_same_stream_comes_before_and_after(driven: PluginHost, world: Any) -> None:
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        theirs = cupy.array(X)
        found = on(driven, lambda x: x + 1)(theirs)
        assert isinstance(found, DeviceArray)
        np.testing.assert_array_equal(cupy.asarray(found).get(), X + 1)


@pytest.mark.medium
def test_the_default_stream_of_a_thread_is_no_other_threads(driven: PluginHost, world: Any) -> None:
    import cupy

    f, x, found = on(driven, lambda x: x + 1), put(driven, X), []

    def work(x: Any) -> None:
        with cupy.cuda.per_thread():
            found.append(f(x))

    for _ in range(3):
        thread = threading.Thread(target=work, args=(found[-1] if found else x,))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[-1].to_host(), X + 3)


@pytest.mark.medium
def test_cupys_arrays_are_taken_as_they_lie(driven: PluginHost, world: Any) -> None:
    import cupy

    f, theirs = on(driven, lambda x: x + 1), cupy.array(X)
    f(theirs)
    asked = [what for word, what in world.records if word == "copy"]
    np.testing.assert_array_equal(f(theirs).to_host(), X + 1)
    assert f.report.traffic.inputs == 0
    assert [what for word, what in world.records if word == "copy"][len(asked) :] == [(2, X.nbytes)]


class Foreign:
    """An array as torch has them: a dtype of its own, DLPack, and no interface that names a stream."""

    def __init__(self, data: np.ndarray, stream: Any) -> None:
        import cupy

        with stream:
            self.held, self.stream = cupy.array(data * 0), stream
            ready = cupy.array(data)
            cupy.cuda.runtime.memcpyAsync(
                self.held.data.ptr, ready.data.ptr, data.nbytes, 3, stream.ptr
            )  # not waited for
        self.kept, self.asked = ready, []
        self.shape, self.dtype = data.shape, f"library.{data.dtype.name}"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        import cupy

        self.asked.append(stream)
        cupy.cuda.stream_of(stream or 1).wait_event(self.stream.record())
        return "dltensor", self.held


@pytest.mark.medium
def test_arrays_that_have_dlpack_alone_are_taken_in_order(driven: PluginHost, world: Any) -> None:
    import cupy

    f = on(driven, lambda x: x * 2)
    theirs, ours = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    given = Foreign(X, theirs)
    with ours:
        found = f(given)
        assert given.asked == [ours.ptr]
        np.testing.assert_array_equal(found.to_host(), 2 * X)
    assert f.report.traffic.inputs == 0
    assert put(driven, given).block.buffer.owner is given.held


def test_what_cupy_cannot_take_is_said_with_its_librarys_words(driven: PluginHost, world: Any) -> None:
    import cupy

    given = Foreign(X, cupy.cuda.Stream(non_blocking=True))
    given.held.dtype = np.dtype("V4")
    with pytest.raises(PlaceError, match="CuPy cannot take Foreign on cuda:0") as caught:
        on(driven, lambda x: x * 2)(given)
    assert "unsupported dtype" in str(caught.value)


class Interfaced:
    """An array as Numba has them: the interface, which names a stream."""

    def __init__(self, held: Any, stream: Any) -> None:
        self.shape, self.dtype = held.shape, held.dtype
        self.held, self.named = held, stream.ptr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.held.__cuda_array_interface__, "stream": self.named}


@pytest.mark.medium
def test_an_interface_that_names_a_stream_is_waited_for(driven: PluginHost, world: Any) -> None:
    import cupy

    given = Foreign(X, cupy.cuda.Stream(non_blocking=True))
    f = on(driven, lambda x: x * 2)
    np.testing.assert_array_equal(f(Interfaced(given.held, given.stream)).to_host(), 2 * X)
    assert f.report.traffic.inputs == 0


@pytest.mark.medium
@pytest.mark.parametrize("view", [np.s_[:, 1:], np.s_[1:], np.s_[::-1, ::2]], ids=str)
def test_views_of_cupys_arrays_are_made_dense_on_the_device(driven: PluginHost, view: Any) -> None:
    import cupy

    f = on(driven, lambda x: x + 1)
    np.testing.assert_array_equal(f(cupy.array(X)[view]).to_host(), X[view] + 1)
    assert f.report.traffic.inputs == 0


@pytest.mark.medium
def test_cupys_array_on_another_device_is_refused_by_both_names(driven: PluginHost) -> None:
    import cupy

    with cupy.cuda.Device(1):
        theirs = cupy.array(X)
    with pytest.raises(PlaceError, match=r"CUDA's device 1, and the program runs on cuda:0"):
        on(driven, lambda x: x + 1)(theirs)
    np.testing.assert_array_equal(on(driven, lambda x: x + 1, outputs="host")(X), X + 1)


@pytest.mark.parametrize("way", ["dlpack", "interface"])
def test_an_exported_array_keeps_its_memory(driven: PluginHost, world: Any, way: str) -> None:
    import cupy

    x = on(driven, lambda x: x * 3)(put(driven, X))
    assert x.__dlpack_device__() == (2, 0)
    device, stream = x.device, cupy.cuda.Stream(non_blocking=True)
    with stream:
        theirs = x.__dlpack__(stream=stream.ptr)[1] if way == "dlpack" else cupy.asarray(x)
    del x
    others = [put(driven, -X) for _ in range(4)]
    device.synchronize()
    with stream:
        np.testing.assert_array_equal(theirs.get(), 3 * X)
    np.testing.assert_array_equal(others[0], -X)


def test_what_cupy_has_no_word_for_is_not_exported(driven: PluginHost) -> None:
    x = put(driven, X.astype(ml_dtypes.bfloat16))
    with pytest.raises(BufferError, match="CuPy exports no bfloat16"):
        x.__dlpack__()
    assert not hasattr(x, "__cuda_array_interface__")
    assert not hasattr(x, "__nothing_of_this_name__")
    np.testing.assert_array_equal(np.asarray(x).astype(np.float32), X.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.medium
def test_an_array_may_be_changed_as_soon_as_it_was_put(driven: PluginHost) -> None:
    f = on(driven, lambda x: x + 1, outputs="device")
    batch, found = X.copy(), []
    for number in range(3):
        batch[:] = X * number
        found.append(f(batch))
    batch[:] = np.nan
    for number, each in enumerate(found):
        np.testing.assert_array_equal(each.to_host(), X * number + 1)


def test_large_arrays_are_waited_for(driven: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_gpu.cupy.driver.STAGED", 16)
    data = X.copy()
    x = put(driven, data)
    data[:] = np.nan
    np.testing.assert_array_equal(x.to_host(), X)


def test_memory_goes_back_to_the_stream_that_it_came_from(driven: PluginHost, world: Any) -> None:
    """CuPy gives it out again to that stream's work, which must not be before ours on another is done."""
    import cupy

    driver = put(driven, X).device.driver
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        buffer = driver.allocate(X.nbytes)
    with second:
        driver.write(buffer, 0, X, waits=True)
        driver.synchronize()
        kept = driver.allocate(X.nbytes)
        driver.copy(buffer, 0, kept, 0, X.nbytes)
        address = buffer.address
        driver.free(buffer)
    with first:
        theirs = cupy.array(-X)
        assert theirs.data.ptr == address
    found = np.empty_like(X)
    with second:
        driver.read(kept, 0, found)
    np.testing.assert_array_equal(found, X)


def test_a_full_device_says_what_was_asked_for(driven: PluginHost, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(driven, X)
    import cupy

    monkeypatch.setattr(world, "limit", cupy.cuda.memory.held)
    with pytest.raises(OutOfMemoryError, match=r"cuda:0: .* of 268435456 bytes cannot be allocated"):
        rlx.device_put(np.zeros(1 << 26, np.float32), "cuda:0", host=driven)
    np.testing.assert_array_equal(x.to_host(), X)


@pytest.mark.medium
def test_a_device_that_is_lost_is_an_error_and_the_process_lives(driven: PluginHost, world: Any) -> None:
    require_a_lost_device_is_an_error(world, on(driven, steps), "cuda:0")


@pytest.mark.medium
@pytest.mark.parametrize("status", [1, 701, 801, 901])
def test_a_call_that_fails_alone_leaves_the_device_usable(driven: PluginHost, world: Any, status: int) -> None:
    f = on(driven, steps)
    f(X)
    world.lost = status
    try:
        with pytest.raises(DeviceCallError, match="cuda:0: ") as caught:
            f(X)
        assert str(status) in str(caught.value)
    finally:
        world.lost = None
    np.testing.assert_allclose(f(X), right(X), rtol=2e-5)


@pytest.mark.medium
def test_the_first_error_of_a_recording_is_raised_and_the_next_can_be_recorded(
    driven: PluginHost, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that a failing launch invalidated ends with an error of its own, which must not hide the launch's."""
    import cupy

    driver = put(driven, X).device.driver

    class Failing:
        def run(self, stream: Any) -> None:
            raise cupy.cuda.driver.CUDADriverError(701)

    ends = cupy.cuda.Stream.end_capture

    def invalidated(stream: Any) -> None:
        ends(stream)
        raise cupy.cuda.runtime.CUDARuntimeError(901)

    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda.Stream, "end_capture", invalidated)
        with pytest.raises(DeviceCallError, match="more registers") as caught:
            driver.record([Failing()] * 8)
    assert "701" in str(caught.value)
    assert caught.value.__notes__ == ["the capture ended with: cudaError 901"]
    f = on(driven, steps)
    for _ in range(4):
        np.testing.assert_allclose(f(X), right(X), rtol=2e-5)


def test_a_binary_of_another_driver_is_compiled_again(driven: PluginHost) -> None:
    driver = put(driven, X).device.driver
    with pytest.raises(KernelBuildError, match="a stale binary"):
        driver.build("source", b"of another")


@pytest.mark.medium
def test_an_index_outside_names_the_line(driven: PluginHost) -> None:
    f = on(driven, lambda t, at: rlx.take(t, at, axis=0))
    for _ in range(3):
        np.testing.assert_array_equal(f(X, np.array([1, 5])), X[[1, 5]])
    with pytest.raises(IndexRangeError, match="outside an axis of 6 elements"):
        f(X, np.array([1, 6]))


@pytest.mark.medium
def test_eight_threads_share_one_program(driven: PluginHost) -> None:
    f, wrong = on(driven, steps), []
    f(X)

    def work(number: int) -> None:
        for _ in range(6):
            found = f(X * number)
            if not np.allclose(found, right(X * number), rtol=2e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.medium
def test_both_devices_have_memory_of_their_own(driven: PluginHost) -> None:
    x = put(driven, X, "cuda:1")
    found = rlx.jit(lambda x: x + 1, target="cuda:1", host=driven)(x)
    assert found.place == "cuda:1"
    assert found.block.buffer.owner.device_id == 1
    np.testing.assert_array_equal(found.to_host(), X + 1)


def test_a_forked_process_is_told_so(driven: PluginHost) -> None:
    x = put(driven, X)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            x.to_host()
        except DeviceLostError:
            os.write(writing, b"told")
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 4) == b"told"


@pytest.mark.medium
def test_events_time_every_step(driven: PluginHost) -> None:
    require_every_step_is_timed(on(driven, steps))


def test_few_launches_are_no_graph(driven: PluginHost) -> None:
    driver = put(driven, X).device.driver
    assert driver.record(()) is None
    assert driver.address(At(driver.allocate(8), 4)) % 512 == 4
