"""Rows in groups with a matrix each: results and derivatives of a loop over the groups, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")
pytest.importorskip("transformers", reason="pip install 'rlx-torch[models]'")

import transformers.integrations.moe  # noqa: E402, F401  # which registers the op

import rlx_core as rlx  # noqa: E402  # torch first

ENDS = torch.tensor([2, 2, 5])
"""The second group is empty, and the rows from 5 on belong to none."""

X, W = torch.randn(6, 4), torch.randn(3, 4, 2)


class Groups(torch.nn.Module):
    def forward(self, x: Any, w: Any, ends: Any) -> Any:
        return torch.ops.transformers.grouped_mm_fallback(x, w, ends)


def looped(x: Any, w: Any) -> Any:
    return torch.cat([x[:2] @ w[0], x[2:5] @ w[2], x[5:] @ torch.zeros_like(w[0])])


@pytest.mark.medium
def test_each_group_is_multiplied_by_its_matrix_and_rows_of_none_are_zeros() -> None:
    found = rlx.from_torch(Groups(), (X, W, ENDS))(X.numpy(), W.numpy(), ENDS.numpy())
    np.testing.assert_allclose(found, looped(X, W), rtol=1e-5, atol=1e-6)


@pytest.mark.medium
def test_under_torch_compile_the_derivatives_are_those_of_the_loop() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    found = torch.autograd.grad(torch.compile(Groups(), backend="rlx")(x, w, ENDS).square().sum(), (x, w))
    wanted = torch.autograd.grad(looped(x, w).square().sum(), (x, w))
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)


class Grouped(torch.nn.Module):
    def forward(self, x: Any, w: Any, ends: Any = None) -> Any:
        return torch.nn.functional.grouped_mm(x, w, offs=ends)


@pytest.mark.medium
def test_torchs_own_grouped_product() -> None:
    x, w = torch.randn(6, 16, dtype=torch.bfloat16), torch.randn(3, 16, 8, dtype=torch.bfloat16)
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    model = rlx.from_torch(torch.export.export(Grouped(), (x, w, ends)))
    found = model(*(rlx.asarray(np.asarray(each.float())).astype(rlx.bf16) for each in (x, w)), ends.numpy())
    wanted = torch.cat([x[:2] @ w[0], x[2:] @ w[2]]).float()
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=2**-7, atol=2**-7)  # bf16: 8 bits


class Counts(torch.nn.Module):
    def __init__(self, *limits: float) -> None:
        super().__init__()
        self.limits = limits

    def forward(self, x: Any) -> Any:
        return torch.histc(x, 4, *self.limits)


@pytest.mark.medium
def test_counts_leave_out_what_is_outside() -> None:
    x = torch.tensor([0.0, 3.0, 3.0, 1.0, 7.0, -1.0, 2.5])
    np.testing.assert_array_equal(rlx.from_torch(Counts(0, 3), (x,))(x.numpy()), Counts(0, 3)(x))


@pytest.mark.medium
@pytest.mark.parametrize("x", [[0.0, 3.0, 3.0, 1.0, 7.0, -1.0, 2.5], [2.0, 2.0]], ids=["spread", "one value"])
def test_counts_without_a_range_take_that_of_the_elements(x: list[float]) -> None:
    given = torch.tensor(x)
    np.testing.assert_array_equal(rlx.from_torch(Counts(), (given,))(given.numpy()), Counts()(given))
