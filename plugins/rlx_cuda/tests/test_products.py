"""Products by cuBLASLt: what it is asked for, on which memory, and what stays generated. The library is a fake that asserts what
the real one's header says, and the real one, where it is installed, takes every descriptor."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attrs import evolve
from fake_cublaslt import FakeCublasLt, gelu

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, DeviceUnavailableError, KernelBuildError
from rlx_core.plugins import PluginHost
from rlx_cuda import cublaslt, products
from rlx_cuda.cublaslt import Addresses, CublasLt, Matrix, Plan, Product

RNG = np.random.default_rng(7)
LIBRARY = {"options": {"cuda.products": "library"}}
BOTH = {"options": {"cuda.tf32": True, "cuda.products": "library"}}

TOLERANCES = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-12}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.fixture(autouse=True)
def available(cpp: None, cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files tell of drivers is another test's."""
    monkeypatch.setattr("rlx_cuda.plugin.has_driver", lambda: True)


@pytest.fixture
def library(world: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCublasLt:
    import cupy

    made = CublasLt()
    made.library = FakeCublasLt(cupy.cuda)  # type: ignore[misc]
    monkeypatch.setattr(products, "LT", made)
    return made.library  # type: ignore[no-any-return]


def on(driven: PluginHost, f: Any, config: Any = LIBRARY) -> Any:
    return rlx.jit(f, target="cuda", host=driven, config=config)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / 2).astype(DTYPES[dtype])


