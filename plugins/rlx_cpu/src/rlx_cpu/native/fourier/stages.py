"""One stage of a transform: radix-4 butterflies, each multiplied by a twiddle factor.

A transform of n elements consists of stages with s = 1, 4, 16, … (Stockham's autosort order: no final digit reversal). With m =
n/(4·s), for each p < m and q < s

    y[q + s·(4p + k)] = exp(∓2πi·p·k / 4m) · Σ_j x[q + s·(p + m·j)] exp(∓2πi·j·k / 4)

The elements of x in one vector are always contiguous: q is the inner index, and while s is less than a vector, p is included;
the four results are then interleaved in groups of s by shuffles. Between stages, real and imaginary parts are stored in
separate planes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, POINTER, VOID, shuffled, splat
from rlx_cpu.native.llvm.ir.assembler import intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.simd import counting, index, offset, times


@frozen(eq=False)
class Number:
    """Complex numbers, one per lane."""

    re: ir.LlvmValue
    im: ir.LlvmValue


@frozen(eq=False)
class Planes:
    """n complex numbers with all real parts in front of all imaginary ones."""

    pointer: ir.LlvmValue
    plane: int

    def load(self, stages: Stages, b: ir.IRBuilder, position: ir.LlvmValue) -> Number:
        place = offset(b, self.pointer, (position, stages.itemsize))
        return Number(*(stages.load(b, each) for each in (place, offset(b, place, self.plane))))

    def store(self, stages: Stages, b: ir.IRBuilder, number: Number, position: ir.LlvmValue) -> None:
        place = offset(b, self.pointer, (position, stages.itemsize))
        for part, each in ((number.re, place), (number.im, offset(b, place, self.plane))):
            b.store(part, each, align=stages.itemsize)


@frozen(eq=False)
class Interleaved:
    """Complex numbers as arrays have them: each real part in front of its imaginary one."""

    pointer: ir.LlvmValue

    def load(self, stages: Stages, b: ir.IRBuilder, position: ir.LlvmValue) -> Number:
        place = offset(b, self.pointer, (position, 2 * stages.itemsize))
        low, high = (stages.load(b, offset(b, place, n * stages.lanes * stages.itemsize)) for n in (0, 1))
        return Number(*(shuffled(b, low, high, range(n, 2 * stages.lanes, 2)) for n in (0, 1)))

    def store(self, stages: Stages, b: ir.IRBuilder, number: Number, position: ir.LlvmValue) -> None:
        place, lanes = offset(b, self.pointer, (position, 2 * stages.itemsize)), stages.lanes
        for n in (0, 1):
            order = [x for lane in range(n * lanes // 2, (n + 1) * lanes // 2) for x in (lane, lanes + lane)]
            part = shuffled(b, number.re, number.im, order)
            b.store(part, offset(b, place, n * lanes * stages.itemsize), align=stages.itemsize)


Memory = Planes | Interleaved


@frozen(eq=False)
class Stages:
    """The stages of transforms of n elements, while their function is emitted.

    Attributes:
        module: The module under construction.
        name: Prefix of the names of its globals.
        element: The type of real and imaginary parts; `dtype` is the NumPy dtype.
        lanes: Lanes of a vector; at most n/4.
        n: Elements, a power of two.
        is_inverse: The direction.
    """

    module: ir.Module
    name: str
    element: Any
    dtype: Any
    lanes: int
    n: int
    is_inverse: bool

    @property
    def itemsize(self) -> int:
        return int(np.dtype(self.dtype).itemsize)

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(self.element, self.lanes)

    def load(self, b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
        return b.load(place, typ=self.vector, align=self.itemsize)

    def run(
        self, b: ir.IRBuilder, source: Interleaved, buffers: Sequence[Planes], to: Interleaved, scale: float
    ) -> None:
        """Run all stages of one transform, from `source` through `buffers` alternately to `to`; results are multiplied by
        `scale`."""
        s, turn = 1, 0
        current: Memory = source
        while 4 * s < self.n:
            target = buffers[turn % 2]
            if s < self.lanes:
                self._dealing(b, current, target, s)
            else:
                assert isinstance(current, Planes), "vectors are shorter than the first stage is wide"
                roots = self._roots(s, 1)
                arguments = [current.pointer, target.pointer, roots, index(s), index(self.n // (4 * s))]
                b.call(self._middle(current.plane), arguments)
            current, s, turn = target, 4 * s, turn + 1
        self._last(b, current, to, self.n // s, scale)

    # ------------------------------------------------------------------------------------------ the stages

    def _dealing(self, b: ir.IRBuilder, source: Memory, to: Planes, s: int) -> None:
        """Emit a stage whose vectors contain several p: its results are interleaved in groups of s."""
        lanes, quarter, groups = self.lanes, self.n // 4, self.lanes // s
        roots = self._roots(s, groups)
        repeated = [group for group in range(groups) for _ in range(s)]
        with counting(b, 0, quarter, lanes) as i:
            x = [source.load(self, b, b.add(i, index(j * quarter))) for j in range(4)]
            place = offset(b, roots, (b.sdiv(i, index(lanes)), 6 * groups * self.itemsize))
            kind = ir.VectorType(self.element, groups)

            def root(number: int, place: ir.LlvmValue = place, kind: Any = kind) -> ir.LlvmValue:
                few = b.load(offset(b, place, number * groups * self.itemsize), typ=kind, align=self.itemsize)
                return shuffled(b, few, few, repeated)

            y = self._turned(b, self._butterfly(b, x), root)
            parts = [self._grouped(b, [getattr(v, part) for v in y], s) for part in ("re", "im")]
            first = times(b, i, 4)
            for k, (re, im) in enumerate(zip(*parts, strict=True)):
                to.store(self, b, Number(re, im), b.add(first, index(k * lanes)))

    def _grouped(self, b: ir.IRBuilder, y: Sequence[ir.LlvmValue], s: int) -> list[ir.LlvmValue]:
        """Groups of s lanes of four vectors in turn: the first of each, the second of each, …"""
        lanes = self.lanes
        groups: list[ir.LlvmValue] = []
        for half in (0, 1):
            order = [
                which * lanes + start + q
                for start in range(half * lanes // 2, (half + 1) * lanes // 2, s)
                for which in (0, 1)
                for q in range(s)
            ]
            low, high = (shuffled(b, y[k], y[k + 1], order) for k in (0, 2))
            both = [
                which * lanes + start + q for start in range(0, lanes, 2 * s) for which in (0, 1) for q in range(2 * s)
            ]
            groups += [shuffled(b, low, high, both[n * lanes : (n + 1) * lanes]) for n in (0, 1)]
        return groups

    def _middle(self, plane: int) -> ir.Function:
        """`stage(source, to, roots, s, m)`: a stage whose vectors hold neighbours of one p."""
        name = f"{self.name}.stage"
        if name in self.module.globals:
            existing: ir.Function = self.module.globals[name]
            return existing
        function = ir.Function(self.module, ir.FunctionType(VOID, [POINTER] * 3 + [I64] * 2), name)
        function.linkage = "internal"
        for pointer in function.args[:3]:
            pointer.add_attribute("noalias")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        source, to, roots, s, m = function.args
        input_planes, output_planes = Planes(source, plane), Planes(to, plane)
        with counting(b, index(0), m) as p:
            place = offset(b, roots, (p, 6 * self.itemsize))
            scalars = (
                b.load(offset(b, place, n * self.itemsize), typ=self.element, align=self.itemsize) for n in range(6)
            )
            known = [splat(b, scalar, self.lanes) for scalar in scalars]
            first, after = b.mul(p, s), b.mul(times(b, p, 4), s)
            with counting(b, index(0), s, self.lanes) as q:
                x = [input_planes.load(self, b, b.add(b.add(first, q), index(j * self.n // 4))) for j in range(4)]
                for k, value in enumerate(self._turned(b, self._butterfly(b, x), known.__getitem__)):
                    output_planes.store(self, b, value, b.add(b.add(after, q), times(b, s, k)))
        b.ret_void()
        return function

    def _last(self, b: ir.IRBuilder, source: Memory, to: Interleaved, radix: int, scale: float) -> None:
        """The stage with m = 1, or the one half as wide: there are no roots, and results are complex numbers again."""
        width = self.n // radix
        with counting(b, 0, width, self.lanes) as q:
            x = [source.load(self, b, b.add(q, index(j * width))) for j in range(radix)]
            y = self._butterfly(b, x) if radix == 4 else [self._sum(b, *x), self._difference(b, *x)]
            for k, value in enumerate(y):
                factor = constant(self.vector, scale)
                scaled = value if scale == 1 else Number(b.fmul(value.re, factor), b.fmul(value.im, factor))
                to.store(self, b, scaled, b.add(q, index(k * width)))

    # ------------------------------------------------------------------------------------------ arithmetic

    def _butterfly(self, b: ir.IRBuilder, x: Sequence[Number]) -> list[Number]:
        """The transform of four elements."""
        even, odd = self._sum(b, x[0], x[2]), self._sum(b, x[1], x[3])
        delta_even, delta_odd = self._difference(b, x[0], x[2]), self._difference(b, x[1], x[3])
        # delta_even - i·delta_odd, and with a plus.
        minus = Number(b.fadd(delta_even.re, delta_odd.im), b.fsub(delta_even.im, delta_odd.re))
        plus = Number(b.fsub(delta_even.re, delta_odd.im), b.fadd(delta_even.im, delta_odd.re))
        first, third = (plus, minus) if self.is_inverse else (minus, plus)
        return [self._sum(b, even, odd), first, self._difference(b, even, odd), third]

    def _turned(self, b: ir.IRBuilder, y: Sequence[Number], root: Callable[[int], ir.LlvmValue]) -> list[Number]:
        """All but the first times their roots, of which there are three, each a real and an imaginary part."""
        roots = [Number(root(2 * k), root(2 * k + 1)) for k in range(3)]
        return [y[0], *(self._product(b, v, w) for v, w in zip(y[1:], roots, strict=True))]

    def _product(self, b: ir.IRBuilder, x: Number, w: Number) -> Number:
        re = intrinsic(b, "llvm.fmuladd", x.re, w.re, b.fneg(b.fmul(x.im, w.im)))
        return Number(re, intrinsic(b, "llvm.fmuladd", x.re, w.im, b.fmul(x.im, w.re)))

    def _sum(self, b: ir.IRBuilder, x: Number, y: Number) -> Number:
        return Number(b.fadd(x.re, y.re), b.fadd(x.im, y.im))

    def _difference(self, b: ir.IRBuilder, x: Number, y: Number) -> Number:
        return Number(b.fsub(x.re, y.re), b.fsub(x.im, y.im))

    def _roots(self, s: int, groups: int) -> ir.LlvmValue:
        """The address of a stage's roots: for every `groups` of p, those of the results 1 to 3, real parts before imaginary."""
        m = self.n // (4 * s)
        angle = np.arange(m)[:, None] * np.arange(1, 4) * (2 * np.pi / (4 * m))
        parts = np.stack([np.cos(angle), np.sin(angle) * (1 if self.is_inverse else -1)], axis=-1)
        table = parts.reshape(m // groups, groups, 6).transpose(0, 2, 1).astype(self.dtype)
        return self.module.data(f"{self.name}.roots{s}", table.tobytes())
