"""The laws of schemes of quantised weights: fields as stated, one meaning everywhere, and codes that represent the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

import rlx_core as rlx
from rlx_core.ir.schemes import Scheme
from rlx_core.quantization.array import QuantizedArray, quantize

ROWS: Final = 3
BLOCKS: Final = 2
LENGTH: Final = 64
"""Elements of a block, where the scheme leaves that open."""


class Schemes:
    """Laws of contributed schemes."""

    def test_scheme_represents_values(self, scheme: type[Scheme]) -> None:
        for name, values in written(scheme):
            decoded = np.asarray(quantized(scheme, values).dequantize())
            assert decoded.dtype == np.float32, f"{scheme.name} decodes to {decoded.dtype}, not f32"
            assert decoded.shape == values.shape, f"{scheme.name} decodes {values.shape} to {decoded.shape}"
            error, size = np.square(decoded - values).sum(), np.square(values, dtype=np.float64).sum()
            assert error < size or error == size == 0, (
                f"{scheme.name}: the squared error of {name} is {error:.3g}, that of zeros {size:.3g}"
            )

    def test_decoding_compiled_is_decoding(self, scheme: type[Scheme]) -> None:
        x = np.random.default_rng(1).standard_normal((2, BLOCKS * length_of(scheme))).astype(np.float32)
        for name, values in written(scheme):
            array = quantized(scheme, values)
            decoded = np.asarray(array.dequantize())
            compiled = np.asarray(rlx.compile(lambda w: w["w"].dequantize(), {"w": array})())
            assert compiled.tobytes() == decoded.tobytes(), (
                f"{scheme.name}: {name} has other bits in a compiled program"
            )
            product = np.asarray(
                rlx.compile(lambda w, x: x @ w["w"].dequantize().T, {"w": array}, rlx.spec(f"f32{list(x.shape)}"))(x)
            )
            bound = 1e-5 * (np.abs(x) @ np.abs(decoded).T) + 1e-30
            is_near = np.abs(product - x.astype(np.float64) @ decoded.T.astype(np.float64)) <= bound
            assert is_near.all(), f"{scheme.name}: a product with {name} is not that with the decoded values"

    def test_bytes_of_a_file_are_kept(self, scheme: type[Scheme]) -> None:
        decided = scheme().for_length(length_of(scheme))
        if any(field.is_shared for field in decided.fields):
            return  # bytes of blocks are not all of it
        rng = np.random.default_rng(2)
        raw = rng.integers(0, 256, (ROWS, BLOCKS * decided.block_dtype.itemsize), dtype=np.uint8)
        assert np.array_equal(decided.bytes_of(decided.fields_of(raw)).reshape(raw.shape), raw), (
            f"{scheme.name}: the bytes of blocks change when they are divided into fields and joined again"
        )


def length_of(scheme: type[Scheme]) -> int:
    """Return the elements of a block."""
    return scheme().block or LENGTH


def quantized(scheme: type[Scheme], values: np.ndarray) -> QuantizedArray:
    """Return values in a scheme; the errors are those of `quantize`."""
    return quantize(values, scheme().for_length(length_of(scheme)))


def written(scheme: type[Scheme]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays of a few blocks, by their description."""
    shape = (ROWS, BLOCKS * length_of(scheme))
    normal = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    outlier = normal.copy()
    outlier[:, 3] = 100
    yield "normal numbers", normal
    yield "zeros", np.zeros(shape, np.float32)
    yield "a constant", np.full(shape, -1.5, np.float32)
    yield "numbers of one sign", np.abs(normal)
    yield "one large number in each row", outlier
    yield "small numbers", normal * np.float32(1e-3)
