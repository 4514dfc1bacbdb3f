"""Products for all sizes whose epilogue reads what a batch repeats: its rows are no rows of the product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx


def shifted(weight: Any, x: Any, shift: Any) -> Any:
    return x @ weight + shift


@pytest.mark.parametrize("sizes", [((1, 5), (3, 5)), ((3, 5), (1, 5)), ((2, 1), (2, 7), (1, 7))], ids=str)
def test_an_operand_that_each_entry_of_a_batch_reads_again(sizes: tuple[tuple[int, int], ...]) -> None:
    """Entries are rows of one product, and what a shift for one of them says must not be read on behind its end."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((24, 32)).astype(np.float32)
    compiled = rlx.compile(
        shifted, weight, rlx.spec("f32[batch, length, 24]"), rlx.spec("f32[length, 32]"), target="cpu"
    )
    for batch, length in sizes:
        x = rng.standard_normal((batch, length, 24)).astype(np.float32)
        # Behind the shift lies what would show in the results.
        shift = np.concatenate([rng.standard_normal((length, 32)), np.full((batch * length, 32), np.nan)])
        found = compiled(x, shift.astype(np.float32)[:length])
        np.testing.assert_allclose(found, x @ weight + shift[:length], atol=1e-4)
