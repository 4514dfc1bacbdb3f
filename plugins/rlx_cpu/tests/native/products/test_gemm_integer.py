"""Products of integers: they wrap in their own width, or are summed in a wider one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import integers_of, kernel
from hosts import HOSTS, Row, made_for
from quads import as_on, runs_here
from sized import code_of

import rlx_core as rlx
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import DType, dtype, i32, i64, u32
from rlx_core.ir.graph import Builder
from rlx_core.ir.types import TensorType
from rlx_core.ops.linalg import MatMul
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.llvm.optimise import assembly, new_module
from rlx_cpu.native.products.gemm_integer import integer_matmul, integer_matmul_pairs

EVERY_HOST = pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.name)
INTEGER_DTYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
PAIRED = ["i8", "u8", "i16"]


def emitter(of: str, wider: DType | None = None) -> Emit:
    return integer_matmul_pairs if of in PAIRED and (wider or i32).itemsize <= 4 else integer_matmul


def anything(of: str, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(dtype(of).numpy)
    return np.random.default_rng(17).integers(limits.min, limits.max, shape, dtype(of).numpy, endpoint=True)


def product(a: np.ndarray, b: np.ndarray, wide: DType) -> np.ndarray:
    """The product modulo 2^bits."""
    with np.errstate(over="ignore"):
        return a.astype(np.int64).astype(wide.numpy) @ b.astype(np.int64).astype(wide.numpy)


@integers_of(*INTEGER_DTYPES)
def test_integer_products_wrap_in_their_own_width(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(17)
    of_numpy = dtype(of).numpy
    limits = np.iinfo(of_numpy)
    for m, n, k, is_transposed in (
        (5, 70, 9, False),
        (4, 64, 300, True),
        (1, 3, 2, True),
        (0, 3, 2, False),
        (2, 3, 0, False),
    ):
        a, b = (rng.integers(limits.min, limits.max, shape, of_numpy, endpoint=True) for shape in ((m, k), (n, k)))
        b = b.T if is_transposed else np.ascontiguousarray(b.T)
        made = kernel(emitter(of), MatMul(), [a, b], isa)
        with np.errstate(over="ignore"):
            expected = a @ b
        for threads in (1, 3):
            assert np.array_equal(made(a, b, threads=threads)[0], expected)


@integers_of("i8", "u8", "i16", "i8", "i32", more="wider", values=(i32, i32, u32, i64, i64))
def test_integer_products_may_be_summed_in_a_wider_dtype(isa: Isa, of: str, wider: Any) -> None:
    rng = np.random.default_rng(18)
    limits = np.iinfo(dtype(of).numpy)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype(of).numpy) for shape in ((2, 3, 9, 31), (3, 31, 21)))
    (found,) = kernel(emitter(of, wider), MatMul(acc_dtype=wider), [a, b], isa)(a, b)
    assert np.array_equal(found, a.astype(wider.numpy) @ b.astype(wider.numpy))


def spread(x: np.ndarray) -> np.ndarray:
    """The same with every third row and every second column of a larger array."""
    larger = np.zeros((3 * x.shape[0], 2 * x.shape[1]), x.dtype)
    larger[::3, ::2] = x
    return larger[::3, ::2]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "dense": np.ascontiguousarray,
    "transposed": np.asfortranarray,
    "spread": spread,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
}


@integers_of(*PAIRED)
def test_pairs_of_every_small_size_and_layout(isa: Isa, of: str) -> None:
    for number, size in list(enumerate(range(1, 21)))[:: 1 if runs_here(isa) else 3]:
        m, n, k = size, 21 - size, 7 * size % 20 + 1
        left, right = (list(LAYOUTS.values())[(number + turn) % len(LAYOUTS)] for turn in (0, number // 4))
        a, b = left(anything(of, (m, k))), right(anything(of, (k, n)))
        for bound in ((), (1,)):
            made = kernel(integer_matmul_pairs, MatMul(acc_dtype=i32), [a, b], isa, bound=bound)
            (found,) = made(a, b)
            assert np.array_equal(found, product(a, b, i32)), (m, n, k, bound)


@integers_of(*PAIRED)
def test_pairs_in_blocks_of_terms(isa: Isa, of: str) -> None:
    """Sums that wait in the result, or elsewhere where that is narrower, for the next block of K; panels of all kinds."""
    for m, n, k, bound, layout in (
        (13, 40, 2501, (), "transposed"),
        (13, 40, 2501, (1,), "dense"),
        (33, 17, 1300, (), "dense"),
    ):
        a, b = anything(of, (m, k)), LAYOUTS[layout](anything(of, (k, n)))
        for wide in (i32, u32, dtype(of)):
            op = MatMul(acc_dtype=None if wide is dtype(of) else wide)
            made = kernel(integer_matmul_pairs, op, [a, b], isa, bound=bound)
            for threads in (1, 3):
                assert np.array_equal(made(a, b, threads=threads)[0], product(a, b, wide)), (m, n, k, wide)


@integers_of("i8", "u8", "i16", "i16", more="number", values=(-128, 255, -32768, 32767))
def test_sums_of_extreme_numbers_wrap(isa: Isa, of: str, number: int) -> None:
    """Nothing saturates: 200,000 products of the largest numbers leave 32 bits, and one pair of i16 does."""
    for k in (2, 3, 200_000):
        a, b = np.full((2, k), number, dtype(of).numpy), np.full((k, 9), number, dtype(of).numpy)
        (found,) = kernel(integer_matmul_pairs, MatMul(acc_dtype=i32), [a, b], isa, bound=(1,))(a, b)
        expected = (k * number * number + (1 << 31)) % (1 << 32) - (1 << 31)
        assert (found == expected).all()


def test_a_bound_operand_of_bytes_is_packed_in_bytes() -> None:
    a, b = anything("i8", (3, 64)), anything("i8", (64, 48))
    isa = available()[0]
    (pack,) = kernel(integer_matmul_pairs, MatMul(acc_dtype=i32), [a, b], isa, bound=(1,)).emitted.packs
    assert (pack.form, pack.nbytes) == ("pairs", 64 * 48)


@pytest.mark.skipif(all(isa.name != "avx2" for isa in available()), reason="code for AVX2 runs on x86 with AVX2 alone")
@pytest.mark.parametrize("of", ["i8", "u8"])
def test_one_code_serves_any_number_of_rows_of_whole_words(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bytes are multiplied as they lie in memory; with flipped bits, rows are copied and each number is compiled."""
    b = anything(of, (64, 70))
    for dots, is_one in ((("avxvnniint8", "avxvnni"), True), (("avxvnni",), False)):
        with as_on(dots, monkeypatch):
            op = MatMul(acc_dtype=i32)
            # The instructions of both sets have vectors of 32 bytes, also where the processor has longer ones.
            function = rlx.compile(
                lambda b, a, op=op: op(a, b),
                b,
                rlx.spec(f"{of}[n, 64]"),
                target="cpu",
                config={"options": {"cpu.isa": "avx2"}},
            )
            for m in (1, 3, 6, 13):
                a = anything(of, (m, 64))
                assert np.array_equal(function(a), product(a, b, i32)), (dots, m)
            code = code_of(function)
            assert (code.for_all == frozenset(code.steps)) == is_one


