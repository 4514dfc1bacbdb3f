"""Evenly spaced numbers without f64: the numbers that f64 gives when it is rounded, whatever the ends are."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.codegen import check_kernel, formula_of, kernel_of, run_kernel
from rlx_core.codegen.places import Place
from rlx_core.ir.dtypes import bf16, f32
from rlx_core.ir.types import TensorType
from rlx_gpu.rows.spacing import PairedLinspace


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize(
    ("start", "stop", "num"),
    [(-1.0, 2.5, 7), (0.1, -0.3, 1000), (-1.0, 1.0, 100_001), (3.0, 1.0, 1), (1e6, 1e6 + 1, 5000), (-0.1, 1e5, 70_000)],
)
def test_pairs_of_f32_give_what_f64_gives_when_it_is_rounded(
    start: float, stop: float, num: int, endpoint: bool
) -> None:
    formula = formula_of(PairedLinspace(start, stop, num, endpoint, f32), ())
    assert formula is not None
    found = np.zeros(num, np.float32)
    run_kernel(check_kernel(kernel_of(formula, (), (Place.dense(TensorType(f32, (num,))),))), [found.view(np.uint8)])
    exact = np.linspace(start, stop, num, endpoint=endpoint)
    # Of the nearest number, or one as near; where both ends cancel the pairs have some 34 digits.
    allowed = 0.51 * np.spacing(np.abs(exact.astype(np.float32))) + 2.0**-34 * max(abs(start), abs(stop))
    assert (np.abs(found - exact) <= allowed).all()
    assert found[0] == np.float32(start)


def test_narrow_results_are_rounded_from_f32() -> None:
    formula = formula_of(PairedLinspace(0.0, 1.0, 5, True, bf16), ())
    assert formula is not None
    assert formula.terms[formula.writes[0].value].dtype is bf16
