"""What CUDA's libraries compute, by CuPy: who is called, on which memory, and that nothing is recorded around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.plugins import PluginHost

RNG = np.random.default_rng(3)
A = RNG.normal(size=(2, 5, 5)).astype(np.float32) + 4 * np.eye(5, dtype=np.float32)
B = RNG.normal(size=(2, 5, 3)).astype(np.float32)

LIBRARY = {"options": {"cuda.products": "library"}}


@pytest.fixture(autouse=True)
def available(cpp: None, cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files tell of drivers is another test's."""
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: True)


def on(driven: PluginHost, f: Any, config: Any = None) -> Any:
    return rlx.jit(f, target="cuda", host=driven, config=config)


def called(world: Any) -> list[str]:
    """The functions of the library that the fake device was asked for."""
    return [what for word, what in world.records if word == "library"]


@pytest.mark.medium
@pytest.mark.parametrize(("a", "b"), [(A, B), (A[0], B[0]), (A[0], B[0, :, 0])], ids=["stack", "matrix", "vector"])
def test_systems_are_solved_by_the_library(driven: PluginHost, world: Any, a: np.ndarray, b: np.ndarray) -> None:
    f = on(driven, lambda a, b: 2 * rlx.linalg.solve(a, b + 1) - 1)
    for _ in range(3):  # what is before and after is recorded the second time; the library never is
        np.testing.assert_allclose(f(a, b), 2 * np.linalg.solve(a, b + 1) - 1, rtol=1e-4, atol=1e-5)
    assert called(world).count("_divided") == 3
    assert "library_solve" in str(f.report)


def test_a_singular_system_is_nan_and_the_others_are_solved(driven: PluginHost) -> None:
    a = A.copy()
    a[1, 2] = a[1, 3]
    found = on(driven, rlx.linalg.solve)(a, B)
    np.testing.assert_allclose(found[0], np.linalg.solve(A[0], B[0]), rtol=1e-4)
    assert np.isnan(found[1]).all()


Z = (RNG.normal(size=(4, 6, 5)) + 1j * RNG.normal(size=(4, 6, 5))).astype(np.complex64)

TRANSFORMS = {
    "fft": (lambda z: rlx.fft.fft(z, axis=1), "fftn"),
    "ifft of a view": (lambda z: rlx.fft.ifft(z[:, ::-2].mT, norm="ortho"), "ifftn"),
    "several axes": (lambda z: rlx.fft.fftn(z, axes=(2, 0), norm="forward"), "fftn"),
    "real": (lambda z: rlx.fft.rfftn(rlx.real(z), axes=(1, 0)), "rfftn"),
    "to real": (lambda z: rlx.fft.irfft(z, n=9), "irfftn"),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_the_librarys(driven: PluginHost, world: Any, name: str) -> None:
    f, function = TRANSFORMS[name]
    program = on(driven, f)
    for _ in range(2):
        np.testing.assert_allclose(program(Z), f(Z), rtol=1e-4, atol=1e-5)
    assert called(world).count(function) == 2
    assert "library_" in str(program.report)


@pytest.mark.medium
def test_what_surrounds_a_transform_is_computed_in_parts_and_its_gradient_is_a_transform(
    driven: PluginHost, world: Any
) -> None:
    def power(x: Any) -> Any:
        return rlx.sum(rlx.complex_norm_sq(rlx.fft.rfft(x, n=12) * (2 - 1j)))

    x = rlx.real(Z).astype(np.float32)
    found = on(driven, rlx.grad(power))(x)
    np.testing.assert_allclose(found, rlx.grad(power)(x), rtol=1e-4, atol=1e-3)
    assert {"rfftn", "irfftn"} <= set(called(world))


@pytest.mark.medium
def test_the_stand_in_has_no_library(host: PluginHost) -> None:
    with pytest.raises(ConfigError, match=r"cuda.products: cuda:0 \(cuda on this processor\) has no library"):
        on(host, lambda a: a @ a, LIBRARY)(A)
    np.testing.assert_allclose(on(host, rlx.fft.fft)(Z), rlx.fft.fft(Z), rtol=1e-4, atol=1e-4)
