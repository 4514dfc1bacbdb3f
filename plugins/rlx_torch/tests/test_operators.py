"""`as_torch`: functions of rlx as operators of torch, with gradients, in compiled and exported modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

import rlx_core as rlx  # noqa: E402  # torch first: without it there is nothing to test
from rlx_core import nn  # noqa: E402
from rlx_core.errors import ConfigError  # noqa: E402
from rlx_torch.modules import from_torch  # noqa: E402
from rlx_torch.operators import as_torch  # noqa: E402

norm = as_torch(lambda x, w: nn.rms_norm(x, w), name="test_norm")
pick = as_torch(lambda x, i: (rlx.take(x, i, axis=0), i * 2), name="test_pick", results=2)


def operands() -> tuple[Any, Any]:
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(
        4, dtype=torch.float64, requires_grad=True
    )


@pytest.mark.medium
def test_an_operator_has_its_gradient() -> None:
    x, w = operands()
    torch.testing.assert_close(norm(x, w), torch.nn.functional.rms_norm(x, (4,), w, 1e-6))
    assert torch.autograd.gradcheck(norm, (x, w))


@pytest.mark.medium
def test_several_results_of_several_dtypes() -> None:
    x, _ = operands()
    rows, doubled = pick(x, torch.tensor([0, 2, 2]))
    rows.sum().backward()
    assert doubled.tolist() == [0, 4, 4]
    assert x.grad[:, 0].tolist() == [1.0, 0.0, 2.0]


@pytest.mark.medium
def test_torchs_own_checks_of_a_custom_op() -> None:
    x, w = operands()
    torch.library.opcheck(torch.ops.rlx.test_norm.default, ([x, w],))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(4))

    def forward(self, x: Any) -> Any:
        return norm(x * 2, self.w).sum(-1)


@pytest.mark.medium
@pytest.mark.parametrize("backend", ["rlx", "aot_eager"])
def test_it_stands_in_compiled_modules(backend: str) -> None:
    layer = Layer()
    compiled = torch.compile(layer, backend=backend, dynamic=True)
    for batch in (2, 5):
        x = torch.randn(batch, 4, requires_grad=True)
        found, wanted = (torch.autograd.grad(f(x).square().sum(), [x, layer.w]) for f in (compiled, layer))
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.medium
def test_it_is_part_of_an_imported_program() -> None:
    layer = Layer()
    model = from_torch(layer, (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert "rms_norm" in str(model.trace())
    x = torch.randn(3, 4)
    np.testing.assert_allclose(model(x.numpy()), layer(x).detach(), rtol=1e-5)


def test_mistakes_are_said() -> None:
    with pytest.raises(ConfigError, match="is taken"):
        as_torch(lambda x: x, name="test_norm")
    two = as_torch(lambda x: (x, x * 2), name="test_two")
    with pytest.raises(ConfigError, match="gives 2 results"):
        two(torch.ones(1))
