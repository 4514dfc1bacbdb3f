"""What tests of products draw and compare with: the errors that NumPy itself makes, and operands in all layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Kernel

from rlx_core.ir.dtypes import dtype


def error_bound(single: np.ndarray, exact: np.ndarray) -> float:
    """Four times the largest error of NumPy in the same dtype, and four ulp of the largest element.

    NumPy adds up in blocks of its own, so on tiny products its error may happen to be 0.
    """
    if not exact.size:
        return 0.0
    return float(4 * np.abs(single - exact).max() + 4 * np.finfo(single.dtype).eps * np.abs(exact).max())


def check(made: Kernel, *operands: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
    (found,) = made(*operands)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max(initial=0.0) <= error_bound(single, exact)
    for threads in (2, 3, 5):
        assert np.array_equal(made(*operands, threads=threads)[0], found), "threads change no bit"


def random(rng: np.random.Generator, shape: tuple[int, ...], of: Any, *, is_transposed: bool = False) -> np.ndarray:
    """Elements of both signs, in rows or in columns."""
    if is_transposed:
        return random(rng, (*shape[:-2], shape[-1], shape[-2]), of).swapaxes(-1, -2)
    return rng.standard_normal(shape).astype(of)


BATCHES = [
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((5, 7), (2, 3, 7, 4)),
    ((4, 1, 7), (7, 4)),
    ((2, 3, 1, 7), (7, 4)),
    ((1, 5, 7), (3, 7, 4)),
    ((2, 0, 5, 7), (1, 7, 4)),
]

VIEWS = {
    "every other row": lambda x: x[::2],
    "every other column": lambda x: x[:, ::2],
    "columns in the middle": lambda x: x[:, 3:-2],
    "backwards": lambda x: x[::-1, ::-1],
    "broadcast row": lambda x: np.broadcast_to(x[:1], (9, x.shape[1])),
    "broadcast column": lambda x: np.broadcast_to(x[:, :1], (x.shape[0], 9)),
}


def check_halves(made: Kernel, *operands: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
    """f32 sums and one rounding of the result: the error of f32 NumPy on the same halves, and half an ulp.

    `vdpbf16ps` adds two exact products to an f32 sum with a rounding each, as the sequential f32 sum does; it takes subnormals
    for zeros (Intel's instruction set reference, volume 2, "VDPBF16PS"), which normal operands do not notice.
    """
    (found,) = made(*operands)
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype(found.dtype).name]
    bound = error_bound(single, exact) + unit * (1 + 2.0**-8) * np.abs(exact)
    assert (np.abs(found.astype(np.float64) - exact) <= bound).all()
    assert np.array_equal(made(*operands, threads=3)[0].view(np.uint16), found.view(np.uint16)), "threads change no bit"
