"""Products of codes with scales for each block: every number of bits, bound and not, equal bits on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from harness import EVERY_QUAD, WIDTHS, kernel
from hosts import HOSTS, Row, made_for
from sized import code_of

import rlx_core as rlx
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Builder
from rlx_core.ops.block_scaled import BlockScaledMatMul
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.optimise import assembly, new_module
from rlx_cpu.native.products.block_scaled import CodeLayout, block_scaled_matmul

WEIGHT, SCALES, OFFSETS = 2, 3, 4


def arrays(
    bits: int, dtype: str, *, m: int, n: int, k: int, block: int, scales: str = "f4", offsets: bool = False
) -> list[np.ndarray]:
    """Operands: the first row of x and of the weight have the codes of the largest magnitude."""
    rng = np.random.default_rng([bits, m, n, k, block])
    low, high = (0, 2**bits - 1) if dtype == "u1" else (-128, 127)
    x, codes = rng.integers(-127, 128, (m, k)), rng.integers(low, high + 1, (n, k))
    x[0], codes[0] = -128, high if dtype == "u1" else low
    if bits <= 4:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    result = [
        x.astype("i1"),
        rng.standard_normal((m, k // block)).astype("f4"),
        codes.astype(dtype),
        rng.standard_normal((n, k // block)).astype(scales),
    ]
    return [*result, rng.standard_normal((n, k // block)).astype("f4")] if offsets else result


def expected(
    op: BlockScaledMatMul, x: np.ndarray, t: np.ndarray, weight: np.ndarray, u: np.ndarray, *offsets: np.ndarray
) -> np.ndarray:
    """The definition with NumPy: sums of integers, then one product, product and sum in f32 for each block."""
    blocks, n = t.shape[-1], len(weight)
    codes = np.stack([weight & 15, weight >> 4], -1).reshape(n, -1) if op.bits <= 4 else weight
    xs, ws = (each.astype("i8").reshape(len(each), blocks, -1) for each in (x, codes))
    sums = np.einsum("mjk,njk->jmn", xs, ws - op.zero).astype("f4")
    y = np.zeros((len(x), n), "f4")
    for j in range(blocks):
        y = y + sums[j] * (t[:, j, None] * u.astype("f4")[:, j])
        for each in offsets:
            y = y + (xs[:, j].sum(-1).astype("f4") * t[:, j])[:, None] * each[:, j]
    return y


CASES = [
    (4, 8, "u1", 32, "f2", False),
    (4, 0, "u1", 32, "f4", True),
    (4, 8, "u1", 8, "f4", False),
    (2, 1, "u1", 256, "f2", False),
    (3, 0, "u1", 16, "f4", True),
    (5, 16, "u1", 32, "f2", False),
    (5, 0, "u1", 32, "f4", True),
    (6, 32, "u1", 16, "f4", False),
    (7, 0, "u1", 12, "f4", False),
    (8, 0, "i1", 32, "f2", False),
    (8, 0, "u1", 32, "f4", True),
    (8, 255, "u1", 6, "f4", False),
    (8, 0, "i1", 256, "f4", False),
    (8, 0, "i1", 2, "f4", False),
]


@EVERY_QUAD
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "input"])
@pytest.mark.parametrize(("bits", "zero", "dtype", "block", "scales", "offsets"), CASES)
def test_products_have_the_bits_of_the_definition(
    bits: int, zero: int, dtype: str, block: int, scales: str, offsets: bool, is_bound: bool, isa: Isa
) -> None:
    op = BlockScaledMatMul(bits=bits, zero=zero)
    for m, n in ((1, 16), (5, 21)):
        operands = arrays(bits, dtype, m=m, n=n, k=3 * block, block=block, scales=scales, offsets=offsets)
        bound = (WEIGHT, SCALES, OFFSETS) if is_bound else ()
        compiled = kernel(block_scaled_matmul, op, operands, isa, bound=bound)
        assert len(compiled.emitted.packs) == (len(operands) - 2 if is_bound else 0)
        for threads in (1, 3):
            (y,) = compiled(*operands, threads=threads)
            np.testing.assert_array_equal(y, expected(op, *operands))


@EVERY_QUAD
def test_one_scale_for_a_long_row(isa: Isa) -> None:
    """Blocks of many vectors are a loop; sums of the largest codes do not overflow."""
    for bits, dtype in ((4, "u1"), (6, "u1"), (8, "i1")):
        operands, op = arrays(bits, dtype, m=2, n=9, k=4096, block=4096), BlockScaledMatMul(bits=bits)
        compiled = kernel(block_scaled_matmul, op, operands, isa, bound=(WEIGHT, SCALES))
        np.testing.assert_array_equal(compiled(*operands)[0], expected(op, *operands))


def test_one_code_serves_any_number_of_rows() -> None:
    """Also of rows in groups of every size; offsets and codes of eight bits have a workspace that grows with the rows."""
    for bits, zero, dtype, offsets in ((4, 8, "u1", False), (4, 0, "u1", True), (8, 0, "i1", False)):
        x, t, *weight = arrays(bits, dtype, m=9, n=21, k=64, block=32, offsets=offsets)
        types = rlx.spec("i8[n, 64]"), rlx.spec("f32[n, 2]")
        op = BlockScaledMatMul(bits=bits, zero=zero)
        function = rlx.compile(lambda w, x, t, op=op: op(x, t, *w), weight, *types, target="cpu")
        for m in (1, 2, 3, 4, 5, 9):
            np.testing.assert_array_equal(function(x[:m], t[:m]), expected(op, x[:m], t[:m], *weight))
            code = code_of(function)
            assert code.for_all == frozenset(code.steps)


def test_codes_of_four_bits_are_stored_in_four_bits() -> None:
    operands = arrays(4, "u1", m=1, n=64, k=256, block=32, scales="f2")
    compiled = kernel(block_scaled_matmul, BlockScaledMatMul(bits=4), operands, WIDTHS[0], bound=(WEIGHT, SCALES))
    weight, scales = compiled.emitted.packs
    assert (weight.nbytes, scales.nbytes) == (64 * 256 // 2, 64 * 8 * 2)


@pytest.mark.parametrize("bits", range(2, 9))
def test_sums_of_sixteen_bits_do_not_overflow(bits: int) -> None:
    codes = CodeLayout.of(BlockScaledMatMul(bits=bits))
    if codes.per_word == 4:
        assert codes.run(1 << 12) * codes.per_byte * 2 * 128 * (2**bits - 1) < 2**15


@pytest.mark.parametrize("bits", [4, 6, 8])
@pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.name)
def test_instructions(row: Row, bits: int) -> None:
    """Four bytes are one instruction where there is one, pairs of bytes without sign by such with sign on AVX2 and AVX-512; no
    processor adds a product without rounding it."""
    with made_for(row) as isa:
        codes = {4: "u8[64, 32]", 6: "u8[64, 64]", 8: "i8[64, 64]"}[bits]
        types = [rlx.spec(t) for t in ("i8[1, 64]", "f32[1, 2]", codes, "f16[64, 2]", "f32[64, 2]")]
        builder = Builder()
        op = BlockScaledMatMul(bits=bits, zero=0 if bits == 8 else 8)
        node = builder.emit(op, [builder.input(f"x{i}", t) for i, t in enumerate(types)])[0].node
        module = new_module("kernel", isa)
        layout = Layout(tuple(map(Place.dense, types)), tuple(map(Place.dense, node.types)))
        block_scaled_matmul(module, node, layout, isa, "kernel")
        text = assembly(module, isa)
    # Codes without sign are multiplied by codes with sign where that is one instruction.
    dot = {"vpdpbssd": "vpdpbusd", "sdot": "usdot" if "i8mm" in isa.dots else "sdot"}.get(str(row.dot), row.dot)
    dot = row.dot if bits == 8 else dot
    assert dot is None or dot in text
    assert ("vpmaddubsw" in text) == (dot is None and bits < 8 and isa.arch == "x86_64" and isa.vector_bytes > 16)
    assert ("pmaddwd" in text) == (dot is None and isa.arch == "x86_64")
    assert not any(name in text for name in ("fmadd", "fmla", "fmsub"))
