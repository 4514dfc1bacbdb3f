"""Matrix products and attention with the values of options that the target's plugin declares as trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.cli.validating.bench import Bench, Skip
from rlx_core.cli.validating.results import CheckRow
from rlx_core.errors import ConfigError
from rlx_core.testing.judges import near

DTYPES: Final = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

PROGRAMS: Final[dict[str, Callable[..., Any]]] = {
    "product": lambda x, w, b: x @ w,
    "product, bias": lambda x, w, b: x @ w + b,
    "product, bias, ReLU": lambda x, w, b: nn.relu(x @ w + b),
    "product, bias, GELU": lambda x, w, b: nn.gelu(x @ w + b),
    "product, bias, GELU by tanh": lambda x, w, b: rlx.gelu_approx(x @ w + b),
    "transposed product": lambda x, w, b: w.T @ x.T,
}
SIZES: Final = ((128, 128, 128), (72, 136, 200))
"""Rows, depth and columns."""

ROUNDINGS: Final = 16.0
"""Units in the last place of the operands' dtype, relative to the largest result."""


def options(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Every program with every declared value, alone, against float64."""
    prefix = bench.target.partition(":")[0]
    declared = [spec for name, spec in bench.host.registry().options.items() if name.startswith(f"{prefix}.")]
    trials = [(spec.name, trial) for spec in declared for trial in spec.trials]
    if not trials:
        yield CheckRow("options", "skipped", f"the plugin of {prefix} declares no trials of options")
        return
    for option, trial in (("(default)", None), *trials):
        for name, function in PROGRAMS.items():
            for dtype, numpy in DTYPES.items():
                if trial is not None and trial.dtypes and dtype not in trial.dtypes:
                    continue
                for size in SIZES:
                    chosen = {} if trial is None else {option: trial.value}
                    epsilon = max(float(ml_dtypes.finfo(numpy).eps), 0.0 if trial is None else trial.epsilon)  # type: ignore[no-untyped-call]
                    label = option if trial is None else f"{option}={trial.value}"
                    described = f"{label}: {name} {dtype} {'x'.join(map(str, size))}"
                    yield from bench.check(described, compare, bench, function, numpy, size, chosen, epsilon)


def compare(bench: Bench, function: Any, numpy: Any, size: Any, chosen: Any, epsilon: float) -> dict[str, Any]:
    m, k, n = size
    rng = np.random.default_rng(12)
    x, w, b = (rng.uniform(-1, 1, shape).astype(numpy) for shape in ((m, k), (k, n), (n,)))
    f = bench.jit(function, chosen)
    try:
        actual = np.asarray(f(x, w, b))
    except ConfigError as error:
        raise Skip(error.message) from None
    expected = np.asarray(function(*(each.astype(np.float64) for each in (x, w, b))))
    scale = float(np.max(np.abs(expected)))
    near(actual.astype(np.float64), expected, 0.0, ROUNDINGS * epsilon * scale, "against float64")
    return {"kernels": sorted({kernel for _, kernel, _ in f.report.kernels})}
