"""Programs on an OpenCL device: the numbers, transfers, faults, the profile, and the cache of binaries."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import KernelBuildError
from rlx_core.plugins import PluginHost

SHIFTS = np.array([0, 4], np.uint8)[:, None]
X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="rocm", host=host, **options)


@pytest.mark.medium
def test_an_array_of_pyopencls_own_is_taken_without_a_copy(host: PluginHost) -> None:
    arrays = pytest.importorskip("pyopencl.array")
    f = on(host, lambda x: x + 1)
    put = rlx.device_put(X, "rocm:0", host=host)
    theirs = arrays.to_device(put.device.driver.queue, X)
    np.testing.assert_array_equal(f(theirs).to_host(), X + 1)
    assert f.report.traffic.inputs == 0


@pytest.mark.medium
def test_views_are_made_dense_on_the_device(host: PluginHost) -> None:
    arrays = pytest.importorskip("pyopencl.array")
    put = rlx.device_put(X, "rocm:0", host=host)
    np.testing.assert_array_equal(put[::-2, 1:].to_host(), X[::-2, 1:])
    theirs = arrays.to_device(put.device.driver.queue, X).T
    np.testing.assert_array_equal(rlx.device_put(theirs, "rocm:0", host=host).to_host(), X.T)


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(host: PluginHost) -> None:
    driver = rlx.device_put(X, "rocm:0", host=host).device.driver
    with pytest.raises(KernelBuildError, match="rocm:0: its compiler refuses the source") as caught:
        driver.build("__kernel void f( {")
    assert "compiler" in str(caught.value)


@pytest.mark.medium
def test_weights_of_four_bits_stay_packed(host: PluginHost) -> None:
    """One kernel reads codes and scales, and nothing on the device has the size of the weight in 32 bits."""
    k, n, block = 64, 48, 16
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (k // 2, n)).astype("u1"), rng.standard_normal((k // block, n)).astype("f4")

    def weight(codes: Any, scales: Any) -> Any:
        pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[:, None, :], SHIFTS), np.uint8(15))
        numbers = rlx.astype(rlx.reshape(pairs, (k // block, block, n)), "f32") - np.float32(8)
        return rlx.reshape(numbers * scales[:, None, :], (k, n))

    f = on(host, lambda x, codes, scales: rlx.gelu(x @ weight(codes, scales) + 1))
    x = rng.standard_normal((5, k)).astype("f4")
    exact = rlx.gelu(x @ np.asarray(weight(codes, scales)) + 1)
    np.testing.assert_allclose(f(x, codes, scales), exact, rtol=1e-4, atol=1e-4)  # sums in another order
    (step,) = f.executables[0].lir.steps
    assert step.kernel == "product_prologue"
    assert f.report.arena_nbytes < k * n * 4


@pytest.mark.medium
def test_an_embedding_of_codes_and_scales_is_decoded_where_it_is_read(host: PluginHost) -> None:
    n, k = 300, 64
    rng = np.random.default_rng(12)
    codes, scales = rng.integers(0, 256, (n, k // 2)).astype("u1"), rng.standard_normal((n, k // 32, 1)).astype("f4")

    def table(codes: Any, scales: Any) -> Any:
        pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[:, :, None], SHIFTS[:, 0]), np.uint8(15))
        return rlx.reshape((rlx.astype(rlx.reshape(pairs, (n, k // 32, 32)), "f32") - np.float32(8)) * scales, (n, k))

    f = on(host, lambda codes, scales, tokens: rlx.take(table(codes, scales), tokens, axis=0))
    tokens = np.array([0, 7, 299, 7], np.int32)
    np.testing.assert_array_equal(f(codes, scales, tokens), np.asarray(table(codes, scales))[tokens])
    assert f.report.arena_nbytes < n * k * 4


@pytest.mark.medium
def test_its_language_is_printed(host: PluginHost) -> None:
    f = on(host, lambda x: rlx.exp(x))
    f(X)
    assert "__kernel" in f.executables[0].emit("opencl")


SECOND = """
import json, sys, time
import numpy as np, rlx_core as rlx
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.entry import given_entry
import rlx_rocm.plugin
known = default_host()
host = known if any(e.name == "rocm" for e in known.entries) else PluginHost([*known.entries, given_entry(rlx_rocm.plugin)])
f = rlx.jit(lambda x: rlx.sum(rlx.exp(x) * rlx.tanh(x), axis=1) / 7, target="rocm", host=host)
rlx.device_put(np.ones(1, np.float32), "rocm", host=host)
start = time.perf_counter()
f(np.ones((6, 40), np.float32))
print(json.dumps([f.executables[0].report.code, time.perf_counter() - start]))
"""


@pytest.mark.slow
def test_a_second_process_builds_nothing(host: PluginHost, tmp_path: Path) -> None:
    """PoCL has a cache of its own, so each process gets an empty one."""
    found = []
    for number in range(2):
        own = {"POCL_CACHE_DIR": str(tmp_path / f"pocl{number}"), "RLX_CACHE_DIR": str(tmp_path / "rlx")}
        made = subprocess.run(
            [sys.executable, "-c", SECOND], capture_output=True, text=True, check=True, env={**os.environ, **own}
        )
        found.append(json.loads(made.stdout))
    (first, seconds), (second, again) = found
    assert (first, second) == ("compiled", "cached")
    assert again < 0.5 * seconds


@pytest.mark.medium
def test_complex_numbers_are_computed_in_their_parts(host: PluginHost) -> None:
    def f(z: Any) -> Any:
        y = rlx.fft.fft(z, axis=0) / (2 + rlx.conj(z))
        return rlx.fft.ifft2(y @ rlx.exp(z.T)), rlx.abs(y) + rlx.angle(y), rlx.fft.irfft(y, n=13), y.sum(axis=1)

    z = (X + 1j * X[::-1]).astype(np.complex64)
    compiled = on(host, f)
    for found, wanted in zip(compiled(z), f(z), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
    assert "host" not in str(compiled.report)


@pytest.mark.medium
def test_a_transform_has_its_gradient_on_the_device(host: PluginHost) -> None:
    def power(x: Any) -> Any:
        return rlx.sum(rlx.complex_norm_sq(rlx.fft.rfft(x, n=67)))

    found = on(host, rlx.grad(power))(X)
    np.testing.assert_allclose(found, rlx.grad(power)(X), rtol=1e-4, atol=1e-3)


AT_EXIT = """
import os, sys, threading, time
import numpy as np
import rlx_core as rlx

