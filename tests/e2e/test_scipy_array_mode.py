"""SciPy's functions for any array library (SCIPY_ARRAY_API=1) inside `rlx.jit`: SciPy reads the switch when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("scipy", reason="it runs SciPy's functions in a trace: SciPy is not installed")

PROGRAM = """
import numpy as np
import rlx_core as rlx
from scipy import integrate, special, stats

X = np.random.default_rng(0).uniform(0.5, 3, (4, 5)).astype(np.float32)
CASES = {
    "logsumexp": lambda x: special.logsumexp(x, axis=1),
    "logsumexp with weights": lambda x: special.logsumexp(x, axis=0, b=2.0),
    "softmax": lambda x: special.softmax(x, axis=1),
    "log_softmax": lambda x: special.log_softmax(x, axis=1),
    "xlogy": lambda x: special.xlogy(x, x),
    "rel_entr": lambda x: special.rel_entr(x, x + 1),
    "zscore": lambda x: stats.zscore(x, axis=0),
    "gzscore": lambda x: stats.gzscore(x),
    "gmean": lambda x: stats.gmean(x),
    "skew": lambda x: stats.skew(x),
    "kurtosis": lambda x: stats.kurtosis(x, axis=1),
    "variation": lambda x: stats.variation(x),
    "circmean": lambda x: stats.circmean(x),
    "trapezoid": lambda x: integrate.trapezoid(x, axis=1),
    "cumulative_trapezoid": lambda x: integrate.cumulative_trapezoid(x, axis=1),
}
for name, function in CASES.items():
    wanted, graph = np.asarray(function(X)), rlx.trace(function, X)
    found = np.asarray(rlx.interpret(graph, {"x": X})[0])
    assert found.dtype == wanted.dtype, (name, found.dtype, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5, err_msg=name)  # f32 sums in another order
compiled = rlx.jit(CASES["logsumexp"])(X)
np.testing.assert_allclose(compiled, CASES["logsumexp"](X), rtol=1e-6)
slopes = rlx.grad(lambda x: rlx.sum(special.logsumexp(x, axis=1)))(X)
np.testing.assert_allclose(slopes, special.softmax(X, axis=1), rtol=1e-5)
print(len(CASES))
"""


@pytest.mark.slow  # another process imports SciPy: about 5 s
def test_functions_of_scipy_are_traced() -> None:
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["15"]
