"""`cuda.wgmma`: which products go to warpgroups, by which rows, what a launch asks the driver for, and who refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attrs import evolve
from click.testing import Result
from typer.testing import CliRunner

import rlx_core as rlx
import rlx_cuda.discovery
from rlx_core.cli.main import app
from rlx_core.device.device import Device
from rlx_core.errors import ConfigError, DeviceCallError, DeviceUnavailableError, FormatError
from rlx_core.files.packages.container import read_container
from rlx_core.plugins import PluginHost
from rlx_cuda import backend, nvrtc
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.walks import Machine

WGMMA = {"options": {"cuda.wgmma": True}}
RNG = np.random.default_rng(12)
BF16 = ml_dtypes.bfloat16
X, W = (RNG.integers(-4, 5, shape).astype(BF16) for shape in ((72, 200), (200, 120)))
B, R = RNG.integers(-9, 9, 120).astype(BF16), RNG.integers(-9, 9, (72, 120)).astype(BF16)


@pytest.fixture(autouse=True)
def available(monkeypatch: pytest.MonkeyPatch) -> None:
    """What files tell of drivers is another test's."""
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that few tiles fill."""

    def machine(self: GpuBackend, device: Device) -> Machine:
        return evolve(GpuBackend.machine(self, device), many_groups=8)

    monkeypatch.setattr(backend.CudaBackend, "machine", machine)


def on(host: PluginHost, f: Any, config: Any = WGMMA) -> Any:
    return rlx.jit(f, target="cuda", host=host, config=config)


def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return rlx.relu(x @ w + b) + r


def right() -> np.ndarray:
    x, w, b, r = (each.astype(np.float32) for each in (X, W, B, R))
    return np.maximum(x @ w + b, 0) + r


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_warpgroups_multiply_and_what_follows_is_computed_on_their_sums(host: PluginHost) -> None:
    f, plain = on(host, layer), on(host, rlx.matmul)
    # One rounding to 8 bits of mantissa for each step of bf16, of numbers up to some 500.
    np.testing.assert_allclose(np.asarray(f(X, W, B, R)).astype(np.float32), right(), rtol=2**-7, atol=4)
    np.testing.assert_array_equal(plain(X, W), (X.astype(np.float32) @ W.astype(np.float32)).astype(BF16))
    assert "product_epilogue_wgmma" in str(f.report)
    assert "product_wgmma" in str(plain.report)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("x", "w", "config"),
    [
        (X, W, None),
        pytest.param(X.astype(np.float32), W.astype(np.float32), WGMMA, marks=pytest.mark.slow),
        (X[:, :96], W[:96], WGMMA),
        pytest.param(X[:, :196], W[:196], WGMMA, marks=pytest.mark.slow),
    ],
    ids=["off", "f32", "shallow", "not in steps of 16 bytes"],
)
def test_other_products_are_what_they_are_without(host: PluginHost, x: Any, w: Any, config: Any) -> None:
    f = on(host, rlx.matmul, config)
    np.testing.assert_array_equal(f(x, w), (x.astype(np.float32) @ w.astype(np.float32)).astype(x.dtype))
    assert "wgmma" not in str(f.report)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_a_launch_asks_the_driver_before_it_takes_more_memory(driven: PluginHost, world: Any) -> None:
    import cupy

    f = on(driven, layer)
    for _ in range(3):  # launches, the capture, the graph
        np.testing.assert_allclose(np.asarray(f(X, W, B, R)).astype(np.float32), right(), rtol=2**-7, atol=4)
    assert set(cupy.cuda.driver.shared.values()) == {96 << 10}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("asked", [pytest.param(0, marks=pytest.mark.slow), 95 << 10])
def test_a_launch_that_asked_for_less_than_it_takes_fails(
    driven: PluginHost, world: Any, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    import cupy

    own = cupy.cuda.driver.funcSetAttribute
    monkeypatch.setattr(cupy.cuda.driver, "funcSetAttribute", lambda f, attribute, nbytes: own(f, attribute, asked))
    with pytest.raises(DeviceCallError) as caught:
        on(driven, layer)(X, W, B, R)
    assert "CUDA_ERROR 1" in str(caught.value)


def test_more_than_a_multiprocessor_has_is_refused_by_the_driver(driven: PluginHost, world: Any) -> None:
    import cupy

    cupy.cuda.runtime.memGetInfo()  # makes a context
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR 1"):
        cupy.cuda.driver.funcSetAttribute(0, 8, 228 << 10)


def test_a_device_that_has_no_such_warpgroups_is_named(
    driven: PluginHost, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy

    own = cupy.cuda.runtime.getDeviceProperties
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda number: {**own(number), "major": 8})
    with pytest.raises(ConfigError, match=r"cuda\.wgmma: cuda:0 \(Fake H0\) is not known to be of sm_90a"):
        on(driven, rlx.matmul)(X, W)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_a_package_says_that_it_wants_them_and_others_do_not(
    host: PluginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for config, name in ((WGMMA, "wide"), (None, "plain")):
        compiled = rlx.compile(rlx.matmul, X, W, target="cuda", host=host, config=config)
        rlx.package(compiled, tmp_path / f"{name}.rlxpack", program=False)
        found = rlx.load(tmp_path / f"{name}.rlxpack", host=host)
        np.testing.assert_array_equal(found(), (X.astype(np.float32) @ W.astype(np.float32)).astype(BF16))
    device = rlx_cuda.discovery.stand_in()
    monkeypatch.setattr(device, "facts", evolve(device.facts, features=frozenset((nvrtc.AMPERE,))))
    rlx.load(tmp_path / "plain.rlxpack", host=host)
    with pytest.raises(FormatError, match="code alone"):
        rlx.load(tmp_path / "wide.rlxpack", host=host)
    container = read_container(tmp_path / "wide.rlxpack")
    form = container.blobs.json(container.manifest["codes"][0][3])
    said = backend.CudaBackend().reason_against_code(form, {})
    assert said == "may use sm_90a, which cuda on this processor has not"
    monkeypatch.setattr(device, "facts", evolve(device.facts, features=frozenset()))
    with pytest.raises(FormatError, match="code alone"):  # matrix units, which older devices have not
        rlx.load(tmp_path / "plain.rlxpack", host=host)


@pytest.fixture
def printed(known: PluginHost, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """What `rlx compile` says to words, with the option, where there is no GPU."""
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: False)
    monkeypatch.setenv("RLX_CUDA_WGMMA", "1")

    def run(*words: str) -> Result:
        said = ["compile", "--op", "matmul bf16[2048,512] bf16[512,1024]", "--target", "cuda", *words]
        return CliRunner().invoke(app, said, obj=lambda policy: known)

    return run


def test_code_for_a_device_that_is_not_there_is_printed(printed: Callable[..., Result]) -> None:
    done = printed("--emit", "cuda", "--arch", "sm_90a")
    assert done.exit_code == 0, done.output
    assert "by product_wgmma; 128 groups of 256 with 98304 bytes to share" in done.output
    assert "rlx_multiply_wide_bf16<0u, 1u>(" in done.output
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in done.output


def test_without_that_architecture_it_says_which_one_to_name(printed: Callable[..., Result]) -> None:
    done = printed("--emit", "cuda")
    assert done.exit_code == 2
    assert "to print code for one: --arch sm_90a" in done.output


@pytest.mark.slow
def test_its_ptx_and_cubin_are_printed(printed: Callable[..., Result]) -> None:
    try:
        nvrtc.version()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    done = printed("--emit", "ptx", "--arch", "sm_90a")
    assert done.exit_code == 0, done.output
    assert ".target sm_90a" in done.output
    assert "wgmma.wait_group.sync.aligned 0;" in done.output
    done = printed("--emit", "cubin", "--arch", "sm_90a")
    assert done.exit_code == 0, done.output
    assert "0 bytes spilled" in done.output