f = rlx.jit(lambda x: rlx.tanh(rlx.sin(x) * x) + 1, target="rocm", outputs="device")
x = np.ones(1 << 21, np.float32)
f(x)
runs = [0, 0]

def work(number):
    while True:
        f(x)
        runs[number] += 1

for number in range(2):
    threading.Thread(target=work, args=(number,), daemon=True).start()
while not all(runs):
    time.sleep(0.01)
f(x)
print("ends")
"""


@pytest.mark.medium
@pytest.mark.parametrize("repeat", range(3))
def test_a_process_ends_well_with_work_pending_in_daemon_threads(repeat: int, host: PluginHost, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", AT_EXIT],
        env={**os.environ, "RLX_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == (0, "ends\n"), ran.stderr[-2000:]


@pytest.mark.medium
def test_a_driver_that_is_not_used_any_more_is_not_kept_for_the_end() -> None:
    from rlx_rocm.opencl.exiting import ExitGuard

    class Driver:
        def __init__(self) -> None:
            self.finished: list[bool] = []
            self.guard = ExitGuard(self.synchronize)

        def synchronize(self) -> None:
            self.finished.append(True)

    driver = Driver()
    guard, kept = driver.guard, weakref.ref(driver)
    guard._at_exit()
    assert driver.finished == [True]
    del driver
    gc.collect()
    assert kept() is None
    guard._at_exit()


def test_no_other_thread_gets_into_a_call_when_the_process_ends() -> None:
    from rlx_rocm.opencl.exiting import ExitGuard

    class Driver:
        def synchronize(self) -> None:
            order.append("finished")

    order: list[str] = []
    driver = Driver()
    guard = ExitGuard(driver.synchronize)
    begun, ends = threading.Event(), threading.Event()

    def inside() -> None:
        guard.enter()
        begun.set()
        ends.wait()
        order.append("left")
        guard.leave()

    def later() -> None:
        guard.enter()
        order.append("entered")

    threading.Thread(target=inside, daemon=True).start()
    begun.wait()
    threading.Timer(0.05, ends.set).start()
    guard._at_exit()
    threading.Thread(target=later, daemon=True).start()
    time.sleep(0.05)
    assert order == ["left", "finished"]
    guard.enter()  # whoever ends the process may free what there is
    guard.leave()
