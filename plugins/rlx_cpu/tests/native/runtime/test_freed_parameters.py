"""Computed parameters that packed copies replace leave memory, and are computed again where something reads them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.dims import DimBinding
from rlx_core.pipeline.backend import Params
from rlx_core.runtime import bound

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages of private memory are freed on Linux")

FEATURES = 256
X = np.random.default_rng(1).standard_normal((20, FEATURES)).astype(np.float32)


def weights() -> Mapping[str, Any]:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((2, 4096, FEATURES)).astype(np.float32)
    return {name: rlx.quantization.quantize(each, "q4_0") for name, each in zip("ab", matrices, strict=True)}


def compiled() -> Any:
    def function(params: Mapping[str, Any], x: Any) -> Any:
        a, b = (params[name].dequantize() for name in "ab")
        return (x @ a.T) + (x @ b.T)

    spec = rlx.spec(f"f32[m, {FEATURES}]")
    return rlx.compile(function, weights(), spec, target="cpu", config={"include": ["quantized-activations"]})


def params_of(function: Any) -> Params:
    prepared = function.executable._shared.checked.prepared
    assert isinstance(prepared, Params)
    return prepared


def test_codes_are_freed_and_results_of_all_sizes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    function = compiled()
    results = [np.asarray(function(X[:m])) for m in (1, 20, 1, 3)]
    params = params_of(function)
    assert len(params._freed) == 2
    assert all(params[name].nbytes == 4096 * FEATURES // 2 for name in params._freed)
    monkeypatch.setattr(bound, "MIN_RECOMPUTED_NBYTES", 1 << 40)
    kept = compiled()
    for m, result in zip((1, 20, 1, 3), results, strict=True):
        assert np.array_equal(np.asarray(kept(X[:m])), result)
    assert not params_of(kept).recomputed


def test_an_array_that_is_read_is_computed_again_and_stays() -> None:
    function = compiled()
    function(X[:1])
    params = params_of(function)
    (name, other) = params._freed
    expected = params.recomputed[name]()
    assert expected.any()
    assert not np.array_equal(params[name], expected)
    assert np.array_equal(params.use(name), expected)
    params.free(name)
    assert np.array_equal(params[name], expected)
    params.packed.clear()  # as if another program had another arrangement
    again = np.asarray(function(X[:7]))
    assert np.array_equal(again, np.asarray(compiled()(X[:7])))
    assert params._freed == {other}


def test_arrays_of_the_caller_and_small_ones_are_not_freed() -> None:
    matrix = np.random.default_rng(0).standard_normal((4096, FEATURES)).astype(np.float32)
    function = rlx.compile(lambda w, x: x @ w.T, matrix, rlx.spec(f"f32[m, {FEATURES}]"), target="cpu")
    before = matrix.copy()
    function(X[:1])
    assert not params_of(function).recomputed
    assert np.array_equal(matrix, before)


def test_plans_with_parameters_for_packages_have_all_elements() -> None:
    function = compiled()
    function(X[:1])
    params = params_of(function)
    names = set(params._freed)
    assert names
    _, planned = function.executable._shared.planned(DimBinding.of(m=1))
    assert planned is params
    assert not params._freed
    assert all(np.array_equal(params[name], params.recomputed[name]()) for name in names)
