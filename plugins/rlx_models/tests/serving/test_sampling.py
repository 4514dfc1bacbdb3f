"""Sampling with options of each row, against `rlx.random.filter_logits`."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rlx_core as rlx
from rlx_models.serving.sampling import filter_rows


@pytest.mark.medium
def test_rows_are_filtered_as_each_alone() -> None:
    """With ties: only the first of equal logits is kept where the probabilities before it reach `top_p`."""
    rng = np.random.default_rng(0)
    logits = rng.integers(-6, 6, (40, 23)).astype(np.float32) / 2
    top_k = rng.choice([0, 1, 3, 10, 23, 99], 40)
    top_p = rng.choice([0.0, 0.3, 0.9, 1.0], 40)
    min_p = rng.choice([0.0, 0.1, 0.9], 40)
    log_min_p = np.array([math.log(p) if p else -np.inf for p in min_p], np.float32)
    result = np.asarray(rlx.jit(filter_rows)(logits, top_k, top_p.astype(np.float32), log_min_p))
    for row in range(40):
        options = {"top_k": int(top_k[row]), "top_p": float(top_p[row]), "min_p": float(min_p[row])}
        np.testing.assert_array_equal(
            result[row], rlx.random.filter_logits(logits[row], **options), err_msg=str(options)
        )
