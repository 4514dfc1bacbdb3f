"""Modules with data-dependent sizes: programs, and steps on the host between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

import rlx_core as rlx  # noqa: E402  # torch first
from rlx_core.errors import UnsupportedError  # noqa: E402
from rlx_torch.modules import from_torch  # noqa: E402


class Select(torch.nn.Module):
    """Positions, selected elements and their sum, an unchanged input, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor([1.0, -1.0, 2.0]))

    def forward(self, x: Any) -> Any:
        h = self.linear(x) * self.scale
        selected = h[h > 0]
        return torch.nonzero(h > 0), 2 * selected, selected.sum(), torch.masked_select(x, x > 0), self.scale, x, 3


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(0)
    return Select()


@pytest.fixture(scope="module")
def model(module: Any) -> Any:
    return from_torch(module, (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))


@pytest.mark.medium
@pytest.mark.parametrize("batch", [2, 5])
def test_results_have_the_sizes_of_torch(module: Any, model: Any, batch: int) -> None:
    x = torch.randn(batch, 3)
    for ours, theirs in zip(model(x.numpy()), module(x), strict=True):
        np.testing.assert_allclose(
            np.asarray(ours), theirs.detach() if isinstance(theirs, torch.Tensor) else theirs, 1e-5
        )


def test_the_report_names_the_steps(model: Any) -> None:
    report = str(model.compile().report)
    assert "2 programs, and 3 steps on the host" in report
    assert "on the host: nonzero (test_parts.py:" in report


@pytest.mark.medium
def test_a_mask_next_to_an_index_selects_as_in_torch() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            return x[x[:, 0, 0] > 0, :, i] + 1

    x, i = torch.randn(6, 2, 4), torch.tensor([2])
    model = from_torch(Rows(), (x, i))
    np.testing.assert_array_equal(np.asarray(model(x.numpy(), i.numpy())), Rows()(x, i))


def test_transformations_name_the_steps(model: Any) -> None:
    with pytest.raises(UnsupportedError, match="more than one program") as caught:
        rlx.grad(lambda x: rlx.sum(model.function(model.parameters, x)[2]))(np.ones((2, 3), np.float32))
    assert "nonzero (test_parts.py:" in str(caught.value)


@pytest.mark.medium
def test_random_numbers_next_to_data_dependent_sizes_are_refused() -> None:
    class Drawn(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nonzero(torch.nn.functional.dropout(x, 0.5, training=True))

    with pytest.raises(UnsupportedError, match="random numbers next to data-dependent sizes"):
        from_torch(Drawn(), (torch.ones(4),))
