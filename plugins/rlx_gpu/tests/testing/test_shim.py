"""The processor as a GPU runs what is right, and says what is not: races, waits in vain, strays, what is not aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlx_core.device.driver import At
from rlx_core.errors import DeviceUnavailableError, KernelBuildError, OutOfMemoryError
from rlx_gpu.testing.shim.compiler import NAMES, Compiler, compiler
from rlx_gpu.testing.shim.dialects import CUDA_DIALECT, METAL_DIALECT
from rlx_gpu.testing.shim.driver import ShimBuffer, ShimDriver

try:
    compiler()
except DeviceUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def driver() -> ShimDriver:
    return ShimDriver(CUDA_DIALECT, "shim:0")


KERNELS = """
extern "C" __global__ void reversed(const float* x, float* y) {
  __shared__ float a[64];
  a[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = a[63 - threadIdx.x];
}
extern "C" __global__ void racing(const float* x, float* y) {
  __shared__ float a[64];
  a[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = a[63 - threadIdx.x];
}
extern "C" __global__ void apart(const float* x, float* y) {
  if (threadIdx.x < 40) __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void left(const float* x, float* y) {
  if (threadIdx.x == 7) return;
  y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1u);
}
extern "C" __global__ void swapped(const float* x, float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1u);
}
extern "C" __global__ void beyond(const float* x, float* y) { y[threadIdx.x + 1] = x[threadIdx.x]; }
extern "C" __global__ void crooked(const float* x, float* y) { *(uint4*)y = *(const uint4*)(x + 1); }
extern "C" __global__ void unset(const float* x, float* y) {
  __shared__ float b[64];
  y[blockIdx.x * 64 + threadIdx.x] = b[threadIdx.x];
  b[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void deep(const float* x, float* y) {
  volatile float own[16800];
  for (int i = 0; i < 16800; ++i) own[i] = x[0];
  y[threadIdx.x] = own[5];
}
"""


@pytest.fixture(scope="module")
def run(driver: ShimDriver):  # type: ignore[no-untyped-def]
    """Runs a kernel on 64 numbers and gives 64, or as many as are asked for."""
    module = driver.build(KERNELS)

    def run(name: str, group: int = 64, groups: int = 1, count: int = 64) -> np.ndarray:
        x, y = (driver.allocate(4 * n) for n in (64, count))
        driver.write(x, 0, np.arange(64, dtype=np.float32), waits=True)
        driver.submit([driver.launch(module, name, groups, group, [At(x, 0), At(y, 0)])])
        found = np.empty(count, np.float32)
        driver.read(y, 0, found)
        return found

    return run


@pytest.mark.medium
def test_threads_share_memory_between_barriers(run) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_array_equal(run("reversed"), np.arange(64)[::-1])


def test_threads_of_a_subgroup_exchange_registers(run) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_array_equal(run("swapped"), np.arange(64) ^ 1)


def test_a_missing_barrier_shows_as_other_bits_each_time(run) -> None:  # type: ignore[no-untyped-def]
    assert len({run("racing").tobytes() for _ in range(4)}) == 4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("apart", "a barrier that not all threads of the group reach"),
        ("left", "an exchange that not all threads of the subgroup reach"),
        ("beyond", "wrote beyond a buffer of 256 bytes"),
        ("crooked", "not aligned to its size"),
        ("deep", "a stack of more than 64 KiB"),
    ],
)
def test_what_a_gpu_would_suffer_is_said(run, name: str, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match=said) as caught:
        run(name)
    assert name in str(caught.value)
    np.testing.assert_array_equal(run("reversed"), np.arange(64)[::-1])  # and the device goes on


def test_an_exchange_with_a_thread_that_is_not_there_is_said(run) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match="a thread that the subgroup has not"):
        run("swapped", group=33)


def test_shared_memory_keeps_nothing_from_another_group(run) -> None:  # type: ignore[no-untyped-def]
    assert np.isnan(run("unset", groups=3, count=192)).all()


@pytest.mark.medium
def test_orders_are_the_same_for_the_same_seed(driver: ShimDriver) -> None:
    module = driver.build(KERNELS)

    def found(seed: int) -> bytes:
        driver = ShimDriver(CUDA_DIALECT, "shim:0", seed=seed)
        x, y = driver.allocate(256), driver.allocate(256)
        driver.write(x, 0, np.arange(64, dtype=np.float32), waits=True)
        driver.submit([driver.launch(module, "racing", 1, 64, [At(x, 0), At(y, 0)])])
        result = np.empty(64, np.float32)
        driver.read(y, 0, result)
        return result.tobytes()

    assert found(5) == found(5) != found(6)


METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void totals(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& from [[buffer(2)]],
                   uint thread_in_group [[thread_index_in_threadgroup]], uint group_in_grid [[threadgroup_position_in_grid]]) {
  threadgroup float a[32];
  a[thread_in_group] = x[from + group_in_grid * 32u + thread_in_group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint i = 0; i < 32u; ++i) total += a[i];
  if (thread_in_group == 0u) y[group_in_grid] = total;
}
"""


@pytest.mark.medium
def test_metal_gets_numbers_by_reference_and_its_place_as_arguments() -> None:
    driver = ShimDriver(METAL_DIALECT, "metal:0")
    x, y = buffers(driver, 4 * 67, 8)
    numbers = np.arange(67, dtype=np.float32)
    driver.write(x, 0, numbers, waits=True)
    launch = driver.launch(driver.build(METAL), "totals", 2, 32, [At(x, 0), At(y, 0), np.uint32(3)])
    driver.submit([launch])
    found = np.empty(2, np.float32)
    driver.read(y, 0, found)
    assert found.tolist() == [numbers[3:35].sum(), numbers[35:].sum()]
    driver.set_argument(launch, 2, np.uint32(0))
    driver.submit([launch])
    driver.read(y, 0, found)
    assert found.tolist() == [numbers[:32].sum(), numbers[32:64].sum()]


@pytest.mark.medium
def test_a_module_is_built_from_what_another_one_was(driver: ShimDriver) -> None:
    binary = driver.binary_of(driver.build(KERNELS))
    again = driver.build("nothing that compiles", binary)
    x, y = buffers(driver, 256, 256)
    driver.submit([driver.launch(again, "reversed", 1, 64, [At(x, 0), At(y, 0)])])
    with pytest.raises(KernelBuildError, match="shim:0: a library that does not load"):
        driver.build("", b"no library")


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(driver: ShimDriver) -> None:
    with pytest.raises(KernelBuildError, match="shim:0: the stand-in's C\\+\\+ compiler refuses") as caught:
        driver.build('extern "C" __global__ void f(float* x) { x[0] = unknown(1); }')
    assert "unknown" in str(caught.value)


def test_memory_is_used_between_allocation_and_release_and_within_its_size(driver: ShimDriver) -> None:
    (x,) = buffers(driver, 16)
    found = np.empty(4, np.float32)
    driver.read(x, 0, found)
    assert np.isnan(found).all()  # fresh memory
    with pytest.raises(AssertionError, match="bytes 4 and 16 on of 16"):
        driver.read(x, 4, found)
    driver.free(x)
    with pytest.raises(AssertionError, match="a freed buffer is used"):
        driver.read(x, 0, found)
    with pytest.raises(OutOfMemoryError, match="no memory left"):
        driver.allocate(1 << 40)


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailableError, match=r"there is no C\+\+ compiler") as caught:
        compiler.__wrapped__()
    assert "pip install ziglang" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("g++",), ("clang++",), ("clang-19",), ("python", "-m", "ziglang", "cc")], ids=str)
