"""The short-time Fourier transform and its inverse: overlapping frames, weighted, transformed, and overlap-added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, require
from rlx_core.ir.dtypes import DType, dtype, f32, promote
from rlx_core.ir.graph import Value
from rlx_core.ops.arguments import whole
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota, ones
from rlx_core.ops.fourier.functions import irfft, rfft
from rlx_core.ops.indexing import gather, scatter_add
from rlx_core.ops.linalg import operand
from rlx_core.ops.movement import narrow, pad_axis
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["istft", "stft"]

LEAST_COVER = 1e-10
"""Minimum sum of a sample's squared weights, over all frames, for its recovery."""


@checked_call
def stft(x: ArrayLike, frame_length: int, hop: int, window: ArrayLike | None = None, *, n: int | None = None) -> Array:
    """The spectra of frames of a real signal: y[.., k, :] = rfft(window · x[.., k·hop : k·hop + frame_length]).

    Frames are within the signal, and the remainder at its end is in no frame; pad the signal to have frames around its first
    and last samples.

    Shapes:
        x: f[.., samples]    window: f[frame_length]    ->    y: c[.., frames, n div 2 + 1]

    Args:
        x: The signal.
        frame_length: The number of samples of a frame.
        hop: The number of samples between the starts of adjacent frames.
        window: The weights of a frame's samples, such as `scipy.signal.get_window("hann", frame_length)`, converted to the
            dtype of the signal; 1 by default.
        n: The length of the transform, with zeros after the frame; `frame_length` by default.

    Raises:
        ShapeError: The signal is shorter than a frame, or the window has another length.
        ConfigError: A length is not an integer, or below 1, or `n` is below `frame_length`.
        DtypeError: `x` is complex.
    """
    length, step, bins = _lengths("stft", frame_length, hop, n)
    signal = operand(x)
    shape = shape_of(signal)
    if not shape:
        raise ShapeError("stft: x must have an axis of samples")
    real_dtype = promote(dtype(signal.dtype), f32)
    if real_dtype.is_complex:
        raise DtypeError(f"stft: takes real signals, not {real_dtype}")
    if not require(">=", shape[-1], length):
        raise ShapeError(f"stft: a signal of {shape[-1]} samples has no frame of {length}")
    count = (shape[-1] - length) // step + 1
    frames: Any = cast(gather(signal, _samples_of_frames(count, length, step), axis=len(shape) - 1), to=real_dtype)
    weights = _weights("stft", window, length, real_dtype)
    return rfft(frames if weights is None else frames * weights, n=bins)


@checked_call
def istft(
    z: ArrayLike,
    frame_length: int,
    hop: int,
    window: ArrayLike | None = None,
    *,
    n: int | None = None,
    length: Dim | None = None,
) -> Array:
    """The signal whose short-time transform is nearest to `z` in the sum of squares, which is `stft`'s inverse.

    Frames are weighted by the window, overlap-added, and divided by the sum of the squared weights; a sample without weight,
    such as the first one of a Hann window, is 0 (Griffin and Lim 1984, "Signal estimation from modified short-time Fourier
    transform", section 2).

    Shapes:
        z: c[.., frames, n div 2 + 1]    window: f[frame_length]    ->    x: f[.., (frames - 1)·hop + frame_length]

    Args:
        z: The spectra.
        frame_length, hop, window, n: As in the call of `stft`.
        length: The number of samples of the result: a signal is truncated, or padded with zeros.

    Raises:
        ShapeError: `z` has fewer than two axes, or a frame does not have n div 2 + 1 elements.
        ConfigError: As for `stft`; also if a known window leaves a sample of the signal without any weight.
    """
    own_length, step, bins = _lengths("istft", frame_length, hop, n)
    shape = shape_of(z)
    if len(shape) < 2:
        raise ShapeError(f"istft: z must have 2 axes or more, frames and frequencies, not {len(shape)}")
    if not require("==", shape[-1], bins // 2 + 1):
        raise ShapeError(f"istft: frames of {bins} have {bins // 2 + 1} frequencies, not {shape[-1]}")
    count = shape[-2]
    if not require(">=", count, 1):
        raise ShapeError("istft: there are no frames")
    frames: Any = narrow(irfft(z, n=bins), axis=len(shape) - 1, start=0, length=own_length)
    frame_dtype = dtype(frames.dtype)
    weights = _weights("istft", window, own_length, frame_dtype)
    squares: Any = ones((own_length,), frame_dtype) if weights is None else weights * weights
    _expect_cover(squares, own_length, step, count)
    places, size = _samples_of_frames(count, own_length, step), (count - 1) * step + own_length
    cover = scatter_add(squares * ones((count, 1), frame_dtype), places, axis=0, size=size)
    added = scatter_add(frames if weights is None else frames * weights, places, axis=len(shape) - 2, size=size)
    signal = added / where(cover < LEAST_COVER, 1, cover)
    if length is None or length == size:
        return signal
    last = len(shape_of(signal)) - 1
    return pad_axis(signal, last, 0, length - size)  # if the result is longer, the width is negative, which crops


def _lengths(name: str, frame_length: int, hop: int, n: int | None) -> tuple[int, int, int]:
    length = whole(f"{name}: frame_length", frame_length, least=1)
    step = whole(f"{name}: hop", hop, least=1)
    return length, step, length if n is None else whole(f"{name}: n", n, least=length)


def _weights(name: str, window: Any, length: int, target: DType) -> Any:
    """Return the window in the dtype of the frames; `None` if there is none."""
    if window is None:
        return None
    weights = operand(window)
    if tuple(shape_of(weights)) != (length,):
        raise ShapeError(f"{name}: a window for frames of {length} must be [{length}], not {list(shape_of(weights))}")
    return cast(weights, to=target)


def _samples_of_frames(count: Dim, length: int, step: int) -> Any:
    """Return the indices of the samples of each frame: [count, length]."""
    return iota(axis=0, shape=(count, length)) * step + iota(axis=1, shape=(count, length))


def _expect_cover(squares: Any, length: int, step: int, count: Dim) -> None:
    """Require, if weights are known, that every sample between the first frame and the last has a weight.

    Raises:
        ConfigError: A sample has no weight.
    """
    if isinstance(squares, Value) or count == 1:
        return
    known = np.asarray(squares, np.float64)
    inside = np.zeros(step)
    for start in range(0, length, step):
        part = known[start : start + step]
        inside[: part.size] += part
    if inside.min() < LEAST_COVER:
        raise ConfigError(
            f"istft: {int((inside < LEAST_COVER).sum())} of {inside.size} samples between frames have no weight",
            hint="overlap the frames more, or take a window that is not 0 there",
        )
