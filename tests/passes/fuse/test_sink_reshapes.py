"""Regions behind a reshaped product: in which dims they are computed, and which stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.graph import Graph
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.ops.structural import Reshape, reshape
from rlx_core.passes.engine.base import Context
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.passes.fuse.matmul_epilogue import FuseMatMulEpilogue
from rlx_core.passes.fuse.sink_reshapes import SinkReshapes, regrouped
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable

from ..programs import assert_equal_numbers, ops, program, run

PASSES = [MarkElementwiseRegions(), SinkReshapes(), FuseMatMulEpilogue()]
TYPES = {"w": "f32[3, 4]", "x": "f32[2, 4, 6]", "b": "f32[3, 1, 1]", "r": "f32[2, 3, 2, 3]"}


def image(w: Any, x: Any) -> Any:
    return reshape(mat_mul(w, x), (2, 3, 2, 3))


SUNK: dict[str, Callable[..., Any]] = {
    "a bias": lambda w, x, b, r: image(w, x) + b,
    "a residual": lambda w, x, b, r: rlx.tanh(image(w, x) + b + r),
    "an example": lambda w, x, b, r: image(w, x) * r[:1],
    "a number": lambda w, x, b, r: image(w, x) * 0.5,
}

LEFT: dict[str, Callable[..., Any]] = {
    "a row of the image": lambda w, x, b, r: image(w, x) + r[:, :, :1],
    "a reshape that is read twice": lambda w, x, b, r: (lambda y: (y + b, y[0] * 2.0))(image(w, x)),
    "no product": lambda w, x, b, r: reshape(x, (2, 4, 2, 3)) * 2.0,
}


def found(make: Callable[..., Any]) -> tuple[Graph, Graph]:
    before = program(make, **TYPES)
    return before, run(PASSES, before).graph


@pytest.mark.parametrize("name", SUNK)
def test_a_region_in_the_products_dims_is_its_epilogue(name: str) -> None:
    before, after = found(SUNK[name])
    assert "fused_matmul_epilogue" in ops(after)
    assert isinstance(after.outputs[0].node.op, Reshape)
    assert_equal_numbers(before, after)


@pytest.mark.parametrize("name", LEFT)
def test_what_the_dims_do_not_say_stays(name: str) -> None:
    before, after = found(LEFT[name])
    assert "fused_matmul_epilogue" not in ops(after)
    assert_equal_numbers(before, after)


def test_a_region_that_no_kernel_takes_stays() -> None:
    """Such a one runs on the host, op by op: behind legalisation nothing would take the region apart again."""
    rows = KernelTable("small")
    rows.register(FusedMatMulEpilogue, dtypes="f32")(lambda *a, **k: None)
    rows.register(ElementwiseRegion, dtypes="f32", name="region")(lambda *a, **k: None)
    context = Context(Target("small", rows))

    wide = program(SUNK["a bias"], **{name: of.replace("f32", "f64") for name, of in TYPES.items()})
    assert SinkReshapes().run(wide, context).graph is wide
    assert "sunk" in SinkReshapes().run(program(SUNK["a bias"], **TYPES), context).counts


def test_axes_of_one_element_come_and_go() -> None:
    assert regrouped((5, 1), (1, 5, 1), (5,)) == (5,)
    assert regrouped((1, 1), (4, 1, 6), (2, 2, 6)) == (1, 1, 1)
    assert regrouped((4, 1, 6), (4, 1, 6), (2, 2, 6)) == (2, 2, 6)


def test_a_residual_block_of_convolutions_is_products_with_everything_on_their_sums() -> None:
    rng = np.random.default_rng(2)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((2, 8, 5, 5), (8, 8, 3, 3), (8,)))

    def block(x: Any) -> Any:
        return nn.relu(x + nn.conv(nn.relu(nn.conv(x, w, b, padding=1)), w, b, padding=1))

    f = rlx.jit(block)
    np.testing.assert_allclose(f(x), block(x.astype(np.float64)), rtol=1e-4, atol=1e-4)  # f32, sums of 72 products
    said = str(f.report)
    assert {"fused_matmul_epilogue", "folded_matmul"} & {*said.replace("rlx.", "").split()}
    assert "elementwise_region" not in said
