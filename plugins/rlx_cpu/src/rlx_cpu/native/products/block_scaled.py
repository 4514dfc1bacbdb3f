"""Products of codes with scales for each block (`BlockScaledMatMul`), with one row of the weight in each lane.

Rows of the weight are interleaved when they are bound: a tile has as many rows as a vector has lanes, and its codes lie as words
of four neighbours along k, one for each row, so that no sum is over lanes. Codes of four bits lie two words to a word's bytes;
codes of eight bits are words of two, widened to i16, or of four. Each word of x is broadcast and multiplied by a vector of words:

* codes of at most seven bits: `vpmaddubsw` adds two products in 16 bits, and as many of these are added as cannot
  overflow before they are widened to 32 bits;
* codes of eight bits: pairs of i16, as in other products of integers (`llvm.words`);
* on processors with an instruction for products of four bytes (`Isa.quad_product`): that one, for codes of any number of bits.
  Where it needs bytes with the other sign, the sign bits of codes of eight bits are flipped, and the zero point is 128 more or
  less.

All are exact, so that every instruction set computes the same sums, in the order of the op's definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Final

from rlx_core.codegen.cuts import Cut, cut, numbers, unknown_cut
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType, f32, i8, i32, u8
from rlx_core.ir.graph import Node
from rlx_core.ops.block_scaled import BlockScaledMatMul
from rlx_core.pipeline.kernels import Condition
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import MOST_PARTS, Call, Emitted, KernelForm, Pack, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I8, I16, I32, KERNEL, Variable, least, shuffled
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.elements import load_elements
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa, QuadProduct
from rlx_cpu.native.llvm.simd import Simd, counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.sizes import sized as size_value
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words, multiply_add_quads
from rlx_cpu.native.table import native, op_of

X, X_SCALES, WEIGHT, SCALES, OFFSETS = range(5)
"""The operands."""

ROWS = 4
"""Rows of x that are multiplied by a vector of codes once it is unpacked."""

ANY_ROWS: Final = unknown("rows")
"""The number of rows of x, in code for any number."""

WRITTEN_OUT = 4
"""Runs of a block up to which their code is repeated instead of a loop."""

QUAD = 4
"""Codes of a word of four bytes."""

MAX_BLOCK = (2**31 - 1) // (128 * 255)
"""Elements of a block whose sum of products i32 holds."""

Values = list[ir.LlvmValue]


@frozen
class CodeLayout:
    """How codes of some bits lie in a tile.

    Attributes:
        bits: Bits of a code.
        per_word: Codes of one row in a word, neighbours along k.
        per_byte: Codes in a byte: those of one word in its low half, those of the next in its high half.
    """

    bits: int
    per_word: int
    per_byte: int

    @classmethod
    def of(cls, op: BlockScaledMatMul, *, has_quads: bool = False) -> CodeLayout:
        """Return the layout of the codes of an op; with `has_quads`, all words are of four."""
        return cls(op.bits, 2 if op.bits == 8 and not has_quads else 4, op.per_byte)

    @property
    def terms(self) -> int:
        """Codes of a row that one vector has."""
        return self.per_word * self.per_byte

    def run(self, block: int, *, is_wide: bool = False) -> int:
        """Return the number of vectors of a block whose products are added before they are widened to 32 bits.

        Args:
            is_wide: Whether products are added in 32 bits, so that the number only bounds the code.
        """
        is_wide = is_wide or self.per_word == 2
        limit = (16 if is_wide else 32767 // (2 * 128 * (2**self.bits - 1))) // self.per_byte
        vectors = block // self.terms
        return max(n for n in range(1, min(limit, vectors) + 1) if vectors % n == 0)


def quad_of(op: BlockScaledMatMul, codes: DType, isa: Isa) -> QuadProduct | None:
    """Return the instruction that multiplies words of codes and of x, if there is one; codes of seven bits have any sign."""
    either = (codes,) if op.bits == 8 else (u8, i8)
    candidates = [quad for dtype in either if (quad := isa.quad_product(dtype, i8)) is not None]
    return min(candidates, key=lambda quad: quad.flips, default=None)


def is_static(node: Node) -> bool:
    """Return whether the sizes of the weight are known."""
    return all(v.type.is_static for v in list(node.present())[WEIGHT:])


def has_words(node: Node) -> bool:
    """Return whether each block has vectors of codes, as many as i32 holds the sum of."""
    if not is_static(node):
        return False
    op = op_of(node, BlockScaledMatMul)
    _, _, weight, scales, *_ = node.present()
    k, blocks = weight.type.static_shape[1] * op.per_byte, scales.type.static_shape[1]
    return 0 < blocks <= k <= blocks * MAX_BLOCK and k // blocks % CodeLayout.of(op).terms == 0


has_whole_words = Condition(
    "a weight of known sizes, in blocks of a multiple of 8 codes of up to 4 bits, 4 codes of up to 7 bits, or 2 of 8 bits",
    has_words,
    is_settled=is_static,
)


def sized(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm:
    """Finds the form of a product of any number of rows."""

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        known = BlockScaled.of(node, layout, ir.Module("form"), isa, "")
        if not known.m:
            return None
        values = said(rows=known.m, **numbers("tiles", known.rows))
        return Call(
            values,
            shared_workspace=known.scratch_nbytes,
            uses_threads=known.uses_threads,
            parts=known.parts,
        )

    def emit(module: ir.Module, name: str) -> Emitted:
        known = BlockScaled.of(node, layout, module, isa, name)
        emitted = evolve(known, m=ANY_ROWS, rows=unknown_cut("tiles", ROWS)).emit()
        return evolve(emitted, shared_workspace=int(bool(known.scratch)))

    weights = [None if p is None else (p.type, p.is_bound) for p in layout.operands[WEIGHT:]]
    return KernelForm(f"{node.op!r} {weights}", call, emit)


@native.register(BlockScaledMatMul, when=has_whole_words, accepts_strides=False, sized=sized)
def block_scaled_matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Broadcast words of x times interleaved rows of the weight."""
    return BlockScaled.of(node, layout, module, isa, name).emit()


