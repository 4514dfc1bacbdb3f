"""Combination of per-thread reductions in a fixed order: through registers of subgroups, then through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import inf

from attrs import field

from rlx_core.codegen.loops import Combine
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType, bool_
from rlx_core.ops import arithmetic
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.registers import register_dtype

_EXTREME = {"max": arithmetic.maximum.op, "min": arithmetic.minimum.op}


@define(eq=False)
class Reductions:
    """The reductions of one function; `shared` collects its shared arrays."""

    b: TextAssembler
    scalars: ScalarTable
    group: int
    subgroup: int | None
    shared: list[str] = field(factory=list)
    _count: int = 0

    @property
    def exchanging(self) -> int | None:
        """Threads that exchange registers, if the group consists of full subgroups."""
        return self.subgroup if self.subgroup is not None and self.group % self.subgroup == 0 else None

    def identity(self, combine: Combine, dtype: DType) -> Register:
        """Return the identity element of a combination."""
        if combine in ("sum", "prod"):
            return self.b.literal(register_dtype(dtype), 1 if combine == "prod" else 0)
        is_max = combine == "max"
        if dtype.is_float:
            return self.b.literal(register_dtype(dtype), -inf if is_max else inf)
        if dtype is bool_:
            return self.b.literal(bool_, not is_max)
        bits = 8 * dtype.itemsize
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
        return self.b.literal(register_dtype(dtype), low if is_max else high)

    def combined(self, combine: Combine, dtype: DType, x: Register, y: Register) -> Register:
        """Two shares of a reduction as one."""
        if combine in _EXTREME:
            op, scalars = _EXTREME[combine](), self.scalars

            def extreme(b: TextAssembler, x: Register, y: Register) -> Register:
                return scalars.apply(b, op, (dtype, dtype), (x, y))

            return self.b.invoke(f"{combine}_of_{dtype}", extreme, (x, y), is_inline=True)
        b = self.b
        if combine == "sum":
            return b.fadd(x, y) if dtype.is_float else b.add(x, y)
        return b.fmul(x, y) if dtype.is_float else b.mul(x, y)

    def folded(self, combine: Combine, dtype: DType, shares: Sequence[Register]) -> Register:
        total = shares[0]
        for share in shares[1:]:
            total = self.combined(combine, dtype, total, share)
        return total

    def totals(self, shares: Sequence[tuple[Combine, DType, Register]]) -> list[Register]:
        """The shares of all threads of the group combined; every thread has every total."""
        exchanged = [self._exchanged(*share) for share in shares]
        width = self.exchanging or 1
        if all(e is not None for e in exchanged) and self.exchanging is not None:
            shuffled = [e for e in exchanged if e is not None]
            if width == self.group:
                return shuffled
            thread, size = self.b.language.thread, self.group // width
            arrays = self._written(shares, shuffled, f"{thread} / {width}u", size, f"{thread} % {width}u == 0u")
            return [self._strided(a, *s[:2], size) for a, s in zip(arrays, shares, strict=True)]
        return self._through_memory(shares)

    def _exchanged(self, combine: Combine, dtype: DType, share: Register) -> Register | None:
        """The total of a subgroup, in all its threads; `None` where registers of this type cannot be exchanged."""
        b = self.b
        if self.exchanging is None or share.dtype not in b.language.exchanged_dtypes:
            return None
        distance = 1
        while distance < self.exchanging:
            other = b.named(b.language.exchanged(share.text, distance), share.dtype)
            share = self.combined(combine, dtype, share, other)
            distance *= 2
        return share

    def _through_memory(self, shares: Sequence[tuple[Combine, DType, Register]]) -> list[Register]:
        """Every thread writes its share, some combine a few each, and then all combine those: two barriers."""
        b, thread = self.b, self.b.language.thread
        heads = 1 << (self.group.bit_length() // 2)
        arrays = self._written(shares, [s[2] for s in shares], thread, self.group)
        tops = [self._array(s[2].dtype, heads) for s in shares]
        with b.when(f"{thread} < {heads}u"):
            for (combine, dtype, _), array, top in zip(shares, arrays, tops, strict=True):
                total = self._strided(array, combine, dtype, self.group, thread, heads)
                b.line(f"{top}[{thread}] = {total.text};")
        b.barrier()
        return [self._strided(t, *s[:2], heads) for t, s in zip(tops, shares, strict=True)]

    def _written(
        self,
        shares: Sequence[tuple[Combine, DType, Register]],
        values: Sequence[Register],
        index: str,
        size: int,
        condition: str = "",
    ) -> list[str]:
        """Arrays that hold a value of each thread, or of each for which a condition holds; every thread may read them."""
        b = self.b
        arrays = [self._array(s[2].dtype, size) for s in shares]
        with b.when(condition) if condition else nullcontext():
            for array, value in zip(arrays, values, strict=True):
                b.line(f"{array}[{index}] = {value.text};")
        b.barrier()
        return arrays

    def _array(self, dtype: DType, size: int) -> str:
        name = f"shared{self._count}"
        self._count += 1
        self.shared.append(self.b.language.shared(self.b.language.type(dtype), name, size))
        return name

    def _strided(
        self, array: str, combine: Combine, dtype: DType, size: int, start: str = "0u", step: int = 1
    ) -> Register:
        """The elements `start`, `start + step`, … of a shared array combined in their order."""
        b = self.b
        total = b.variable(Register(f"{array}[{start}]", register_dtype(dtype)))
        k = b.fresh("k")
        with b.loop(k, f"{step}u" if start == "0u" else f"{start} + {step}u", f"{size}u", f"{step}u"):
            other = b.named(f"{array}[{k}]", total.dtype)
            b.assign(total, self.combined(combine, dtype, total, other))
        return total
