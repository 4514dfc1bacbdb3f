"""Oracle mode: the same program through the same road, in double precision."""

from __future__ import annotations

import numpy as np

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])
ORACLE = {"options": {"cpu.oracle": True}}


def harmonic(x):
    """A sum that single precision loses digits in: 1 + 1/2 + 1/3 + …, in the order of its operand."""
    return rlx.sum(rlx.cumulative_sum(1 / x) / x)


def test_it_computes_in_double_precision_and_returns_the_declared_dtype():
    x = np.arange(1, 100_001, dtype=np.float32)
    exact = np.sum(np.cumsum(1 / x.astype(np.float64)) / x.astype(np.float64))

    result = rlx.jit(harmonic, config=ORACLE, host=HOST)(x)

    assert result.dtype == np.float32
    assert result == np.float32(exact)  # one rounding, at the end
    assert rlx.jit(harmonic, host=HOST)(x) != result  # single precision along the way is another number


def test_parameters_symbols_and_donated_arrays_work_as_in_any_run():
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = rlx.compile(lambda w, x: x @ w, weights, rlx.spec("f32[n, 2]"), config=ORACLE, host=HOST)
    np.testing.assert_array_equal(model(np.eye(2, dtype=np.float32)), weights)

    state = rlx.ones(3)
    place = np.asarray(state).ctypes.data
    step = rlx.jit(lambda state: state * 2, donate=["state"], config=ORACLE, host=HOST)
    after = step(state)
    np.testing.assert_array_equal(after, [2, 2, 2])
    assert np.asarray(after).ctypes.data == place
