"""Fake quantisation in PyTorch: values and gradients of x per tensor and per channel, and of a learned scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rlx_core as rlx
from rlx_core.quantization import fake_quantize, learned_scale_quantize

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((4, 5, 6)) * 3).astype(np.float32)
G = RNG.standard_normal(X.shape).astype(np.float32)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_fixed_scale_with_a_clipped_gradient(axis: int | None, bits: int) -> None:
    """Scales are powers of two, since PyTorch multiplies by their reciprocals."""
    limit = 2 ** (bits - 1) - 1
    scale = np.exp2(RNG.integers(-6, -2, () if axis is None else X.shape[axis])).astype(np.float32)
    y, pull = rlx.vjp(
        lambda x: fake_quantize(x, scale, bits=bits, axis=axis, mode="fixed", straight_through="clipped")[0], X
    )
    x = torch.tensor(X, requires_grad=True)
    if axis is None:
        peer = torch.fake_quantize_per_tensor_affine(x, float(scale), 0, -limit, limit)
    else:
        zeros = torch.zeros(len(scale), dtype=torch.int32)
        peer = torch.fake_quantize_per_channel_affine(x, torch.tensor(scale), zeros, axis, -limit, limit)
    peer.backward(torch.tensor(G))
    assert x.grad is not None
    assert np.array_equal(y, peer.detach().numpy())
    # PyTorch's gradient is that of the rounded number, ours that of x/s: they differ between q and q + 1/2.
    steps = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(3)])
    is_same = (np.abs(X / steps) <= limit) | (np.abs(X / steps) > limit + 0.5)
    assert np.array_equal(np.asarray(pull(G)[0])[is_same], x.grad.numpy()[is_same])


def test_a_learned_scale() -> None:
    scale, limit = np.float32(0.25), 7
    y, pull = rlx.vjp(lambda x, s: learned_scale_quantize(x, s, bits=4), X, scale)
    x, s = torch.tensor(X, requires_grad=True), torch.tensor([0.25], requires_grad=True)
    gain = 1 / np.sqrt(X.size * limit)
    peer = torch._fake_quantize_learnable_per_tensor_affine(x, s, torch.zeros(1), -limit, limit, float(gain))
    peer.backward(torch.tensor(G))
    assert x.grad is not None
    assert s.grad is not None
    assert np.array_equal(y, peer.detach().numpy())
    z = np.abs(X / scale)
    border = (z > limit) & (z <= limit + 0.5)  # as above; PyTorch's term of such an element is q - z, ours q
    d_x, d_scale = (np.asarray(each) for each in pull(G))
    assert np.array_equal(d_x[~border], x.grad.numpy()[~border])
    correction = gain * (np.sign(X) * z * G)[border].sum()
    assert float(d_scale) == pytest.approx(float(s.grad) + correction, rel=1e-4)
