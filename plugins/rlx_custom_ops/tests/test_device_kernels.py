"""The kernels that CuPy computes, on a fake one that does it with NumPy: conventions and errors are the references'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_custom_ops as linalg
import rlx_custom_ops.plugin
from rlx_core.codegen.places import Layout, Place
from rlx_core.pipeline.kernels import emitter_of
from rlx_core.plugins import PluginEntry, PluginHost, default_host
from rlx_core.testing.cases import OpProgram, programs
from rlx_custom_ops.device_kernels import kernels
from rlx_custom_ops.errors import NotPositiveDefiniteError, SingularMatrixError
from rlx_custom_ops.ops import OPS

pytest.importorskip("rlx_gpu", reason="its tests have the fake CuPy: rlx-gpu is not installed")

from fake_cupy import fake_cupy

from rlx_gpu.testing.shim.compiler import compiler

CLAIMED = tuple(op for op in OPS if kernels.claims(op))
PROGRAMS = [p for p in programs(CLAIMED) if all(t.dtype.name in ("f32", "f64") for t in p.node.operand_types if t)]
SYSTEM = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]], np.float32)


@pytest.fixture
def world() -> Iterator[Any]:
    with fake_cupy(("rlx_cuda.discovery", "rlx_cuda.driver")) as made:
        yield made


def called(program: OpProgram, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What the library's function writes, given arrays of CuPy's."""
    import cupy

    node = program.node
    kernel = kernels.choose(node).kernel
    assert kernel is not None, f"no kernel takes {program}"
    results = [cupy.array(np.full(t.static_shape, 7, t.dtype.numpy)) for t in node.types]
    emit = emitter_of(kernel.run)
    assert emit is not None, f"{kernel.name} is a function of the host"
    dense = Layout(tuple(map(Place.dense, node.operand_types)), tuple(map(Place.dense, node.types)))
    (call,) = emit(node, dense).calls
    call.run(cupy, *(cupy.array(x) for x in arrays), *results)
    return [x.get() for x in results]


def wanted(program: OpProgram, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    found = program.node.op.reference(*arrays)
    return found if isinstance(found, tuple) else (found,)


def agree(found: Any, right: Any) -> None:
    for x, y in zip(found, right, strict=True):
        atol = 100 * np.finfo(x.dtype).eps * max(1, np.abs(y[np.isfinite(y)]).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_a_function_of_the_library_agrees_with_the_reference(world: Any, program: OpProgram) -> None:
    arrays = program.draw()
    agree(called(program, arrays), wanted(program, arrays))


def test_matrices_that_are_not_finite_give_nan_and_the_others_their_factors(world: Any) -> None:
    tried = 0
    for program in PROGRAMS:
        arrays = program.draw()
        if (
            program.op.name.partition(".")[2] in ("cholesky", "eigh", "svd", "qr", "solve")
            and arrays[0].ndim > 2
            and arrays[0].size
        ):
            arrays[0][0, ..., 0, 0] = np.nan
            agree(called(program, arrays), wanted(program, arrays))
            tried += 1
    assert tried >= 10


@pytest.fixture
def driven(world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> PluginHost:
    """A host whose target `cuda` is the real driver on the fake CuPy."""
    cuda = pytest.importorskip("rlx_cuda.plugin", reason="target cuda comes with rlx-cuda, which is not installed")
    from rlx_cuda import nvrtc

    compiler()
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RLX_CUDA_STAND_IN", raising=False)
    monkeypatch.setattr(
        nvrtc, "compiled", lambda source, *_, **__: nvrtc.Compiled(b"fake cubin\n" + source.encode(), {})
    )
    monkeypatch.setattr(nvrtc, "version", lambda: "0.0")
    monkeypatch.setattr(nvrtc, "architecture_for", lambda capability: f"sm_{capability}")
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: True)
    others = [entry for entry in default_host().entries if entry.name not in ("cuda", "linalg")]
    return PluginHost([*others, PluginEntry("cuda", plugin=cuda), PluginEntry("linalg", plugin=rlx_custom_ops.plugin)])


@pytest.mark.medium
def test_a_program_and_its_gradient_run_on_the_device(driven: PluginHost) -> None:
    def loss(a: Any) -> Any:
        return rlx.sum(rlx.square(linalg.inverse(a))) + linalg.logdet(a) + rlx.sum(linalg.cholesky(a))

    f, g = (rlx.jit(each, target="cuda", host=driven) for each in (loss, rlx.grad(loss)))
    np.testing.assert_allclose(f(SYSTEM), loss(SYSTEM), rtol=1e-5)
    np.testing.assert_allclose(g(SYSTEM), rlx.grad(loss)(SYSTEM), rtol=1e-4, atol=1e-5)
    assert "library_potrf" in str(f.report)
    assert "host" not in str(g.report)


@pytest.mark.medium
def test_what_a_matrix_lacks_is_said_in_the_references_words(driven: PluginHost) -> None:
    stack = np.stack([SYSTEM, SYSTEM - 4 * np.eye(3, dtype=np.float32)])
    factor = rlx.jit(linalg.cholesky, target="cuda", host=driven)
    with pytest.raises(NotPositiveDefiniteError, match=r"batch index \[1\] is not positive definite"):
        factor(stack)
    np.testing.assert_allclose(factor(stack[:1])[0], np.linalg.cholesky(SYSTEM), rtol=1e-5)  # and the device goes on
    solve = rlx.jit(linalg.solve, target="cuda", host=driven)
    singular = np.array([[1, 2], [2, 4]], np.float32)
    with pytest.raises(SingularMatrixError, match="a pivot is exactly 0"):
        solve(singular, np.ones((2, 1), np.float32))
    triangular = rlx.jit(linalg.triangular_solve, target="cuda", host=driven)
    with pytest.raises(SingularMatrixError, match="element 0 of its diagonal"):
        triangular(np.zeros((2, 2), np.float32), np.ones((2, 1), np.float32))


def test_a_device_without_a_library_has_none_of_these(monkeypatch: pytest.MonkeyPatch, driven: PluginHost) -> None:
    from rlx_core.errors import NoKernelError

    monkeypatch.setenv("RLX_CUDA_STAND_IN", "1")
    with pytest.raises(NoKernelError, match=r"linalg\.qr"):
        rlx.jit(linalg.qr, target="cuda", host=driven)(SYSTEM)
