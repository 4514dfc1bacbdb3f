"""Fourier transforms, windows and filters."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles


def _complex(x: Any) -> Any:
    """The last axis of size 2, or 1 for reals, as one complex number."""
    if x.shape[-1] == 1:
        return rlx.make_complex(x[..., 0], rlx.zeros_like(x[..., 0]))
    return rlx.make_complex(x[..., 0], x[..., 1])


def _pairs(z: Any) -> Any:
    return rlx.stack([rlx.real(z), rlx.imag(z)], axis=-1)


@handles("DFT")
def dft(node: OnnxNode, x: Any, length: Any = None, axis: Any = None) -> Any:
    """The discrete Fourier transform along an axis; one-sided it is of reals, and half of it."""
    along = int(node.scalar(2, "axis", node.get("axis", -2)))
    along = along % x.ndim
    if along == x.ndim - 1:
        raise FormatError(f"{node}: the last axis is that of real and imaginary parts")
    count = node.ints(1, "dft_length")
    n = count[0] if count else x.shape[along]
    dtype = dtype_of(x.dtype)
    is_real = x.shape[-1] == 1
    # Reals in double precision: the same memory as complex numbers of single, and zeros come out as zeros.
    wide = rlx.astype(x, rlx.f64) if is_real else rlx.astype(x, rlx.f32) if dtype.is_narrow else x
    one_sided, back = bool(node.get("onesided", 0)), bool(node.get("inverse", 0))
    if one_sided and back:
        z = _complex(wide)
        n = count[0] if count else 2 * (x.shape[along] - 1)
        result = rlx.expand_dims(rlx.fft.irfft(z, n=n, axis=along), axis=-1)
    elif one_sided:
        result = _pairs(rlx.fft.rfft(wide[..., 0], n=n, axis=along))
    else:
        z = _complex(wide)
        result = _pairs(rlx.fft.ifft(z, n=n, axis=along) if back else rlx.fft.fft(z, n=n, axis=along))
    return rlx.astype(result, dtype)


@handles("STFT")
def stft(node: OnnxNode, signal: Any, hop: Any, window: Any = None, length: Any = None) -> Any:
    """Fourier transforms of frames that overlap: `[batch, frames, bins, 2]`."""
    step = int(node.scalar(1, "frame_step"))
    values = node.scalar(3, "frame_length")
    size = int(values) if values is not None else window.shape[0] if window is not None else None
    if not isinstance(size, int) or size < 1 or step < 1:
        raise FormatError(f"{node}: frames of {size} every {step}")
    total = signal.shape[1]
    if not isinstance(total, int):
        node.refuse(f"a signal of {total} samples", "a length that is known")
    count = max((total - size) // step + 1, 0)
    node.counted(count * size, "number of samples in frames")
    places = np.arange(count)[:, None] * step + np.arange(size)
    data = signal if signal.ndim == 3 else rlx.expand_dims(signal, axis=-1)
    frames = rlx.take(data, places, axis=1)
    if window is not None:
        frames = frames * rlx.reshape(window, (-1, 1))
    if node.get("onesided", 1) and data.shape[-1] == 1:
        return _pairs(rlx.fft.rfft(frames[..., 0], axis=2))
    result = _pairs(rlx.fft.fft(_complex(frames), axis=2))
    return result[:, :, : size // 2 + 1] if node.get("onesided", 1) else result


@handles("HannWindow", "HammingWindow", "BlackmanWindow")
def window(node: OnnxNode, size: Any) -> Any:
    n = node.counted(int(node.scalar(0, "size")), "size of a window")
    to = DTYPES[node.element("output_datatype", 1)]
    parts = {
        "HannWindow": (0.5, 0.5, 0.0),
        "HammingWindow": (25 / 46, 21 / 46, 0.0),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }
    a, b, c = parts[node.op]
    turn = 2 * np.pi * np.arange(n) / (n if node.get("periodic", 1) else n - 1)
    return (a - b * np.cos(turn) + c * np.cos(2 * turn)).astype(to.numpy)


@handles("MelWeightMatrix")
def mel_weights(node: OnnxNode, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles on the mel scale, `[spectrum bins, mel bins]`."""
    count, n, hz = (int(node.scalar(i, what)) for i, what in enumerate(("num_mel_bins", "dft_length", "sample_rate")))
    lower, upper = (2595 * np.log10(1 + float(node.scalar(i, "edge")) / 700) for i in (3, 4))
    points = 700 * (10 ** (lower + np.arange(count + 2) * (upper - lower) / (count + 2) / 2595) - 1)
    edges = ((n + 1) * points // hz).astype(int)
    node.counted((n // 2 + 1) * count, "size of a matrix")
    result = np.zeros((n // 2 + 1, count))
    for i in range(count):
        first, centre, last = edges[i : i + 3]
        if first == centre:
            result[centre, i] = 1
        else:
            result[first : centre + 1, i] = np.arange(centre - first + 1) / (centre - first)
        if last > centre:
            result[centre:last, i] = (last - np.arange(centre, last)) / (last - centre)
    return result.astype(DTYPES[node.element("output_datatype", 1)].numpy)
