"""Packed copies of weights: executables that are bound to the same read-only array share them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.quantization import QuantizedArray, quantize
from rlx_cpu.native.runtime import native_steps

X = np.random.default_rng(0).standard_normal((40, 96)).astype("f4")


def weight(*, read_only: bool = True) -> np.ndarray:
    w = np.random.default_rng(1).standard_normal((96, 64)).astype("f4")
    w.flags.writeable = not read_only
    return w


def bound(function: Any, w: Any) -> Any:
    made = rlx.compile(function, w, rlx.spec("f32[40, 96]"), target="cpu")
    np.testing.assert_allclose(made(X), function(np.asarray(w), X), atol=1e-4)
    return made


def packed(function: Any) -> list[np.ndarray]:
    return [*function.executable._shared.checked.prepared.packed.values()]


@pytest.mark.parametrize("wrap", [lambda w: w, rlx.asarray, lambda w: w.view()], ids=["NumPy", "rlx", "view"])
def test_two_programs_with_one_read_only_weight_have_one_packed_copy(wrap: Any) -> None:
    w = wrap(weight())
    first, second = bound(lambda w, x: x @ w, w), bound(lambda v, x: (x @ v) * 2, w)
    (one,), (other,) = packed(first), packed(second)
    assert one is other


def test_arrays_that_can_be_written_to_have_copies_of_their_own() -> None:
    w = weight(read_only=False)
    first, second = bound(lambda w, x: x @ w, w), bound(lambda w, x: (x @ w) * 2, w)
    (one,), (other,) = packed(first), packed(second)
    assert not np.shares_memory(one, other)
    view = w.view()
    view.flags.writeable = False  # the array that it is a view of is not
    third = bound(lambda w, x: (x @ w) * 3, view)
    w *= 2
    fourth = bound(lambda w, x: (x @ w) * 4, view)
    assert not np.shares_memory(packed(third)[0], packed(fourth)[0])


def blocks(rows: int, scheme: str = "q4_0", columns: int = 96) -> tuple[QuantizedArray, QuantizedArray]:
    """Return a weight as dense fields, and as read-only views of the bytes of a file."""
    dense = quantize(np.random.default_rng(2).standard_normal((rows, columns)).astype("f4"), scheme)
    raw = np.frombuffer(dense.scheme.bytes_of(dense.fields).tobytes(), np.uint8).reshape(rows, -1)
    return dense, QuantizedArray(dense.scheme.fields_of(raw), dense.scheme)


def product(w: Any, x: Any) -> Any:
    return x @ w.dequantize().T


@pytest.mark.parametrize("rows", [40, 3000], ids=["one copy", "copies of several panels"])
def test_fields_with_strides_are_packed_where_they_lie(rows: int) -> None:
    dense, views = blocks(rows)
    assert not any(each.flags.c_contiguous for each in views.fields.values())
    programs = [rlx.compile(product, w, rlx.spec("f32[n, 96]"), target="cpu") for w in (dense, views, views)]
    expected, *found = [np.asarray(each(X)) for each in programs]
    assert all(np.array_equal(each, expected) for each in found)
    checked = programs[1].executable._shared.checked.prepared
    assert not checked.on_host, "no dense copy is kept"
    assert {id(each) for each in packed(programs[1])} == {id(each) for each in packed(programs[2])}


def test_fields_with_strides_that_code_reads_have_one_dense_copy_for_all_sizes() -> None:
    dense, views = blocks(2000)
    lookup = rlx.compile(lambda w, i: nn.embedding(i, w.dequantize()), views, rlx.spec("i64[n]"), target="cpu")
    for indices in ([3], [3, 49, 0]):
        assert np.array_equal(np.asarray(lookup(np.array(indices))), np.asarray(dense.dequantize())[indices])
    copies = lookup.executable._shared.checked.prepared.on_host
    assert {each.nbytes for each in copies.values()} == {each.nbytes for each in dense.fields.values()}
    assert all(each.flags.c_contiguous for each in copies.values())


def test_steps_of_the_host_and_outputs_get_fields_with_strides() -> None:
    w = np.arange(60, dtype="f4").reshape(3, 20)[:, ::2]
    w.flags.writeable = False
    made = rlx.compile(lambda w, x: (rlx.linalg.svdvals(w), w, x + 1), w, rlx.spec("f32[]"), target="cpu")
    values, same, _ = made(np.float32(1))
    np.testing.assert_allclose(np.asarray(values), np.linalg.svd(w, compute_uv=False), rtol=1e-5, atol=1e-4)
    assert np.array_equal(np.asarray(same), w)


@pytest.mark.slow
def test_packed_copies_are_freed_with_the_last_program() -> None:
    w = weight()

    def copies() -> int:
        gc.collect()
        return sum(key[0] == id(w) for key in native_steps._shared_packed)

    programs = [bound(lambda w, x, k=k: (x @ w) * k, w) for k in (5, 6)]
    assert copies() == 1
    programs.clear()
    assert copies() == 0


@pytest.mark.slow
def test_other_weights_of_the_same_place_are_packed_anew() -> None:
    """The identity of an array may come again once it is gone, and then belongs to other elements."""
    for seed in range(8):
        w = np.random.default_rng(seed).standard_normal((96, 64)).astype("f4")
        w.flags.writeable = False
        made = bound(lambda w, x: x @ w, w)
        del w, made
        gc.collect()