def test_every_compiler_makes_the_same(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import shutil
    import sys

    if command[0] == "python":
        if importlib.util.find_spec("ziglang") is None:
            pytest.skip("needs ziglang: python -m pip install ziglang")
        command = (sys.executable, *command[1:])
    else:
        versions = (name for name in NAMES if name.startswith(f"{command[0]}-"))
        names = [name for name in (command[0], *versions) if shutil.which(name)]
        if not names:
            pytest.skip(f"needs {command[0]}: apt-get install {command[0]}")
        command = (names[0], *command[1:])
    made = Compiler(command, str(command)).shared_object(CUDA_DIALECT.as_cpp(KERNELS)[0])
    driver = ShimDriver(CUDA_DIALECT, "shim:0")
    x, y = buffers(driver, 256, 256)
    driver.write(x, 0, np.arange(64, dtype=np.float32), waits=True)
    driver.submit([driver.launch(driver.build("", made), "reversed", 1, 64, [At(x, 0), At(y, 0)])])
    found = np.empty(64, np.float32)
    driver.read(y, 0, found)
    np.testing.assert_array_equal(found, np.arange(64)[::-1])


def buffers(driver: ShimDriver, *sizes: int) -> Sequence[ShimBuffer]:
    return [driver.allocate(n) for n in sizes]
