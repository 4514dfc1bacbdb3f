"""Elements of buffers as registers: where they lie, one at a time or as whole words of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.ir.dtypes import DType, bool_, i8, i16, i32, i64
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.indexing import as_index
from rlx_gpu.codegen.registers import stored_dtype


def is_whole_words(dtype: DType, lanes: int) -> bool:
    """Return whether so many neighbours fill 1, 2 or 4 words."""
    return lanes > 1 and lanes * dtype.itemsize in (4, 8, 16)


def index_text(strides: Sequence[int], offset: int, itemsize: int, coordinates: Mapping[int, str], kind: str) -> str:
    """`offset + Σ coordinate·stride`, in elements, of type `kind`. Steps backwards wrap around; their sum does not."""
    terms: list[tuple[str, str]] = []
    for axis, stride in enumerate(strides):
        step = abs(stride) // itemsize
        if step:
            coordinate = as_index(coordinates[axis], kind)
            terms.append(("-" if stride < 0 else "+", coordinate if step == 1 else f"{coordinate} * {step}u"))
    if offset or not terms:
        terms.insert(0, ("+", f"{offset // itemsize}u"))
    elif terms[0][0] == "-":
        terms.insert(0, ("+", "0u"))
    return "".join(f" {sign} {text}" for sign, text in terms)[3:]


@define(eq=False)
class Memory:
    """Loads and stores through an assembler; `kind` is the type of an index."""

    b: TextAssembler
    kind: str

    def load(self, name: str, dtype: DType, index: str) -> Register:
        """Load an element in its register representation."""
        stored = stored_dtype(dtype)
        return self.held(self.b.named(self.b.language.loaded(name, stored, index), stored), dtype)

    def store(self, name: str, dtype: DType, index: str, value: Register) -> None:
        bits = self.as_stored(value, dtype)
        self.b.line(self.b.language.stored(name, bits.dtype, index, bits.text))

    def words(self, name: str, dtype: DType, index: str, lanes: int) -> list[Register]:
        """The words that hold the element at `index` and its next neighbours."""
        fresh = self.b.fresh("w")
        count = lanes * dtype.itemsize // 4
        lines, names = self.b.language.loaded_words(name, stored_dtype(dtype), index, count, fresh)
        for line in lines:
            self.b.line(line)
        return [Register(name, i32) for name in names]

    def lane(self, words: Sequence[Register], dtype: DType, lane: int) -> Register:
        """One element of words."""
        b, stored, size = self.b, stored_dtype(dtype), dtype.itemsize
        if size == 8:
            pair = b.named(b.language.joined(words[2 * lane].text, words[2 * lane + 1].text), i64)
            bits = pair if stored is i64 else b.named(b.language.from_bits(stored, pair.text), stored)
        elif size == 4:
            word = words[lane]
            bits = word if stored is i32 else b.named(b.language.from_bits(stored, word.text), stored)
        else:
            word, shift = words[lane * size // 4], lane * size % 4 * 8
            bits = b.resized(b.lshr(word, b.constant(word, shift)) if shift else word, stored, is_signed=False)
        return self.held(bits, dtype)

    def store_words(self, name: str, dtype: DType, index: str, values: Sequence[Register]) -> None:
        """Neighbouring elements, written at once."""
        b, size = self.b, dtype.itemsize
        bits = [self.as_stored(v, dtype) for v in values]
        words: list[Register] = []
        if size == 8:
            for one in bits:
                pattern = one if one.dtype is i64 else b.bits(one)
                words += [b.named(text, i32) for text in b.language.parted(pattern.text)]
        elif size == 4:
            words = [one if one.dtype is i32 else b.bits(one) for one in bits]
        else:
            each = 4 // size
            for k in range(0, len(bits), each):
                word = b.resized(bits[k], i32, is_signed=False)
                for j in range(1, each):
                    part = b.resized(bits[k + j], i32, is_signed=False)
                    word = b.or_(word, b.shl(part, b.constant(part, 8 * size * j)))
                words.append(word)
        lines = b.language.stored_words(name, stored_dtype(dtype), index, [w.text for w in words], b.fresh("w"))
        for line in lines:
            b.line(line)

    def held(self, bits: Register, dtype: DType) -> Register:
        """Return the register representation of an element's stored bits."""
        if dtype is bool_:
            return self.b.icmp_unsigned("!=", bits, self.b.constant(bits, 0))
        return self.b.widened(bits, dtype) if dtype.is_narrow else bits

    def as_stored(self, value: Register, dtype: DType) -> Register:
        """The bits that an element has in memory."""
        if dtype is bool_:
            return self.b.resized(value, i8, is_signed=False)
        if dtype.is_narrow and value.dtype is not i16:
            return self.b.narrowed(value, dtype)
        return value
