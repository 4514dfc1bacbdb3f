"""Arrays on a device: what they say of themselves, how they come to the host, and which devices there are."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.device.array import DeviceArray
from rlx_core.errors import DeviceError, DeviceLostError, DtypeError, IndexRangeError, PlaceError, TraceError
from rlx_core.testing.fake_device import FakeArray, FakeDriver, fake_host

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def put(x: Any = X, place: str = "fake:0", **settings: Any) -> DeviceArray:
    return rlx.device_put(x, place, host=fake_host(**settings))


@pytest.mark.parametrize("x", [X, X.T, np.float64(2.5), np.zeros((0, 3)), np.ones(3, ml_dtypes.bfloat16), X[::-1] > 2])
def test_an_array_comes_back_as_it_was_put(x: Any) -> None:
    found = put(x)
    assert (found.shape, found.dtype, found.nbytes) == (x.shape, x.dtype, x.nbytes)
    np.testing.assert_array_equal(found.to_host(), x)


def test_it_says_its_type_and_its_place() -> None:
    x = put(place="fake:1")
    assert repr(x) == "<f32[2, 3] on fake:1>"
    assert (x.ndim, x.size, len(x), x.place) == (2, 6, 2, "fake:1")


def test_numpy_gets_a_copy() -> None:
    x = put()
    np.testing.assert_array_equal(np.asarray(x, np.float64), X)
    with pytest.raises(ValueError, match="can only be copied to the host"):
        np.asarray(x, copy=False)


def test_dlpack_says_the_device_and_refuses_where_its_library_has_none() -> None:
    x = put()
    assert x.__dlpack_device__() == (12, 0)
    with pytest.raises(BufferError, match="exports no memory"):
        x.__dlpack__()


def test_copies_have_memory_of_their_own() -> None:
    x = put()
    for other in (copy.copy(x), copy.deepcopy(x)):
        assert other.block is not x.block
        np.testing.assert_array_equal(other.to_host(), X)


def test_it_is_not_pickled() -> None:
    with pytest.raises(PlaceError, match="an array lies on fake:0, which another process may not have"):
        pickle.dumps(put())


CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
KEYS: list[Any] = [1, -1, slice(None, None, 2), (slice(1, 3), 2), (..., slice(None, None, -1)), (None, 0, ..., 4)]
KEYS += [(slice(2, None, -1), slice(None, None, -2)), (slice(3, 1), 0), np.int64(2), (0, 0, 0), ()]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16, np.int64], ids=str)
def test_what_an_index_selects_is_copied_on_the_device(key: Any, dtype: Any) -> None:
    drivers: list[FakeDriver] = []
    x = put(CUBE.astype(dtype), drivers=drivers)
    found = x[key]
    assert drivers[0].count("read") == 0
    assert found.dtype == dtype
    assert found.shape == CUBE[key].shape
    np.testing.assert_array_equal(found.to_host(), CUBE.astype(dtype)[key])
    assert drivers[0].count("write") == 1


def test_a_transposed_array_is_copied_on_the_device_and_programs_take_it() -> None:
    host = fake_host()
    x = rlx.device_put(CUBE, "fake:0", host=host)
    np.testing.assert_array_equal(rlx.jit(lambda v: v + 1, target="fake", host=host)(x.T).to_host(), CUBE.T + 1)
    np.testing.assert_array_equal([row.to_host() for row in x], CUBE)


def test_a_kernel_that_copies_is_built_once() -> None:
    drivers: list[FakeDriver] = []
    x = put(CUBE, drivers=drivers)
    for _ in range(3):
        x[:, ::2].to_host()
    assert drivers[0].built == 1


def test_a_view_of_a_result_has_the_error_of_its_run() -> None:
    host = fake_host()
    take = rlx.jit(lambda v, at: rlx.take(v, at, axis=0), target="fake", host=host)
    found = take(rlx.device_put(X, "fake:0", host=host), np.array([0, 7]))
    with pytest.raises(IndexRangeError, match="index 7 is outside"):
        found[::2].to_host()


@pytest.mark.parametrize(("key", "says"), [(2, "index 2 is out of bounds"), ((0, 0, 0), "too many indices")])
def test_an_index_outside_is_refused(key: Any, says: str) -> None:
    with pytest.raises(IndexRangeError, match=rf"<f32\[2, 3\] on fake:0>: {says}"):
        put()[key]


@pytest.mark.parametrize("key", [np.array([0, 1]), [0, 1], True, 1.5], ids=str)
def test_an_index_that_is_an_array_is_for_programs(key: Any) -> None:
    with pytest.raises(TraceError, match="is indexed by integers, slices"):
        put()[key]


def test_a_dtype_that_the_device_lacks_is_refused_by_name() -> None:
    with pytest.raises(DtypeError, match=r"c64\[2\], and the device has no c64"):
        put(np.ones(2, np.complex64))


def test_putting_on_the_host_is_no_copy_and_putting_twice_neither() -> None:
    host = fake_host()
    assert rlx.device_put(X, "cpu", host=host) is not None
    x = rlx.device_put(X, "fake:0", host=host)
    assert rlx.device_put(x, "fake:0", host=host) is x


@pytest.mark.medium
def test_devices_are_listed_by_what_to_write_as_target() -> None:
    host = fake_host()
    assert [d.target for d in rlx.devices("fake", host=host)] == ["fake:0", "fake:1"]
    assert {"fake:0", "fake:1"} <= {d.target for d in rlx.devices(host=host)}
    assert repr(rlx.devices("fake:1", host=host)[0]) == "<fake:1: Recorder>"


@pytest.mark.parametrize(
    ("target", "says"),
    [("fake:2", "there are 2, counted from 0"), ("cpu:1", "there is 1, counted from 0"), ("fake:x", "no number after")],
)
def test_a_device_that_is_not_there_is_named(target: str, says: str) -> None:
    with pytest.raises(DeviceError, match=says):
        rlx.compile(lambda x: x + 1, rlx.spec("f32[2]"), target=target, host=fake_host())
    with pytest.raises(DeviceError):
        rlx.devices(target, host=fake_host())


def test_an_array_of_another_device_is_refused_with_both_places() -> None:
    host = fake_host()
    double = rlx.jit(lambda x: x + x, target="fake:1", host=host)
    with pytest.raises(PlaceError, match="x lies on fake:0, and the program runs on fake:1"):
        double(rlx.device_put(X, "fake:0", host=host))


def test_an_array_of_the_devices_own_library_is_taken_as_it_lies() -> None:
    drivers: list[FakeDriver] = []
    host = fake_host(drivers=drivers)
    x = rlx.device_put(X, "fake:0", host=host)
    theirs = FakeArray(x.block.buffer, 12, (3,), np.dtype(np.float32))
    writes = drivers[0].count("write")
    found = rlx.jit(lambda v: v * 2, target="fake", host=host)(theirs)
    np.testing.assert_array_equal(found.to_host(), 2 * X[1])
    assert drivers[0].count("write") == writes


def test_a_strided_array_of_the_devices_own_library_becomes_dense_on_the_device() -> None:
    drivers: list[FakeDriver] = []
    host = fake_host(drivers=drivers)
    x = rlx.device_put(X, "fake:0", host=host)
    theirs = FakeArray(x.block.buffer, 20, (3, 2), np.dtype(np.float32), (-4, -12))
    double = rlx.jit(lambda v: v * 2, target="fake", host=host)
    writes = drivers[0].count("write")
    np.testing.assert_array_equal(double(theirs).to_host(), 2 * X[::-1, ::-1].T)
    np.testing.assert_array_equal(rlx.device_put(theirs, "fake:0", host=host).to_host(), X[::-1, ::-1].T)
    assert drivers[0].count("write") == writes


@pytest.mark.parametrize("place", ["fake:1", "cpu"])
def test_an_array_of_one_device_is_put_on_another(place: str) -> None:
    host = fake_host()
    x = rlx.device_put(X.astype(ml_dtypes.bfloat16), "fake:0", host=host)
    found = rlx.device_put(x, place, host=host)
    assert getattr(found, "place", "cpu") == place
    np.testing.assert_array_equal(np.asarray(found), X.astype(ml_dtypes.bfloat16))
    bad = rlx.jit(lambda v, at: rlx.take(v, at), target="fake", host=host)(
        rlx.device_put(X[0], "fake:0", host=host), [9]
    )
    with pytest.raises(IndexRangeError, match="index 9"):
        rlx.device_put(bad, place, host=host)


def in_child(x: Any, queue: Any) -> None:
    try:
        queue.put(str(rlx.device_put(X, "fake:0", host=x) if not isinstance(x, DeviceArray) else x.to_host()))
    except DeviceLostError as error:
        queue.put(error.message)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_before_the_first_use_works_and_one_after_it_is_told() -> None:
    context = multiprocessing.get_context("fork")
    host, queue = fake_host(), context.SimpleQueue()
    for given, says in (
        (host, "<f32[2, 3] on fake:0>"),
        (put(), "this process was forked after the device had been used"),
    ):
        child = context.Process(target=in_child, args=(given, queue))
        child.start()
        found = queue.get()
        child.join()
        assert says in found


def test_other_libraries_find_what_the_driver_has_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    x = put()
    driver = type(x.device.driver)
    monkeypatch.setattr(driver, "attributes", frozenset(("__acme_array__",)))
    monkeypatch.setattr(driver, "attribute", lambda self, name, view: (name, view.shape, view.owner))
    assert x.__acme_array__ == ("__acme_array__", (2, 3), x)
    assert not hasattr(x, "__other_array__")
    with pytest.raises(AttributeError, match="has no attribute 'shpae'"):
        x.shpae
