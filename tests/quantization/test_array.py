"""Quantised arrays: shapes, pytrees, gradients, and products and lookups that read their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, RlxError, ShapeError
from rlx_core.ir.schemes import Scheme
from rlx_core.quantization import QuantizedArray, quantize
from rlx_core.quantization.standard import SCHEMES

RNG = np.random.default_rng(0)
ROWS, LENGTH = 96, 512
VALUES = RNG.standard_normal((ROWS, LENGTH)).astype(np.float32)
X = RNG.standard_normal((4, LENGTH)).astype(np.float32)
STORED = {"rlx.tq1_0": ROWS * LENGTH}
"""Bytes that binding prepares: TQ1_0's digits are joined from three arrays, which no load does."""


@pytest.mark.medium
@pytest.mark.every_case
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_a_product_reads_the_fields(scheme: type[Scheme]) -> None:
    pytest.importorskip("rlx_cpu", reason="the CPU has the kernels: rlx-cpu is not installed")
    params = {"w": quantize(VALUES, scheme.name)}

    def f(params: dict[str, QuantizedArray], x: rlx.Value) -> rlx.Value:
        return rlx.relu(x @ params["w"].dequantize().T)

    packed = rlx.compile(f, params, rlx.spec(f"f32[n, {LENGTH}]"))
    expanded = rlx.compile(
        f, params, rlx.spec(f"f32[n, {LENGTH}]"), config={"passes": {"fuse-weight-loads": {"weights": "expanded"}}}
    )
    assert np.array_equal(packed(X), expanded(X))
    assert [step.node.op.name for step in packed.executable.lir.steps] == ["rlx.fused_matmul_prologue"]
    assert packed.report.prepared_nbytes == STORED.get(scheme.name, 0)
    assert expanded.report.prepared_nbytes >= VALUES.nbytes


EXPERTS = VALUES.reshape(4, ROWS // 4, LENGTH)
INDEX = np.int32([3, 0, 0, 2])


@pytest.mark.medium
@pytest.mark.every_case
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_a_grouped_product_reads_the_fields(scheme: type[Scheme]) -> None:
    pytest.importorskip("rlx_cpu", reason="the CPU has the kernels: rlx-cpu is not installed")
    params = {"w": quantize(EXPERTS, scheme.name)}

    def f(params: dict[str, QuantizedArray], x: rlx.Value, idx: rlx.Value) -> rlx.Value:
        return rlx.grouped_matmul(x, params["w"], idx, is_transposed=True)

    packed = rlx.compile(f, params, rlx.spec(f"f32[n, {LENGTH}]"), rlx.spec("i32[n]"))
    weights = np.asarray(params["w"].dequantize())
    expected = np.stack([x @ weights[e].T for x, e in zip(X, INDEX, strict=True)])
    np.testing.assert_allclose(packed(X, INDEX), expected, rtol=1e-4, atol=1e-3)
    assert [step.node.op.name for step in packed.executable.lir.steps] == ["rlx.fused_grouped_matmul"]
    assert packed.report.prepared_nbytes == STORED.get(scheme.name, 0)
    assert packed.report.expansions == ()


@pytest.mark.parametrize("name", ["int4", "q4_k", "nvfp4"])
def test_a_lookup_reads_the_fields(name: str) -> None:
    pytest.importorskip("rlx_cpu", reason="the CPU has the kernels: rlx-cpu is not installed")
    params = {"table": quantize(VALUES, name)}
    lookup = rlx.compile(lambda p, i: rlx.take(p["table"].dequantize(), i, axis=0), params, rlx.spec("i32[n]"))
    found = lookup(np.int32([5, 0, 95, 5]))
    assert np.array_equal(found, np.asarray(params["table"].dequantize())[[5, 0, 95, 5]])
    assert lookup.report.prepared_nbytes == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scale": None}, "rlx.int8: the field `scale` is missing"),
        ({"codes": None}, "rlx.int8: the field `codes` is missing"),
        ({"zero": np.zeros((4, 2), np.float32)}, "`zero` is no field of the scheme"),
        ({"scale": np.ones((4, 1), np.float32)}, r"the field `scale` is \[4, 1\], and must be \[4, 2\]"),
        ({"scale": np.ones(2, np.float32)}, r"the field `scale` is \[2\], and must be \[4, 2\]"),
        ({"codes": np.ones((4, 3, 32), np.int8)}, r"the field `scale` is \[4, 2\], and must be \[4, 3\]"),
    ],
)
def test_fields_that_are_missing_or_misshapen_are_named(change: dict[str, np.ndarray | None], says: str) -> None:
    array = quantize(VALUES[:4, :64], "int8")
    fields = {name: each for name, each in {**array.fields, **change}.items() if each is not None}
    with pytest.raises(ShapeError, match=says):
        QuantizedArray(fields, array.scheme).dequantize()


