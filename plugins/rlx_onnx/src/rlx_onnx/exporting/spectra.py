"""Export of complex numbers and Fourier transforms: complex values are tensors of pairs, real parts first, as for DFT."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlx_core.emit.complex_parts import complex_parts
from rlx_core.errors import UnsupportedError
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.graph import Graph, Node, graph_of
from rlx_onnx.exporting.writer import Writer, emits, rows


def has_complex(node: Node) -> bool:
    """Return whether a node takes or gives complex numbers."""
    return any(each is not None and each.dtype.is_complex for each in (*node.operand_types, *node.types))


def in_parts(node: Node) -> Graph | None:
    """Return a node of complex numbers as arithmetic of their parts, for ops that are not exported on pairs directly."""
    rule = complex_parts.find(node.op)
    if rule is None or any(each is None for each in node.operand_types):
        return None
    types = [each for each in node.operand_types if each is not None]
    refused = []

    def parts(*x: Any) -> Any:
        result = rule(node.op, *x)
        if result is None:
            refused.append(node.op)
        return x if result is None else result

    graph = graph_of(node.op.name, types, parts)
    return None if refused else graph


def pairs_of(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs; others as they are."""
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array


rows(
    {
        "rlx.view_as_real rlx.view_as_complex": lambda w, node, x: w("Identity", x),
        "rlx.real rlx.imag": lambda w, node, z: w(
            "Gather", z, w.constant(int(node.op.name == "rlx.imag"), np.int64), axis=-1
        ),
    }
)


@emits("rlx.make_complex")
def make_complex(w: Writer, node: Any, re: str, im: str) -> Any:
    shape = node.type.shape
    sides = []
    for name, type in zip((re, im), node.operand_types, strict=True):
        dtype = w.cast(name, node.type.dtype.component) if type.dtype is not node.type.dtype.component else name
        full = dtype if type.shape == shape else w("Expand", dtype, w.shape(shape))
        sides.append(w("Unsqueeze", full, w.ints([-1])))
    return w("Concat", *sides, axis=-1)


@emits("rlx.fft")
def fft(w: Writer, node: Any, z: str) -> Any:
    sizes = node.op.along(node.operand_types[0].shape)
    result = _transformed(w, node, z, node.op.axes, is_inverse=node.op.inverse)
    return _scaled(w, node, result, sizes, is_inverse=node.op.inverse)


@emits("rlx.real_fft")
def real_fft(w: Writer, node: Any, x: str) -> Any:
    *others, last = node.op.axes
    sizes = node.op.along(node.operand_types[0].shape)
    half = w("DFT", w("Unsqueeze", x, w.ints([-1])), "", _axis(w, node, last), onesided=1)
    return _scaled(w, node, _transformed(w, node, half, others, is_inverse=False), sizes, is_inverse=False)


@emits("rlx.inverse_real_fft")
def inverse_real_fft(w: Writer, node: Any, z: str) -> Any:
    """Emit the transform of the full spectrum: onnxruntime has no inverse of half of one."""
    n, (*others, last) = node.op.n, node.op.axes
    if not isinstance(n, int):
        raise UnsupportedError(f"real numbers of a spectrum, {n} of them, are not written", hint="a size that is known")
    sizes = (*(node.operand_types[0].shape[axis] for axis in others), n)
    half = _transformed(w, node, z, others, is_inverse=True)
    mirrored = (n + 1) // 2 - 1
    axis = last % node.type.rank
    if mirrored:
        remaining = w("Slice", half, w.ints([mirrored]), w.ints([0]), w.ints([axis]), w.ints([-1]))
        sign = w.constant([1, -1], node.type.dtype.numpy)
        half = w("Concat", half, w("Mul", remaining, sign), axis=axis)
    full = w("DFT", half, "", w.constant(axis, np.int64), inverse=1)
    real = w("Gather", full, w.constant(0, np.int64), axis=-1)
    return _scaled(w, node, real, sizes, is_inverse=True)


PAIRS: Final = frozenset(
    {f"rlx.{each}" for each in ("view_as_real", "view_as_complex", "real", "imag", "make_complex")}
    | {f"rlx.{each}" for each in ("fft", "real_fft", "inverse_real_fft")}
)
"""Ops whose complex operands and results are written as pairs; others are written in the parts of theirs."""


def _axis(w: Writer, node: Any, axis: int) -> str:
    """Emit an axis of complex numbers, which are exported as pairs."""
    return w.constant(axis % node.type.rank, np.int64)


def _transformed(w: Writer, node: Any, z: str, axes: Any, *, is_inverse: bool) -> str:
    for axis in axes:
        z = w("DFT", z, "", _axis(w, node, axis), inverse=int(is_inverse))
    return z


def _scaled(w: Writer, node: Any, y: str, sizes: tuple[Dim, ...], *, is_inverse: bool) -> str:
    """A transform with another factor in front than ONNX's, which is 1/n of the inverse."""
    if node.op.norm == "backward":
        return y
    to = node.type.dtype.component if node.type.dtype.is_complex else node.type.dtype
    n = w.cast(w.count(product(sizes)), to)
    n = w("Sqrt", n) if node.op.norm == "ortho" else n
    result: str = w("Mul" if is_inverse else "Div", y, n)
    return result
