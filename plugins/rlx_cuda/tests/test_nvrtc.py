"""NVRTC without a driver: what `rlx compile --emit` prints, what the compiler says, and what kernels take of a device."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from attrs import evolve
from click.testing import Result
from typer.testing import CliRunner

from rlx_core.cli.main import app
from rlx_core.errors import DeviceUnavailableError, KernelBuildError
from rlx_core.plugins import PluginHost
from rlx_cuda import libraries, nvrtc

PLAIN = 'extern "C" __global__ void __launch_bounds__(64) twice(float* x) { x[threadIdx.x] *= 2; }'

SPILLING = """extern "C" __global__ void __launch_bounds__(1024) heavy(float* x) {
  float kept[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) { kept[i] = x[i * 1024 + threadIdx.x]; }
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; i++) { x[i * 1024 + threadIdx.x] = kept[95 - i] * kept[(i * 7) % 96]; }
}"""


@pytest.fixture(autouse=True)
def installed() -> None:
    try:
        nvrtc.version()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture
def printed(known: PluginHost) -> Callable[..., Result]:
    """What `rlx compile` says to words."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["compile", "--op", "softmax f32[4,64]", *words], obj=lambda policy: known)

    return run


def test_code_is_printed_on_a_machine_without_a_gpu(printed: Callable[..., Result]) -> None:
    done = printed("--target", "cuda", "--emit", "cuda")
    assert done.exit_code == 0, done.output
    assert "__global__ void __launch_bounds__(" in done.output


def test_ptx_and_cubin_are_of_the_architecture_that_is_asked_for(printed: Callable[..., Result]) -> None:
    done = printed("--target", "cuda", "--emit", "ptx", "--arch", "sm_80")
    assert done.exit_code == 0, done.output
    assert ".target sm_80" in done.output
    done = printed("--target", "cuda", "--emit", "cubin", "--arch", "sm_90")
    assert done.exit_code == 0, done.output
    said, coded = (
        [line for line in done.output.splitlines() if line.startswith("#") is is_comment]
        for is_comment in (True, False)
    )
    assert any("registers" in line and "0 bytes spilled" in line for line in said)
    assert base64.b64decode("".join(coded))[:4] == b"\x7fELF"


def test_an_unknown_architecture_is_refused_with_those_that_are_known(printed: Callable[..., Result]) -> None:
    done = printed("--target", "cuda", "--emit", "ptx", "--arch", "sm_1")
    assert done.exit_code == 2
    assert "'sm_1' is no architecture" in done.output
    assert "sm_90" in done.output


def test_an_architecture_is_for_a_target(printed: Callable[..., Result]) -> None:
    done = printed("--arch", "sm_90")
    assert done.exit_code == 2
    assert "name it with --target" in done.output


def test_a_refused_source_comes_with_the_compilers_words() -> None:
    with pytest.raises(KernelBuildError, match="cuda:0: its compiler refuses the source") as caught:
        nvrtc.compiled("__global__ void f( {", "sm_90", (), place="cuda:0")
    assert "rlx.cu(1): error" in str(caught.value)


def test_registers_and_spills_are_read() -> None:
    plain = nvrtc.compiled(PLAIN, "sm_90", ()).usage["twice"]
    assert 0 < plain.registers < 32
    assert (plain.spilled, plain.shared) == (0, 0)
    assert nvrtc.compiled(SPILLING, "sm_90", ()).usage["heavy"].spilled > 0


def test_a_device_newer_than_the_compiler_gets_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "architectures", lambda: (80, 90, 100))
    assert nvrtc.architecture_for(80) == "sm_80"
    assert nvrtc.architecture_for(90) == "sm_90a"
    assert nvrtc.architecture_for(130) == "compute_100"
    assert b".target sm_" in nvrtc.compiled(PLAIN, "compute_90", ()).code


def test_the_compiler_is_of_the_cuda_that_cupy_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaced CuPy for CUDA 13 by the one for 12 has the compilers of both."""
    asked: list[str] = []
    monkeypatch.setattr(libraries.importlib.metadata, "files", lambda package: asked.append(package))
    list(nvrtc.NVRTC.paths())
    monkeypatch.setattr(libraries, "installed_version", lambda package: "13.6" if package == "cupy-cuda12x" else "")
    list(nvrtc.NVRTC.paths())
    assert asked == ["nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"]


def test_without_it_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = evolve(nvrtc.NVRTC, paths=lambda: iter(["/nowhere/libnvrtc.so.13"]))
    monkeypatch.setattr(nvrtc, "NVRTC", nowhere)
    with pytest.raises(DeviceUnavailableError, match="NVRTC, which compiles CUDA C, is not installed") as caught:
        nvrtc.compiled(PLAIN, "sm_90", ())
    assert "pip install nvidia-cuda-nvrtc" in str(caught.value)