def require(found: Any, wanted: np.ndarray, dtype: str) -> None:
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]] = {
    "matrices": ((5, 7), (7, 3), lambda a, b: a @ b),
    "first transposed": ((7, 5), (7, 3), lambda a, b: a.mT @ b),
    "second transposed": ((5, 7), (3, 7), lambda a, b: a @ b.mT),
    "one row": ((1, 7), (7, 3), lambda a, b: a @ b),
    "one column": ((5, 7), (7, 1), lambda a, b: a @ b),
    "nothing but one": ((1, 1), (1, 1), lambda a, b: a @ b),
    "a stack": ((4, 5, 7), (4, 7, 3), lambda a, b: a @ b),
    "a stack by one": ((4, 5, 7), (7, 3), lambda a, b: a @ b),
    "one by a stack": ((5, 7), (4, 7, 3), lambda a, b: a @ b),
    "stacks that repeat": ((2, 1, 5, 7), (4, 7, 3), lambda a, b: a @ b),
    "stacks in another order": ((2, 4, 5, 7), (4, 2, 7, 3), lambda a, b: a @ rlx.swapaxes(b, 0, 1)),
    "rows apart": ((5, 2, 7), (7, 3), lambda a, b: a[:, 1] @ b),
    "columns apart": ((5, 14), (7, 3), lambda a, b: a[:, ::2] @ b),
    "backwards": ((5, 7), (7, 3), lambda a, b: a[::-1] @ b[:, ::-1]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_operands_are_multiplied_as_they_lie(driven: PluginHost, library: FakeCublasLt, name: str) -> None:
    first, second, f = LAYOUTS[name]
    a, b = drawn("f32", *first), drawn("f32", *second)
    program = on(driven, f)
    for _ in range(2):
        require(program(a, b), np.asarray(rlx.jit(f, target="cpu")(*wide(a, b))), "f32")
    assert library.asked
    assert "library_product" in str(program.report)


def test_a_stack_by_one_matrix_is_one_product_of_all_its_rows(driven: PluginHost, library: FakeCublasLt) -> None:
    on(driven, rlx.matmul)(drawn("f32", 4, 5, 7), drawn("f32", 7, 3))
    on(driven, rlx.matmul)(drawn("f32", 4, 5, 7), drawn("f32", 4, 7, 3))
    on(driven, rlx.matmul)(drawn("f32", 2, 1, 5, 7), drawn("f32", 4, 7, 3))
    assert library.asked == [(1, 1), (1, 4), *[(1, 4)] * 2]


FOLLOWED: dict[str, tuple[Any, Any, int]] = {
    "a bias": (lambda p, b, r: p + b, lambda p, b, r: p + b, 4),
    "a residual": (lambda p, b, r: r + p, lambda p, b, r: r + p, 1),
    "a bias and a residual": (lambda p, b, r: p + b + r, lambda p, b, r: p + b + r, 4),
    "relu": (lambda p, b, r: rlx.relu(p), lambda p, b, r: np.maximum(p, 0), 2),
    "a bias and relu": (lambda p, b, r: rlx.relu(b + p), lambda p, b, r: np.maximum(p + b, 0), 6),
    "gelu": (lambda p, b, r: rlx.gelu_approx(p), lambda p, b, r: gelu(p), 32),
    "a bias, a residual and gelu": (lambda p, b, r: rlx.gelu_approx(p + b + r), lambda p, b, r: gelu(p + b + r), 36),
}


@pytest.mark.parametrize("dtype", ["bf16", *(pytest.param(each, marks=pytest.mark.slow) for each in ("f16", "f32"))])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_is_the_librarys(driven: PluginHost, library: FakeCublasLt, name: str, dtype: str) -> None:
    followed, wanted, epilogue = FOLLOWED[name]
    x, w, b, r = (drawn(dtype, *shape) for shape in ((2, 5, 8), (8, 16), (16,), (2, 5, 16)))
    program = on(driven, lambda x, w, b, r: followed(x @ w, b, r))
    product, bias, residual = wide(x, b, r)[0] @ wide(w)[0], *wide(b, r)
    require(program(x, w, b, r), wanted(product, bias, residual), dtype)
    assert library.asked == [(epilogue, 1)]
    assert "library_product_epilogue" in str(program.report)


NOT_OFFERED: dict[str, tuple[Any, str]] = {
    "the other gelu": (lambda p, b: rlx.gelu(p + b), "f32"),
    "a factor": (lambda p, b: 2 * p + b, "f32"),
    "a bias of f64": (lambda p, b: p + b, "f64"),
    "a bias behind the activation": (lambda p, b: rlx.relu(p) + b, "f32"),
    "a bias of the rows": (lambda p, b: p + b[:5, None], "f32"),
    "the product twice": (lambda p, b: p + p, "f32"),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", NOT_OFFERED)
def test_what_the_library_does_not_compute_is_generated(driven: PluginHost, library: FakeCublasLt, name: str) -> None:
    followed, dtype = NOT_OFFERED[name]
    x, w, b = (drawn(dtype, *shape) for shape in ((5, 8), (8, 16), (16,)))
    program = on(driven, lambda x, w, b: followed(x @ w, b))
    require(program(x, w, b), np.asarray(followed(rlx.asarray(wide(x)[0] @ wide(w)[0]), wide(b)[0])), dtype)
    assert "product_epilogue" in str(program.report)
    assert "library_product_epilogue" not in str(program.report)
    assert not library.asked


SUMMED: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, int]] = {
    "rows of the second": ((6, 8), (6, 4), lambda x, g: (x.mT @ g, rlx.sum(g, axis=0)), 256),
    "columns of the first": ((6, 8), (6, 4), lambda x, g: (g.mT @ x, rlx.sum(g, axis=0)), 512),
    "a stack of rows": (
        (2, 3, 8), (2, 3, 4),
        lambda x, g: (rlx.reshape(x, (6, 8)).mT @ rlx.reshape(g, (6, 4)), rlx.sum(g, axis=(0, 1))), 256,
    ),
    "rows apart": ((6, 8), (6, 3, 4), lambda x, g: (x.mT @ g[:, 1], rlx.sum(g[:, 1], axis=0)), 256),
    "columns apart": ((6, 8), (6, 8), lambda x, g: (x.mT @ g[:, ::2], rlx.sum(g[:, ::2], axis=0)), 256),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", *(pytest.param(each, marks=pytest.mark.slow) for each in ("f16", "f32"))])
@pytest.mark.parametrize("name", SUMMED)
def test_a_weights_gradient_and_its_bias_are_one_call(
    driven: PluginHost, library: FakeCublasLt, name: str, dtype: str
) -> None:
    first, second, f, epilogue = SUMMED[name]
    x, g = drawn(dtype, *first), drawn(dtype, *second)
    program = on(driven, f)
    for _ in range(3):
        found = program(x, g)
    for a, b in zip(found, rlx.jit(f, target="cpu")(*wide(x, g)), strict=True):
        require(a, np.asarray(b), dtype)
    assert {*library.asked} == {(epilogue, 1)}
    assert "library_product_sums" in str(program.report)


@pytest.mark.parametrize("step", [1, 2], ids=["rows together", "rows apart"])
def test_rows_of_a_product_with_a_slope_are_added_up_by_the_library(
    driven: PluginHost, library: FakeCublasLt, step: int
) -> None:
    def f(g: Any, w: Any, a: Any) -> Any:
        sloped = rlx.grad(lambda a: rlx.sum(rlx.gelu_approx(a) * (g[:, ::step] @ w)))(a)
        return sloped, rlx.sum(sloped, axis=(0, 1))

    given = [drawn("bf16", *shape) for shape in ((2, 5 * step, 4), (4, 16), (2, 5, 16))]
    program = on(driven, f)
    for a, b in zip(program(*given), rlx.jit(f, target="cpu")(*wide(*given)), strict=True):
        require(a, np.asarray(b), "bf16")
    assert library.asked == [(208, 1)]


@pytest.mark.medium
def test_biases_alone_are_trained_by_the_librarys_sums(driven: PluginHost, library: FakeCublasLt) -> None:
    given = [drawn("f32", *shape) for shape in ((8, 16), (16,), (16, 4), (4,), (2, 6, 8))]
    gradient = rlx.grad(loss_of_two_layers, argnums=(1, 3))
    for a, b in zip(on(driven, gradient)(*given), gradient(*wide(*given)), strict=True):
        require(a, np.asarray(b), "f32")
    assert [epilogue for epilogue, _ in library.asked][-1:] == [208]


NOT_SUMMED: dict[str, tuple[str, Any, Any]] = {
    "f64": ("f64", lambda x, g: (x.mT @ g, rlx.sum(g, axis=0)), LIBRARY),
    "tf32": ("f32", lambda x, g: (x.mT @ g, rlx.sum(g, axis=0)), BOTH),
    "the other axis": ("f32", lambda x, g: (x.mT @ g, rlx.sum(g, axis=1)), LIBRARY),
    "of squares": ("f32", lambda x, g: (x.mT @ g, rlx.sum(g * g, axis=0)), LIBRARY),
    "of what the product makes": ("f32", lambda x, g: (y := x.mT @ g, rlx.sum(g[:, :1] * y[0], axis=0)), LIBRARY),
    "a result that the other reads": ("f32", lambda x, g: (x.mT @ (h := g / rlx.sum(g, axis=0)), rlx.sum(h)), LIBRARY),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", NOT_SUMMED)
def test_other_sums_are_generated_beside_the_product(driven: PluginHost, library: FakeCublasLt, name: str) -> None:
    dtype, f, config = NOT_SUMMED[name]
    x, g = drawn(dtype, 6, 8), drawn(dtype, 6, 4) + DTYPES[dtype](2)
    program = on(driven, f, config)
    for a, b in zip(program(x, g), rlx.jit(f, target="cpu")(*wide(x, g)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=5e-3 if config is BOTH else 2e-4, atol=2e-2)
    assert {*library.asked} == {(1, 1)}
    assert "library_product_sums" not in str(program.report)


def loss_of_two_layers(w1: Any, b1: Any, w2: Any, b2: Any, x: Any) -> Any:
    return rlx.sum(rlx.square(nn.linear(nn.linear(x, w1, b1, activation="gelu_approx"), w2, b2)))


@pytest.mark.parametrize(
    ("dtype", "hidden"), [("bf16", 16), ("f32", 12), pytest.param("f32", 16, marks=pytest.mark.slow)]
)
def test_a_training_step_keeps_the_argument_of_gelu_and_multiplies_by_its_slope(
    driven: PluginHost, library: FakeCublasLt, dtype: str, hidden: int
) -> None:
    given = [drawn(dtype, *shape) for shape in ((8, hidden), (hidden,), (hidden, 4), (4,), (2, 6, 8))]
    gradient = rlx.grad(loss_of_two_layers, argnums=(0, 1, 2, 3))
    program = on(driven, gradient)
    program(*given)
    asked = [epilogue for epilogue, _ in library.asked]
    assert asked.count(256) == 2, "the gradient of each weight comes with that of its bias"
    for _ in range(2):
        found = program(*given)
    for a, b in zip(found, gradient(*wide(*given)), strict=True):
        scale = np.abs(np.asarray(b)).max()
        require(np.asarray(a).astype(np.float64) / scale, np.asarray(b) / scale, dtype)
    kept = {164, 192} & {*asked}
    assert kept == ({164, 192} if hidden % 8 == 0 else set()), "what is kept has columns of multiples of 8"


@pytest.mark.medium
def test_a_whole_step_of_training_leaves_gradients_to_the_library(driven: PluginHost, library: FakeCublasLt) -> None:
    def step(w1: Any, b1: Any, w2: Any, b2: Any, x: Any) -> Any:
        weights = w1, b1, w2, b2
        slopes = rlx.grad(loss_of_two_layers, argnums=(0, 1, 2, 3))(*weights, x)
        return tuple(w - 0.01 * s for w, s in zip(weights, slopes, strict=True))

    given = [drawn("f32", *shape) for shape in ((8, 16), (16,), (16, 4), (4,), (2, 6, 8))]
    program = on(driven, step)
    for a, b in zip(program(*given), step(*wide(*given)), strict=True):
        require(a, np.asarray(b), "f32")
    assert [epilogue for epilogue, _ in library.asked].count(256) == 2


@pytest.mark.medium
def test_sums_and_results_of_f64_are_for_factors_of_f64(driven: PluginHost, library: FakeCublasLt) -> None:
    a, b = drawn("f32", 5, 8), drawn("f32", 8, 3)
    require(on(driven, lambda a, b: rlx.matmul(a, b, acc_dtype=rlx.f64))(a, b), wide(a)[0] @ wide(b)[0], "f64")
    empty = on(driven, rlx.matmul)(drawn("f32", 5, 0), drawn("f32", 0, 3))
    np.testing.assert_array_equal(empty, np.zeros((5, 3)))
    assert not library.asked


@pytest.mark.medium
def test_products_are_in_the_graph_with_what_surrounds_them(
    driven: PluginHost, world: Any, library: FakeCublasLt
) -> None:
    f = on(driven, lambda x, w: rlx.softmax(rlx.exp(rlx.softmax(x) @ w) @ w))
    x, w = drawn("f32", 6, 8), drawn("f32", 8, 8)
    for _ in range(3):
        y = np.exp(softmax(x) @ w)
        require(f(x, w), softmax(y @ w), "f32")
    assert [word for word, _ in world.records].count("capture") == 1
    before = len(library.asked)
    f(x, w)
    assert len(library.asked) == before, "a graph asks for everything by itself"


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_wider_sums_of_narrow_factors_are_stored(driven: PluginHost, library: FakeCublasLt) -> None:
    a, b = drawn("bf16", 5, 8), drawn("bf16", 8, 3)
    found = on(driven, lambda a, b: rlx.matmul(a, b, acc_dtype=rlx.f32))(a, b)
    assert np.asarray(found).dtype == np.float32
    require(found, wide(a)[0] @ wide(b)[0], "f32")
    assert library.asked


@pytest.mark.medium
def test_the_library_multiplies_in_tf32_where_both_options_say_so(driven: PluginHost, library: FakeCublasLt) -> None:
    a = np.full((8, 8), 1 + 2.0**-12, np.float32)  # of which TF32 keeps the 1
    f, exact = on(driven, rlx.matmul, BOTH), on(driven, rlx.matmul, None)
    np.testing.assert_array_equal(f(a, a), np.full((8, 8), 8, np.float32))
    np.testing.assert_array_equal(on(driven, lambda a: rlx.relu(a @ a + a[0]), BOTH)(a), 8 + a)
    np.testing.assert_allclose(exact(a, a), a @ a, rtol=1e-6)
    assert "library_product_tf32" in str(f.report)
    assert len(library.asked) == 2
    double = a.astype(np.float64)
    np.testing.assert_allclose(on(driven, rlx.matmul, BOTH)(double, double), double @ double, rtol=1e-12)
    assert len(library.asked) == 3


def test_what_the_library_does_not_compute_is_generated_in_tf32(driven: PluginHost, library: FakeCublasLt) -> None:
    a = np.full((8, 8), 1 + 2.0**-12, np.float32)
    f = on(driven, lambda a: rlx.abs(a @ a), BOTH)
    np.testing.assert_array_equal(f(a), np.full((8, 8), 8, np.float32))
    assert "product_epilogue_tf32 (cuda)" in str(f.report)
    assert not library.asked


def test_who_multiplies_is_one_of_two(driven: PluginHost) -> None:
    with pytest.raises(ConfigError, match="'cublas' is neither of generated and library"):
        on(driven, lambda a: a @ a, {"options": {"cuda.products": "cublas"}})(drawn("f32", 2, 2))


def test_without_the_library_the_error_says_what_to_install(
    driven: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LT", CublasLt(lambda: iter(["/nowhere/libcublasLt.so.13"])))
    with pytest.raises(
        DeviceUnavailableError, match=r"cuBLASLt, which multiplies matrices .* is not installed"
    ) as caught:
        on(driven, rlx.matmul)(drawn("f32", 2, 2), drawn("f32", 2, 2))
    assert "pip install nvidia-cublas" in str(caught.value)


def test_a_product_without_an_algorithm_is_named(driven: PluginHost, library: FakeCublasLt) -> None:
    library.has_algorithms = False
    with pytest.raises(KernelBuildError, match="no algorithm") as caught:
        on(driven, rlx.matmul)(drawn("f32", 2, 3), drawn("f32", 3, 5))
    assert 'cuda.products = "generated"' in str(caught.value)
    assert "rows=5, columns=2" in str(caught.value)


EVERYTHING = Product(
    cublaslt.COMPUTE_32F,
    cublaslt.R_32F,
    Matrix(cublaslt.R_16BF, 96, 64, 96, batch=3),
    Matrix(cublaslt.R_16BF, 48, 64, 48, is_transposed=True, batch=3, stride=48 * 64),
    Matrix(cublaslt.R_16BF, 96, 48, 96, batch=3, stride=96 * 48),
    Matrix(cublaslt.R_16BF, 96, 48, 104, batch=3, stride=104 * 48),
    cublaslt.EPILOGUE_GELU | cublaslt.EPILOGUE_AUX | cublaslt.EPILOGUE_BIAS,
    (96, 96 * 48),
)


PRODUCTS = {
    "all": EVERYTHING,
    "plain": evolve(EVERYTHING, c=None, epilogue=1, aux=None),
    "a slope and its sums": evolve(EVERYTHING, c=None, epilogue=cublaslt.EPILOGUE_DGELU_BGRAD),
    "sums of the first": evolve(EVERYTHING, c=None, epilogue=cublaslt.EPILOGUE_BGRADB, aux=None),
    "sums of the second": evolve(EVERYTHING, c=None, epilogue=cublaslt.EPILOGUE_BGRADA, aux=None),
}


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_the_real_library_takes_every_descriptor(product: Product) -> None:
    """Descriptors need neither a driver nor a device; what multiplies does."""
    real = CublasLt()
    try:
        plan = Plan(real, product)
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    at = Addresses(a=1 << 9, b=1 << 10, d=1 << 11, c=1 << 12, bias=(1 << 13) + 16, aux=1 << 14)
    assert at.alignments() == (256, 256, 256, 256, 16, 256)
    plan.point(at)
    real.call("MatmulPreferenceDestroy", plan.preference(at, 1 << 20))
    del plan
