"""Results of operators whose dtypes, shapes or decompositions differ from what their names suggest, as torch has them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

NARROW = torch.rand(3, 4).to(torch.bfloat16)
NONE = torch.empty((0,), dtype=torch.int64)

CASES: dict[str, tuple[Any, ...]] = {
    "polar": (torch.polar, torch.rand(3), torch.rand(3)),
    "polar of scalars": (torch.polar, torch.tensor(1.0), torch.tensor(2.0)),
    "gather of no index": (lambda x, index: torch.gather(x, 1, index), torch.rand(2, 3), NONE),
    "statistics of bf16": (lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5), NARROW),
    "statistics with a weight": (lambda x, w: torch.native_layer_norm(x, (4,), w, w, 1e-5), NARROW, NARROW[0]),
}


@pytest.mark.parametrize("case", CASES)
def test_dtypes_and_values_are_those_of_torch(case: str) -> None:
    function, *operands = CASES[case]
    torch._dynamo.reset()
    found, expected = torch.compile(function, backend="rlx")(*operands), function(*operands)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)  # dtypes, shapes and values