@frozen(eq=False, slots=False)
class BlockScaled:
    """One product while its functions are emitted.

    Attributes:
        zero: Subtracted from codes.
        codes: How they lie in a tile.
        quad: The instruction that multiplies words of four codes, the first factor, and of x.
        words: Pairs of i16, and the vectors of i32.
        places: The operands, `None` for absent offsets.
        m, n, k, blocks: Sizes: rows of x, rows of the weight, columns of both, and blocks of these.
        rows: The rows of x in groups that are multiplied together.
        operands: Number of operands of the node, absent ones among them.
    """

    module: ir.Module
    isa: Isa
    name: str
    zero: int
    codes: CodeLayout
    quad: QuadProduct | None
    words: Words
    places: tuple[Place | None, ...]
    m: int
    rows: Cut
    n: int
    k: int
    blocks: int
    operands: int

    @classmethod
    def of(cls, node: Node, layout: Layout, module: ir.Module, isa: Isa, name: str) -> BlockScaled:
        """Return the product of a node with known sizes."""
        places = (*layout.operands, None)[: OFFSETS + 1]
        x, weight, scales = layout.required(X, WEIGHT, SCALES)
        *rows, k = x.type.static_shape
        n, blocks = scales.type.static_shape
        op, operands, dtype = op_of(node, BlockScaledMatMul), len(layout.operands), weight.type.dtype
        m, words = prod(rows), Words(Stored(Simd(module, isa, i32), dtype), 2)
        quad = quad_of(op, dtype, isa) if blocks and k // blocks % QUAD == 0 else None
        codes, zero = CodeLayout.of(op, has_quads=quad is not None), op.zero
        if quad is not None and quad.flips:
            zero += 128 if dtype is i8 else -128
        return cls(module, isa, name, zero, codes, quad, words, places, m, cut(m, ROWS), n, k, blocks, operands)

    @cached_property
    def floats(self) -> Simd:
        return Simd(self.module, self.isa, f32)

    @property
    def lanes(self) -> int:
        return self.floats.lanes

    @property
    def tiles(self) -> int:
        return -(-self.n // self.lanes)

    @property
    def block(self) -> int:
        """Elements of a block."""
        return self.k // self.blocks

    @property
    def vector_nbytes(self) -> int:
        """Bytes of a vector of codes."""
        return self.lanes * self.codes.per_word

    @cached_property
    def arranged(self) -> dict[int, int]:
        """The operands that are read by tiles, with the bytes of a tile."""
        weight = self.k // self.codes.terms * self.vector_nbytes
        others = {i: p for i, p in enumerate(self.places) if i in (SCALES, OFFSETS) and p is not None}
        return {WEIGHT: weight, **{i: self.blocks * self.lanes * p.type.dtype.itemsize for i, p in others.items()}}

    @property
    def products(self) -> int:
        """Multiply-adds, of known sizes."""
        return self.m * self.n * self.k

    @property
    def uses_threads(self) -> bool:
        return self.products >= self.isa.machine.serial_products

    @property
    def parts(self) -> int:
        items = self.tiles * self.rows.pieces
        return max(1, min(MOST_PARTS, items, self.products // self.isa.machine.products.part_products))

    def place(self, operand: int) -> Place:
        place = self.places[operand]
        assert place is not None, "it is present"
        return place

    # ------------------------------------------------------------------------------------- memory

    @cached_property
    def scratch(self) -> dict[str, tuple[int, int]]:
        """Where the parts of the shared workspace begin and end: computed before the product, from x and operands not bound."""
        sizes: dict[str, int] = {}
        for operand, nbytes in self.arranged.items():
            if not self.place(operand).is_bound:
                sizes[f"operand {operand}"] = aligned(self.tiles * nbytes)
        if self.codes.per_word == 2:
            sizes["pairs"] = 2 * self.m * self.k
        if self.zero:
            sizes["sums"] = 4 * self.m * self.blocks
        if self.places[OFFSETS] is not None:
            sizes["scaled sums"] = 4 * self.m * self.blocks
        ends: dict[str, tuple[int, int]] = {}
        end = 0
        for key, size in sizes.items():
            ends[key] = end, end + size
            end = end + size
        return ends

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of the shared workspace."""
        *_, (_, end) = ((0, 0), *self.scratch.values())
        return end

    def packs(self) -> tuple[Pack, ...]:
        """The operands that are arranged when they are bound."""
        codes, result = self.codes, list[Pack]()
        for operand, nbytes in self.arranged.items():
            if self.place(operand).is_bound:
                is_weight = operand == WEIGHT
                sizes = (self.lanes, codes.per_word, codes.per_byte) if is_weight else (self.lanes, 1, 1)
                result.append(Pack(operand, self.tiles * nbytes, "interleaved", sizes))
        return tuple(result)

    def pointers(self, b: ir.IRBuilder, buffers: ir.LlvmValue) -> dict[str, ir.LlvmValue]:
        """The addresses of operands read by tiles, the parts of the workspace, x, its scales and the result."""
        first = self.operands + 1
        result = {"x": pointer_at(b, buffers, X), "x scales": pointer_at(b, buffers, X_SCALES)}
        result["y"] = pointer_at(b, buffers, self.operands)
        if self.scratch:
            shared = pointer_at(b, buffers, first)
            result |= {key: offset(b, shared, start) for key, (start, _) in self.scratch.items()}
            first += 1
        for number, pack in enumerate(self.packs()):
            result[f"operand {pack.operand}"] = pointer_at(b, buffers, first + number)
        return result

    # ------------------------------------------------------------------------------------- functions

    def emit(self) -> Emitted:
        """Add the functions to the module."""
        b = ir.new_function(self.module, KERNEL, self.name)
        buffers, part, parts, _ = b.function.args
        pieces, has_items = self.rows.pieces, self.m != 0 and self.n != 0
        if has_items:
            addresses = self.pointers(b, buffers)
            with counting(b, *share(b, self.tiles * pieces, part, parts)) as item:
                tile, piece = b.sdiv(item, size_value(b, pieces)), b.srem(item, size_value(b, pieces))
                row = start_of(b, self.rows, piece)
                for rows in by_size(b, self.rows, piece):
                    self._tile(b, addresses, tile, row, rows)
        b.ret_void()
        return Emitted(
            self.name,
            packs=self.packs(),
            shared_workspace=self.scratch_nbytes if has_items and is_known(self.m) else 0,
            prologue=self._prologue() if has_items and self.scratch else None,
            uses_threads=self.uses_threads if is_known(self.m) else True,
            parts=self.parts if is_known(self.m) else 0,
            notes={"tile": f"{ROWS}x{self.lanes}", "codes": f"{8 // self.codes.per_byte} bits"},
        )

    def _prologue(self) -> str:
        """The function that computes the workspace."""
        name = f"{self.name}.prepare"
        b = ir.new_function(self.module, KERNEL, name)
        buffers, part, parts, _ = b.function.args
        addresses = self.pointers(b, buffers)
        for operand in self.arranged:
            if f"operand {operand}" in self.scratch:
                self._arrange(b, operand, pointer_at(b, buffers, operand), addresses[f"operand {operand}"], part, parts)
        if "pairs" in self.scratch or "sums" in self.scratch or "scaled sums" in self.scratch:
            with counting(b, *share(b, self.m * self.blocks, part, parts)) as number:
                self._prepare_block(b, addresses, number)
        b.ret_void()
        return name

    def _prepare_block(self, b: ir.IRBuilder, addresses: dict[str, ir.LlvmValue], number: ir.LlvmValue) -> None:
        """One block of x: its codes as i16, their sum times the zero point, and its scale times the sum."""
        total = Variable.of(b, ir.LlvmConstant(I32, 0))
        with counting(b, 0, self.block) as k:
            place = b.add(b.mul(number, index(self.block)), k)
            code = b.load(offset(b, addresses["x"], place), typ=I8, align=1)
            if "pairs" in addresses:
                b.store(b.sext(code, I16), offset(b, addresses["pairs"], (place, 2)), align=2)
            total.set(b, b.add(total.value(b), b.sext(code, I32)))
        if "sums" in addresses:
            scaled = b.mul(total.value(b), ir.LlvmConstant(I32, self.zero))
            b.store(scaled, offset(b, addresses["sums"], (number, 4)), align=4)
        if "scaled sums" in addresses:
            scale = self.floats.load_scalar(b, offset(b, addresses["x scales"], (number, 4)))
            product = b.fmul(b.sitofp(total.value(b), self.floats.element), scale)
            b.store(product, offset(b, addresses["scaled sums"], (number, 4)), align=4)

    def _arrange(
        self,
        b: ir.IRBuilder,
        operand: int,
        source: ir.LlvmValue,
        to: ir.LlvmValue,
        part: ir.LlvmValue,
        parts: ir.LlvmValue,
    ) -> None:
        """Interleave the rows of an operand that is not bound; rows beyond the last repeat it."""
        codes = self.codes if operand == WEIGHT else CodeLayout(8, 1, 1)
        place = self.place(operand)
        nbytes, columns = place.type.dtype.itemsize, place.type.static_shape[-1]
        kind = ir.IntType(8 * nbytes)
        per_word = codes.per_word
        with counting(b, *share(b, self.tiles, part, parts)) as tile, counting(b, 0, columns // per_word) as vector:
            start = offset(b, to, (tile, self.arranged[operand]), (vector, self.lanes * per_word * nbytes))
            with counting(b, 0, self.lanes) as lane:
                row = least(b, b.add(b.mul(tile, index(self.lanes)), lane), index(self.n - 1))
                read = offset(b, source, (row, columns * nbytes), (vector, per_word * nbytes))
                for number in range(per_word):
                    value = self._arranged(b, read, number, kind, codes.per_byte)
                    b.store(value, offset(b, start, (lane, per_word * nbytes), number * nbytes), align=nbytes)

    def _arranged(
        self, b: ir.IRBuilder, read: ir.LlvmValue, number: int, kind: ir.IntType, per_byte: int
    ) -> ir.LlvmValue:
        """An element of a word, or two codes of a byte: of this word, and of the next, as many bytes later as a half word has."""
        if per_byte == 1:
            nbytes = kind.width // 8
            return b.load(offset(b, read, number * nbytes), typ=kind, align=nbytes)
        low, high = (b.load(offset(b, read, number // 2 + 2 * half), typ=kind, align=1) for half in range(2))
        four, mask = ir.LlvmConstant(kind, 4), ir.LlvmConstant(kind, 15)
        if number % 2:
            return b.or_(b.lshr(low, four), b.and_(high, ir.LlvmConstant(kind, 240)))
        return b.or_(b.and_(low, mask), b.shl(high, four))

    def _tile(
        self, b: ir.IRBuilder, addresses: dict[str, ir.LlvmValue], tile: ir.LlvmValue, row: ir.LlvmValue, rows: int
    ) -> None:
        """The products of some rows of x with a tile of the weight."""
        tiles = {i: offset(b, addresses[f"operand {i}"], (tile, nbytes)) for i, nbytes in self.arranged.items()}
        code_nbytes = 2 if "pairs" in addresses else 1
        x, row_nbytes = addresses.get("pairs", addresses["x"]), self.k * code_nbytes
        xs = [offset(b, x, (row, row_nbytes), i * row_nbytes) for i in range(rows)]
        sums = [Variable.of(b, self.floats.zero) for _ in range(rows)]
        by_block = {key: [offset(b, addresses[key], (row, 4 * self.blocks), 4 * self.blocks * i) for i in range(rows)]
                    for key in ("x scales", "sums", "scaled sums") if key in addresses}  # fmt: skip
        with counting(b, 0, self.blocks) as block:
            vectors = self.block // self.codes.terms
            weight = offset(b, tiles[WEIGHT], (block, vectors * self.vector_nbytes))
            totals = self._block(b, weight, [offset(b, x, (block, self.block * code_nbytes)) for x in xs])
            scales = self._of_block(b, SCALES, tiles[SCALES], block)
            offsets = self._of_block(b, OFFSETS, tiles[OFFSETS], block) if OFFSETS in tiles else None
            for i, (total, result) in enumerate(zip(totals, sums, strict=True)):
                place = {key: offset(b, starts[i], (block, 4)) for key, starts in by_block.items()}
                if "sums" in place:
                    zeros = b.load(place["sums"], typ=I32, align=4)
                    total = b.sub(total, self.words.simd.splat(b, zeros))
                scale = self.floats.splat(b, self.floats.load_scalar(b, place["x scales"]))
                scaled = b.fmul(b.sitofp(total, self.floats.vector), b.fmul(scale, scales))
                value = b.fadd(result.value(b), scaled)
                if offsets is not None:
                    of_row = self.floats.splat(b, self.floats.load_scalar(b, place["scaled sums"]))
                    value = b.fadd(value, b.fmul(of_row, offsets))
                result.set(b, value)
        self._store(b, addresses["y"], tile, row, [each.value(b) for each in sums])

    def _of_block(self, b: ir.IRBuilder, operand: int, tile: ir.LlvmValue, block: ir.LlvmValue) -> ir.LlvmValue:
        """A vector of scales or offsets."""
        dtype = self.place(operand).type.dtype
        return load_elements(b, self.isa, dtype, offset(b, tile, (block, self.lanes * dtype.itemsize)), self.lanes)

    def _block(self, b: ir.IRBuilder, weight: ir.LlvmValue, xs: Values) -> Values:
        """The sums of products of a block, i32, one vector for each row of x."""
        vectors, zero = self.block // self.codes.terms, constant(self.words.simd.vector, 0)
        run = self.codes.run(self.block, is_wide=self.quad is not None)
        runs = vectors // run
        x_nbytes = run * self.codes.terms * (2 if self.codes.per_word == 2 else 1)
        if runs <= WRITTEN_OUT:
            totals: Values = [zero for _ in xs]
            for number in range(runs):
                x_run = [offset(b, x, number * x_nbytes) for x in xs]
                totals = self._run(b, offset(b, weight, number * run * self.vector_nbytes), x_run, totals, run)
            return totals
        variables = [Variable.of(b, zero) for _ in xs]
        with counting(b, 0, runs) as item:
            x_run = [offset(b, x, (item, x_nbytes)) for x in xs]
            before = [each.value(b) for each in variables]
            place = offset(b, weight, (item, run * self.vector_nbytes))
            for each, total in zip(variables, self._run(b, place, x_run, before, run), strict=True):
                each.set(b, total)
        return [each.value(b) for each in variables]

    def _run(self, b: ir.IRBuilder, weight: ir.LlvmValue, xs: Values, totals: Values, vectors: int) -> Values:
        """The totals with the products of some vectors of codes."""
        splat = self.words.simd.splat
        if self.codes.per_word == 2:
            for number in range(vectors):
                codes = self.words.along(b, offset(b, weight, number * self.vector_nbytes), align=1)
                factors = [splat(b, b.load(offset(b, x, 4 * number), typ=I32, align=2)) for x in xs]
                totals = [self.words.multiply_add(b, f, codes, t) for f, t in zip(factors, totals, strict=True)]
            return totals
        if self.quad is not None:
            for number in range(vectors):
                for half, codes in enumerate(self._unpacked(b, offset(b, weight, number * self.vector_nbytes))):
                    start = 4 * (number * self.codes.per_byte + half)
                    words = b.bitcast(codes, self.words.simd.vector)
                    factors = [splat(b, b.load(offset(b, x, start), typ=I32, align=1)) for x in xs]
                    totals = [
                        multiply_add_quads(b, self.quad, words, f, t) for f, t in zip(factors, totals, strict=True)
                    ]
            return totals
        sums: list[ir.LlvmValue | None] = [None for _ in xs]
        for number in range(vectors):
            for half, codes in enumerate(self._unpacked(b, offset(b, weight, number * self.vector_nbytes))):
                word = number * self.codes.per_byte + half
                for i, x in enumerate(xs):
                    factor = splat(b, b.load(offset(b, x, 4 * word), typ=I32, align=1))
                    product, before = self._products(b, codes, factor), sums[i]
                    sums[i] = product if before is None else b.add(before, product)
        ones = constant(self.words.simd.vector, 0x10001)
        return [
            self.words.multiply_add(b, b.bitcast(s, self.words.simd.vector), ones, t)
            for s, t in zip(sums, totals, strict=True)
            if s is not None
        ]

    def _unpacked(self, b: ir.IRBuilder, place: ir.LlvmValue) -> Sequence[ir.LlvmValue]:
        """The words of a vector in memory, one after the other along k: bytes as they are multiplied."""
        kind = ir.VectorType(I8, self.vector_nbytes)
        packed = b.load(place, typ=kind, align=1)
        if self.codes.per_byte == 1:
            flips = self.quad is not None and self.quad.flips
            return (b.xor(packed, constant(kind, 128)) if flips else packed,)
        return b.and_(packed, constant(kind, 15)), b.lshr(packed, constant(kind, 4))

    def _products(self, b: ir.IRBuilder, codes: ir.LlvmValue, factor: ir.LlvmValue) -> ir.LlvmValue:
        """Sums of two neighbouring products of bytes without sign by bytes with sign, in 16 bits, which hold them."""
        wide, half = ir.VectorType(I8, self.vector_nbytes), ir.VectorType(I16, self.vector_nbytes // 2)
        signed = b.bitcast(factor, wide)
        name = self.isa.u8_i8_pair_product
        if name is not None:
            return b.call(declare(self.module, name, half, [wide, wide]), [codes, signed])
        full = ir.VectorType(I16, self.vector_nbytes)
        products = b.mul(b.zext(codes, full), b.sext(signed, full))
        return b.add(*(shuffled(b, products, products, range(k, self.vector_nbytes, 2)) for k in (0, 1)))

    def _store(self, b: ir.IRBuilder, y: ir.LlvmValue, tile: ir.LlvmValue, row: ir.LlvmValue, values: Values) -> None:
        """Columns of a tile of the result; the last tile may have fewer than a vector."""
        column = b.mul(tile, index(self.lanes))
        places = [offset(b, y, (row, 4 * self.n), 4 * self.n * i, (column, 4)) for i in range(len(values))]
        if self.n % self.lanes == 0:
            for value, place in zip(values, places, strict=True):
                self.floats.store(b, value, place)
            return
        columns = b.sub(index(self.n), column)
        with b.if_else(b.icmp_signed(">=", columns, index(self.lanes))) as (full, remainder):
            with full:
                for value, place in zip(values, places, strict=True):
                    self.floats.store(b, value, place)
            with remainder:
                for value, place in zip(values, places, strict=True):
                    self.floats.store_spread(b, value, place, 4, columns)
