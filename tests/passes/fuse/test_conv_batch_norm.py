"""A batch norm behind a convolution: where it goes into the weights, and where it stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.passes.fuse.conv_batch_norm import FuseConvBatchNorm

from ..programs import ops, program, run

RNG = np.random.default_rng(9)
INPUT: Mapping[str, str] = {"x": "f32[2, 3, 6, 6]"}
PARAMS: Mapping[str, str] = {"w": "f32[4, 3, 3, 3]", **dict.fromkeys(("gamma", "beta", "mean", "var"), "f32[4]")}


def normed(x: Any, w: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    return nn.batch_norm_inference(nn.conv(x, w, stride=2, padding=1), mean, var, weight=gamma, bias=beta)


def test_statistics_that_are_parameters_go_into_the_weights() -> None:
    after = run(FuseConvBatchNorm(), program(normed, params=PARAMS, **INPUT)).graph
    assert "batch_norm_inference" not in ops(after)
    assert ops(after).count("conv") == 1


@pytest.mark.parametrize("name", ["w", "var"])
def test_what_comes_with_every_run_stays_beside_the_convolution(name: str) -> None:
    params = {k: v for k, v in PARAMS.items() if k != name}
    after = run(FuseConvBatchNorm(), program(normed, params=params, **INPUT, **{name: PARAMS[name]})).graph
    assert "batch_norm_inference" in ops(after)


def test_a_convolution_that_others_read_stays() -> None:
    def twice(x: Any, w: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        y = nn.conv(x, w)
        return y, nn.batch_norm_inference(y, mean, var, weight=gamma, bias=beta)

    after = run(FuseConvBatchNorm(), program(twice, params=PARAMS, **INPUT)).graph
    assert "batch_norm_inference" in ops(after)


@pytest.mark.medium
def test_the_compiled_program_has_one_product_and_the_same_numbers() -> None:
    x, w = RNG.normal(size=(2, 8, 6, 6)), RNG.normal(size=(8, 8, 3, 3))
    params = {"w": w, "s": [RNG.normal(size=8), RNG.normal(size=8), RNG.normal(size=8), RNG.uniform(0.5, 2, 8)]}

    def layer(params: Any, x: Any) -> Any:
        return nn.relu(normed(x, params["w"], *params["s"]))

    small = {"w": w.astype(np.float32), "s": [v.astype(np.float32) for v in params["s"]]}
    f = rlx.compile(layer, small, rlx.spec("f32[2, 8, 6, 6]"))
    np.testing.assert_allclose(f(x.astype(np.float32)), layer(params, x), rtol=1e-4, atol=1e-4)  # sums of 72 products
    said = str(f.report)
    assert {"fused_matmul_epilogue", "folded_matmul"} & {*said.replace("rlx.", "").split()}
    assert "elementwise_region" not in said
