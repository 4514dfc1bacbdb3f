"""Indices outside of their axis have one meaning in every tier and integer dtype; those of u64 from 2⁶³ on are not negative."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.dtypes import INTEGERS, DType

TABLE = np.arange(20, dtype=np.float32).reshape(4, 5)


def indices(dtype: DType) -> np.ndarray:
    """Return indices inside of an axis of five elements, and both ends of the dtype; of u64 also those around 2⁶³."""
    limits = np.iinfo(dtype.numpy)
    middle = [2**63 - 1, 2**63, 2**63 + 1] if dtype.name == "u64" else []
    return np.array([0, 4, 1, limits.min, *middle, limits.max], dtype.numpy)


FUNCTIONS = {
    "gather": lambda x, i: rlx.gather(x, i, axis=1, out_of_bounds="clip"),
    "gather of rows": lambda x, i: rlx.gather(x, i, axis=0, out_of_bounds="clip"),
    "gather in a fused loop": lambda x, i: rlx.gather(2 * x + 1, i, axis=1, out_of_bounds="clip") * 3,
    "gather in a batch": lambda x, i: rlx.gather(
        x, rlx.broadcast_to(i, (4, i.shape[0])), axis=1, batch_dims=1, out_of_bounds="clip"
    ),
    "gather with fill": lambda x, i: rlx.gather(x, i, axis=1, out_of_bounds="fill"),
    "gather_nd": lambda x, i: rlx.gather_nd(x[0], rlx.reshape(i, (i.shape[0], 1)), out_of_bounds="clip"),
    "scatter": lambda x, i: rlx.scatter(x[0], i, rlx.ones((i.shape[0],)), mode="add", out_of_bounds="clip"),
    "dynamic_slice": lambda x, i: rlx.dynamic_slice(x[0], (i[-1],), (2,)),
}


@pytest.mark.parametrize("tier", ["native", "numpy"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_index_outside_is_clipped_to_the_nearest_end(name: str, dtype: DType, tier: str) -> None:
    function, i = FUNCTIONS[name], indices(dtype)
    nearest = np.array([min(max(int(k), 0), 3 if name == "gather of rows" else 4) for k in i], np.int64)
    exact = i.astype(object)
    if name == "gather with fill":
        nearest = np.array([k if 0 <= k < 5 else 99 for k in exact], np.int64)

    expected = np.asarray(function(TABLE, nearest))
    compiled = np.asarray(rlx.jit(function, config={"options": {"cpu.tier": tier}})(TABLE, i))

    np.testing.assert_array_equal(np.asarray(function(TABLE, i)), expected)
    np.testing.assert_array_equal(compiled, expected)
