"""LU factors: those that torch gives, systems that they solve, and derivatives by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

import rlx_core as rlx  # noqa: E402  # torch first
from rlx_core.errors import UnsupportedError  # noqa: E402

A = np.random.default_rng(0).standard_normal((2, 4, 4))


class Factors(torch.nn.Module):
    def forward(self, a: Any) -> Any:
        packed, pivots = torch.linalg.lu_factor(a)
        solved = [
            torch.linalg.lu_solve(packed, pivots, a[:1], adjoint=adjoint, left=left)
            for adjoint in (False, True)
            for left in (False, True)
        ]
        return packed, pivots, *torch.linalg.lu(a), *torch.lu_unpack(packed, pivots), *solved


@pytest.mark.medium
def test_factors_are_torchs() -> None:
    given = torch.tensor(A)
    for found, wanted in zip(rlx.from_torch(Factors(), (given,))(A), Factors()(given), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["det", "slogdet", "solve"])
def test_derivatives_under_torch_compile(name: str, turned: bool) -> None:
    """Torch factorises the transpose of what lies row by row, and its derivatives read those factors."""

    def loss(a: Any) -> Any:
        a = a.mT if turned else a
        found = {
            "det": torch.linalg.det,
            "slogdet": lambda a: torch.linalg.slogdet(a)[1],
            "solve": lambda a: torch.linalg.solve(a, torch.ones_like(a[..., :1])),
        }[name](a)
        return (found * torch.arange(1.0, 1 + found.numel(), dtype=a.dtype).reshape(found.shape)).sum()

    def slope(f: Any) -> Any:
        x = torch.tensor(A, requires_grad=True)
        return torch.autograd.grad(f(x), x)[0].numpy()

    np.testing.assert_allclose(slope(torch.compile(loss, backend="rlx")), slope(loss), rtol=1e-9, atol=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("of", ["values", "both"])
def test_eigenvalues_of_any_matrix_and_their_derivatives(of: str) -> None:
    """Sums over all pairs, because torch leaves their order open; of vectors moduli, because it leaves their phases open."""

    def loss(a: Any) -> Any:
        if of == "values":
            return (torch.linalg.eigvals(a) ** 3).real.sum()
        w, v = torch.linalg.eig(a)
        return (w.abs()[..., None, :] * v.abs() ** 3).sum()

    def slope(f: Any) -> Any:
        x = torch.tensor(A, requires_grad=True)
        return torch.autograd.grad(f(x), x)[0].numpy()

    np.testing.assert_allclose(slope(torch.compile(loss, backend="rlx")), slope(loss), rtol=1e-8, atol=1e-8)


@pytest.mark.medium
def test_what_has_no_factors_here_is_refused_by_name() -> None:
    class Wide(torch.nn.Module):
        def forward(self, a: Any) -> Any:
            return torch.linalg.lu_factor(a)

    with pytest.raises(UnsupportedError, match="factors of square matrices"):
        rlx.from_torch(Wide(), (torch.ones(2, 3),))