@pytest.mark.parametrize("transform", [rlx.grad, lambda f: lambda x: rlx.jvp(f, (x,), (x,))], ids=["grad", "jvp"])
def test_codes_as_differentiable_inputs_are_named(transform: Callable[..., Any]) -> None:
    with pytest.raises(DtypeError, match=r"argument \w*\.codes is i8, and only floating-point arrays have derivatives"):
        transform(lambda w: rlx.sum(w.dequantize()))(quantize(VALUES[:4, :64], "int8"))


def test_it_is_a_pytree_of_its_fields() -> None:
    array = quantize(VALUES, "q4_0")
    assert array.shape == (ROWS, LENGTH)
    assert array.nbytes == ROWS * LENGTH // 32 * 18
    assert repr(array) == "QuantizedArray([96, 512], q4_0, block=32)"
    found = rlx.jit(lambda w, x: x @ w.dequantize().T)(array, X)
    np.testing.assert_allclose(found, X @ np.asarray(array.dequantize()).T, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_grouped_product_reach_scales_and_activations_and_no_codes() -> None:
    """Compared with the gradient of the products of the decoded weights, expert by expert."""
    array = quantize(EXPERTS[:, :8, :64], "int8")
    x, scale = X[:, :64], array.fields["scale"]

    def of(fields: dict[str, rlx.Value]) -> QuantizedArray:
        return QuantizedArray({**array.fields, **fields}, array.scheme)

    def loss(scale: rlx.Value, x: rlx.Value) -> rlx.Value:
        return rlx.sum(rlx.tanh(rlx.grouped_matmul(x, of({"scale": scale}), INDEX, is_transposed=True)))

    def separate(scale: rlx.Value, x: rlx.Value) -> rlx.Value:
        w = of({"scale": scale}).dequantize()
        return rlx.sum(rlx.stack([rlx.sum(rlx.tanh(x[i] @ w[int(e)].T)) for i, e in enumerate(INDEX)]))

    for found, expected in zip(
        rlx.grad(loss, argnums=(0, 1))(scale, x), rlx.grad(separate, argnums=(0, 1))(scale, x), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not np.asarray(rlx.grad(loss)(scale, x))[1].any(), "no row has this expert"
    with pytest.raises(RlxError, match="i8"):
        rlx.grad(lambda codes: rlx.sum(rlx.grouped_matmul(x, of({"codes": codes}), INDEX, is_transposed=True)))(
            array.fields["codes"]
        )


def test_tangents_and_batches_of_a_grouped_product() -> None:
    array = quantize(EXPERTS[:, :8, :64], "q8_0")
    x, dx = X[:, :64], X[:, 64:128]

    def f(x: rlx.Value, idx: rlx.Value = INDEX) -> rlx.Value:
        return rlx.grouped_matmul(x, array, idx, is_transposed=True)

    y, dy = rlx.jvp(f, (x,), (dx,))
    np.testing.assert_allclose(y, f(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dy, f(dx), rtol=1e-5, atol=1e-5)
    many = rlx.vmap(f)(np.stack([x, dx]), np.stack([INDEX, INDEX[::-1]]))
    np.testing.assert_allclose(many, np.stack([f(x), f(dx, INDEX[::-1])]), rtol=1e-4, atol=1e-4)


def test_gradients_reach_scales_and_activations_and_no_codes() -> None:
    """The gradient of `scale` is the sum over a block of code times cotangent: compared with differences."""
    array = quantize(VALUES[:4, :64], "int8")
    x = X[:, :64]

    def loss(scale: rlx.Value, x: rlx.Value) -> rlx.Value:
        weight = QuantizedArray({**array.fields, "scale": scale}, array.scheme).dequantize()
        return rlx.sum(rlx.tanh(x @ weight.T))

    scale = array.fields["scale"]
    d_scale, d_x = rlx.grad(loss, argnums=(0, 1))(scale, x)
    for direction in (RNG.standard_normal(scale.shape).astype(np.float32) * scale for _ in range(3)):
        step = np.float32(1e-2)
        difference = (loss(scale + step * direction, x) - loss(scale - step * direction, x)) / (2 * step)
        assert np.vdot(d_scale, direction) == pytest.approx(float(difference), rel=2e-2)
    assert d_x.shape == x.shape
    with pytest.raises(RlxError):
        rlx.grad(lambda codes: rlx.sum(QuantizedArray({**array.fields, "codes": codes}, array.scheme).dequantize()))(
            array.fields["codes"]
        )
