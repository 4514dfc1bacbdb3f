"""The Fourier transforms under NumPy's names, and short-time ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch

import rlx_core as rlx

from ..rows import COMPLEX, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

NORMS = ("backward", "ortho", "forward")


def one_axis(d: Draw) -> Any:
    rank = d.size(1, 3)
    return (d.normal(d.shape(rank, 1, 9)),), {
        "n": d.choice([None, None, 1, 4, 7, 12]),
        "axis": d.size(-rank, rank - 1),
        "norm": d.choice(NORMS),
    }


def several_axes(d: Draw) -> Any:
    rank = d.size(2, 3)
    axes = tuple(sorted(d.choice([(0, 1), (-1, -2), (-2, -1), (0, -1)])))
    return (d.normal(d.shape(rank, 2, 6)),), {
        "s": d.choice([None, None, (4, 5), (3, 6)]),
        "axes": axes,
        "norm": d.choice(NORMS),
    }


def bins(d: Draw) -> Any:
    """A spectrum of more than one bin, to be led back to a given number of samples."""
    shape = d.shape(d.size(1, 2), 2, 9)
    return (d.normal(shape),), {"n": d.choice([None, 4, 7, 12]), "axis": -1, "norm": d.choice(NORMS)}


def torch_one(function: Any) -> Any:
    return lambda x, *, n, axis, norm: function(x, n, axis, norm)


def torch_several(function: Any) -> Any:
    return lambda x, *, s, axes, norm: function(x, s, axes, norm)


def one(name: str, cases: Any = one_axis, dtypes: tuple[str, ...] = COMPLEX, **more: Any) -> Row:
    return Row(
        f"fft.{name}",
        getattr(rlx.fft, name),
        cases,
        torch_one(getattr(torch.fft, name)),
        getattr(jnp.fft, name),
        dtypes=dtypes,
        **more,
    )


def several(name: str, dtypes: tuple[str, ...] = COMPLEX, cases: Any = several_axes) -> Row:
    return Row(
        f"fft.{name}",
        getattr(rlx.fft, name),
        cases,
        torch_several(getattr(torch.fft, name)),
        getattr(jnp.fft, name),
        dtypes=dtypes,
    )


def real_input(d: Draw) -> Any:
    return one_axis(d)


def framed(d: Draw) -> Any:
    frame, hop = d.size(3, 8), d.size(1, 4)
    return (d.normal((d.size(1, 3), frame + hop * d.size(0, 4))), d.floats((frame,), 0.3, 1.0)), {
        "frame": frame,
        "hop": hop,
    }


def torch_stft(x: Any, window: Any, *, frame: int, hop: int) -> Any:
    spectra = torch.stft(x, frame, hop, frame, window, center=False, return_complex=True)
    return spectra.transpose(-1, -2)


def jax_stft(x: Any, window: Any, *, frame: int, hop: int) -> Any:
    starts = jnp.arange(0, x.shape[-1] - frame + 1, hop)
    return jnp.fft.rfft(x[..., starts[:, None] + jnp.arange(frame)] * window)


FAMILY = Family(
    "Fourier transforms",
    [
        one("fft"),
        one("ifft"),
        one("rfft", dtypes=WIDE),
        one("irfft", bins),
        one("hfft", bins),
        one("ihfft", dtypes=WIDE),
        several("fft2"),
        several("ifft2"),
        several("fftn"),
        several("ifftn"),
        several("rfft2", WIDE),
        several("rfftn", WIDE),
        several("irfft2"),
        several("irfftn"),
        Row(
            "fft.fftshift",
            lambda x, *, axes: rlx.fft.fftshift(x, axes),
            lambda d: ((d.floats(d.shape(2)),), {"axes": d.choice([0, 1, (0, 1)])}),
            lambda x, *, axes: torch.fft.fftshift(x, axes),
            jnp.fft.fftshift,
        ),
        Row(
            "fft.ifftshift",
            lambda x, *, axes: rlx.fft.ifftshift(x, axes),
            lambda d: ((d.floats(d.shape(2)),), {"axes": d.choice([0, 1, (0, 1)])}),
            lambda x, *, axes: torch.fft.ifftshift(x, axes),
            jnp.fft.ifftshift,
        ),
        Row(
            "fft.stft",
            lambda x, window, *, frame, hop: rlx.fft.stft(x, frame, hop, window),
            framed,
            torch_stft,
            jax_stft,
            dtypes=WIDE,
            note="frames before bins here, and none around the ends: `center=False`",
        ),
        Row(
            "fft.istft of fft.stft",
            lambda x, window, *, frame, hop: rlx.fft.istft(rlx.fft.stft(x, frame, hop, window), frame, hop, window),
            lambda d: (lambda args, a: (args, {**a, "hop": min(a["hop"], a["frame"])}))(*framed(d)),
            lambda x, window, *, frame, hop: x,
            dtypes=WIDE,
            asks={"forward", "batch"},
            note="the signal itself; PyTorch's `istft` requires windows that add up",
        ),
    ],
)
