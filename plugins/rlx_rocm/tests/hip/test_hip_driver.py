"""The CuPy driver: HIPRTC, launches without graphs, arrays of CuPy's, binaries on disk, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cupy import X, require_a_lost_device_is_an_error, require_every_step_is_timed, right, steps, words

import rlx_core as rlx
from rlx_core.errors import DeviceUnavailableError, KernelBuildError, PlaceError
from rlx_core.plugins import PluginHost


def on(host: PluginHost, function: Any, **options: Any) -> Any:
    return rlx.jit(function, target="rocm", host=host, **options)


def put(host: PluginHost, x: np.ndarray, device: str = "rocm:0") -> Any:
    return rlx.device_put(x, device, host=host)


@pytest.mark.medium
def test_programs_compute_what_the_cpu_does(driven: PluginHost, world: Any) -> None:
    f = on(driven, steps)
    for scale in (1, 3, -2):
        np.testing.assert_allclose(f(X * scale), right(X * scale), rtol=2e-5)
    assert [d.target for d in rlx.devices("rocm", host=driven)] == ["rocm:0", "rocm:1"]
    assert "__global__" in f.executables[0].emit("hip")


@pytest.mark.medium
def test_every_call_is_launches_because_cupy_captures_no_streams_of_hips(driven: PluginHost, world: Any) -> None:
    f = on(driven, steps)
    for _ in range(3):
        asked = words(world, lambda: f(X))
        assert asked.count("launch") > 2
        assert not {"capture", "graph"} & set(asked)
    assert "allocate" not in asked


def test_facts_are_hips(driven: PluginHost) -> None:
    import cupy

    facts = put(driven, X).device.facts
    assert facts.driver == f"HIP 7.0, CuPy {cupy.__version__}, HIPRTC 7.0, gfx942:sramecc+:xnack-"
    assert (facts.group_size, facts.shared_nbytes, facts.subgroup) == (1024, 64 << 10, 32)


def test_cupys_arrays_come_and_go_without_a_copy(driven: PluginHost) -> None:
    import cupy

    f = on(driven, lambda x: x + 1)
    found = f(cupy.array(X))
    assert f.report.traffic.inputs == 0
    assert found.__dlpack_device__() == (10, 0)
    assert not hasattr(found, "__cuda_array_interface__")
    np.testing.assert_array_equal(cupy.from_dlpack(found).get(), X + 1)


def test_an_array_of_cudas_is_no_array_of_this_device(driven: PluginHost) -> None:
    class Cudas:
        shape, dtype = X.shape, "library.float32"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    assert put(driven, X).device.driver.adopt(Cudas()) is None


def test_cupys_array_on_another_device_is_refused_by_both_names(driven: PluginHost) -> None:
    import cupy

    with cupy.cuda.Device(1):
        theirs = cupy.array(X)
    with pytest.raises(PlaceError, match=r"HIP's device 1, and the program runs on rocm:0"):
        on(driven, lambda x: x + 1)(theirs)


@pytest.mark.medium
def test_work_on_other_streams_is_in_order(driven: PluginHost) -> None:
    import cupy

    f, x = on(driven, lambda x: x * 2 + 1), put(driven, X)
    for stream in [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]:
        with stream:
            x = f(x)
    np.testing.assert_array_equal(x.to_host(), 8 * X + 7)


def test_what_hiprtc_refuses_comes_with_its_words(driven: PluginHost) -> None:
    driver = put(driven, X).device.driver
    with pytest.raises(KernelBuildError, match="rocm:0: its compiler refuses the source") as caught:
        driver.build("nonsense")
    assert "HIPRTC 7.0 for gfx942:sramecc+:xnack-" in str(caught.value)
    assert "unknown type name 'nonsense'" in str(caught.value)
    assert "--target rocm --emit hip" in str(caught.value)
    with pytest.raises(KernelBuildError, match="a stale binary"):
        driver.build("source", b"of another")


def test_without_hiprtc_the_error_says_what_to_install(driven: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    from attrs import evolve

    from rlx_rocm.hip import hiprtc

    monkeypatch.setattr(hiprtc, "HIPRTC", evolve(hiprtc.HIPRTC, paths=lambda: iter(["/nowhere/libhiprtc.so.7"])))
    with pytest.raises(DeviceUnavailableError, match="HIPRTC, which compiles HIP, is not installed") as caught:
        hiprtc.compiled("", "gfx90a")
    assert "install ROCm" in str(caught.value)


@pytest.mark.medium
def test_a_second_program_of_the_same_text_compiles_nothing(
    driven: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlx_rocm.hip import hiprtc

    asked: list[str] = []
    compiled = hiprtc.compiled
    monkeypatch.setattr(hiprtc, "compiled", lambda source, *rest: asked.append(source) or compiled(source, *rest))

    def third(x: Any) -> Any:
        return rlx.tanh(x) / 3

    for _ in range(2):
        np.testing.assert_allclose(on(driven, third)(X), np.tanh(X) / 3, rtol=1e-5)
    assert len(asked) == 1


@pytest.mark.medium
def test_a_device_that_is_lost_is_an_error_and_the_process_lives(driven: PluginHost, world: Any) -> None:
    require_a_lost_device_is_an_error(world, on(driven, steps), "rocm:0")


@pytest.mark.medium
def test_events_time_every_step(driven: PluginHost) -> None:
    require_every_step_is_timed(on(driven, steps))