UNSIGNED = {"vpdpbusd": "vpdpbusd", "vpdpbssd": "vpdpbuud", "sdot": "udot", None: None}
"""The instruction for bytes with sign → the one for bytes without."""


def innermost(text: str, instruction: str) -> int:
    """How often an instruction occurs between a label and a jump back to it, in the loop that has most of them."""
    lines = [line.strip() for line in text.splitlines()]
    labels = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith(".L") and ":" in line}
    loops = (
        lines[labels[target] : end + 1]
        for end, line in enumerate(lines)
        if (target := re.split(r"[\s,]+", line)[-1]) in labels and labels[target] <= end
    )
    return max((sum(instruction in line for line in loop) for loop in loops), default=0)


@EVERY_HOST
@pytest.mark.parametrize("of", PAIRED)
def test_instructions_of_products(row: Row, of: str) -> None:
    """One instruction for four bytes where the processor has it; for a pair of i16 one on x86, which LLVM makes the one that
    adds as well where the processor has VNNI."""
    dot = {"i8": row.dot, "u8": UNSIGNED[row.dot], "i16": None}[of]
    with made_for(row) as isa:
        types = [TensorType(dtype(of), (37, 64)), TensorType(dtype(of), (64, 100))]
        builder = Builder()
        node = builder.emit(MatMul(acc_dtype=i32), [builder.input(f"x{i}", t) for i, t in enumerate(types)])[0].node
        module = new_module("kernel", isa)
        layout = Layout((Place.dense(types[0]), Place(types[1], Place.dense(types[1]).strides, is_bound=True)),
                        tuple(map(Place.dense, node.types)))  # fmt: skip
        emitted = integer_matmul_pairs(module, node, layout, isa, "kernel")
        text = assembly(module, isa)
    has_vnni = "avx512vnni" in row.host.features
    wanted = dot or ("mla" if isa.arch == "aarch64" else "vpdpwssd" if has_vnni else "pmaddwd")
    assert innermost(text, wanted) >= 8
    assert emitted.notes["products"] == ("pairs of i16" if dot is None else f"quads of {of}")
    if dot is not None:
        assert not re.search("pmaddwd|vpdpwssd", text)
        (pack,) = emitted.packs
        assert pack.form == ("corrected quads" if dot == "vpdpbusd" else "quads")
