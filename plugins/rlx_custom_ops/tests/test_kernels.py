"""The kernels against the references on every sample, and programs compiled for the CPU that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_custom_ops as linalg
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import OpProgram, programs
from rlx_custom_ops.kernels import kernels
from rlx_custom_ops.ops import OPS

PRIMITIVES = tuple(op for op in OPS if op.decompose is None)
PROGRAMS = programs(PRIMITIVES)


def run(program: OpProgram, arrays: list[np.ndarray]) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """What the kernel writes and what the reference returns."""
    node = program.node
    kernel = kernels.choose(node).kernel
    assert kernel is not None, f"no kernel takes {program}"
    buffers = tuple(np.full(t.static_shape, 7, t.dtype.numpy) for t in node.types)
    kernel.run(node.op, *arrays, out=buffers if len(buffers) > 1 else buffers[0], workspace=None)
    results = node.op.reference(*arrays)
    return buffers, results if isinstance(results, tuple) else (results,)


def agree(found: tuple[np.ndarray, ...], wanted: tuple[np.ndarray, ...]) -> None:
    for x, y in zip(found, wanted, strict=True):
        # Two backward stable algorithms on matrices of condition below 10 and gaps of 1; integers are the same.
        eps = np.finfo(x.dtype).eps if x.dtype.kind in "fc" else 0
        np.testing.assert_allclose(x, y, rtol=0, atol=100 * eps * max(1, np.abs(y).max(initial=0)))


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
class TestEverySample:
    def test_the_kernel_agrees_with_the_reference(self, program: OpProgram) -> None:
        agree(*run(program, program.draw()))

    def test_operands_may_be_strided(self, program: OpProgram) -> None:
        strided = [np.repeat(a, 2, axis=-1)[..., ::2].swapaxes(-1, -2).copy().swapaxes(-1, -2) for a in program.draw()]
        agree(*run(program, strided))

    def test_operands_are_not_written_to(self, program: OpProgram) -> None:
        arrays = program.draw()
        kept = [a.copy() for a in arrays]
        for a in arrays:
            a.flags.writeable = False
        run(program, arrays)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, kept, strict=True))


def test_every_primitive_has_a_kernel_and_no_composition_has() -> None:
    assert {kernel.op for kernel in kernels} == {*PRIMITIVES}


def test_the_table_is_for_the_cpu_and_says_whose_it_is() -> None:
    assert isinstance(kernels, KernelTable)
    assert kernels.target == "cpu"
    assert {k.plugin for k in kernels} == {"linalg"}
    assert all(k.doc for k in kernels)


def test_matrices_that_are_not_finite_give_what_the_references_give() -> None:
    for program in PROGRAMS:
        if program.op.name.removeprefix("linalg.") in ("cholesky", "eigh", "svd", "qr", "expm", "solve"):
            arrays = program.draw()
            if arrays[0].size:
                arrays[0][..., 0, 0] = np.nan
                found, wanted = run(program, arrays)
                assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(found, wanted, strict=True))


class TestCompiled:
    @pytest.mark.medium
    def test_a_program_uses_our_kernels(self, cpu: PluginHost, draw: Any) -> None:
        a, b = draw(3, 3) + 3 * np.eye(3), draw(3)

        @rlx.jit
        def program(a: Any, b: Any) -> Any:
            return linalg.solve(a, b), linalg.logdet(matmul_self(a)), linalg.lstsq(a, b)

        x, log, y = program(a, b)
        np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-12)
        np.testing.assert_allclose(log, 2 * np.log(abs(np.linalg.det(a))), rtol=1e-12)
        np.testing.assert_allclose(y, x, rtol=1e-12)
        used = {(kernel, plugin) for _, kernel, plugin in program.report.kernels}
        native = {("linalg.native_system", "linalg"), ("linalg.native_determinant", "linalg")}
        assert {*native, ("lapack_gesdd", "linalg")} <= used

    @pytest.mark.medium
    def test_a_gradient_uses_our_kernels(self, cpu: PluginHost, draw: Any) -> None:
        step = rlx.jit(rlx.value_and_grad(lambda a: rlx.sum(linalg.cholesky(a))))
        a = draw(3, 3).astype("f4")
        value, found = step(a @ a.T + np.eye(3, dtype="f4"))
        assert value.dtype == found.dtype == np.float32
        used = {kernel for _, kernel, _ in step.report.kernels}
        assert {"linalg.native_cholesky_factor", "linalg.native_substitution"} <= used

    @pytest.mark.medium
    def test_sizes_of_the_batch_may_be_unknown(self, cpu: PluginHost, draw: Any) -> None:
        factors = rlx.compile(lambda a: linalg.qr(a), rlx.spec("f64[batch, 4, 3]"))
        for batch in (1, 5):
            a = draw(batch, 4, 3)
            q, r = factors(a)
            np.testing.assert_allclose(q @ r, a, atol=1e-13)

    @pytest.mark.parametrize("program", [p for p in programs(OPS) if "c128" in repr(p) or "f32" in repr(p)], ids=repr)
    def test_every_op_compiles(self, cpu: PluginHost, program: OpProgram) -> None:
        arrays = program.draw()
        op = program.op(**program.sample.attributes)
        found = rlx.jit(lambda *x: op(*x))(*arrays)
        wanted = op(*arrays)
        pair = [x if isinstance(x, tuple) else (x,) for x in (found, wanted)]
        agree(pair[0], pair[1])


def matmul_self(a: Any) -> Any:
    return a @ a
