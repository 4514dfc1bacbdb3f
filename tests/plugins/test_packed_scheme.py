"""A format of weights from a plugin file: products read its codes on the CPU, and a saved program finds its op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from tests.plugins.packed_scheme import TwoBitWeight, two_bit_weight

pytest.importorskip("rlx_cpu", reason="the CPU has the kernels: rlx-cpu is not installed")

FILE = Path(__file__).with_name("packed_scheme.py")
K, N, BLOCK = 512, 200, 32
RNG = np.random.default_rng(0)
WEIGHT = {
    "codes": RNG.integers(0, 256, (K // 4, N)).astype("u1"),
    "scales": RNG.standard_normal((K // BLOCK, N)).astype("f4"),
    "minima": RNG.standard_normal((K // BLOCK, N)).astype("f4"),
}


def dequantised() -> np.ndarray:
    """The numbers, with NumPy."""
    codes = (WEIGHT["codes"][:, None, :] >> np.array([0, 2, 4, 6], "u1")[None, :, None]) & 3
    blocks = codes.reshape(K // BLOCK, BLOCK, N).astype("f4")
    return (blocks * WEIGHT["scales"][:, None, :] + WEIGHT["minima"][:, None, :]).reshape(K, N)


@pytest.mark.parametrize("m", [1, 5, 40])
def test_a_product_reads_the_codes_of_a_plugins_format(m: int) -> None:
    x = RNG.standard_normal((m, K)).astype("f4")
    compiled = rlx.compile(
        lambda p, x: rlx.relu(x @ two_bit_weight(p["codes"], p["scales"], p["minima"], block=BLOCK)),
        WEIGHT,
        rlx.spec(f"f32[{m}, {K}]"),
        config={"plugins": {"files": [str(FILE)]}},
    )
    (step,) = compiled.executable.lir.steps
    assert step.kernel == "native_matmul_prologue"
    assert compiled.report.expansions == ()
    assert compiled.report.prepared_nbytes == 0
    wide = rlx.jit(lambda x, w: rlx.relu(x @ w))(x, dequantised())
    np.testing.assert_allclose(compiled(x), wide, rtol=1e-5, atol=1e-4)


def test_the_op_is_what_numpy_computes() -> None:
    found = two_bit_weight(*WEIGHT.values(), block=BLOCK)
    np.testing.assert_allclose(found, dequantised(), rtol=1e-6, atol=1e-6)
    assert TwoBitWeight.name == "acme.two_bit_weight"
