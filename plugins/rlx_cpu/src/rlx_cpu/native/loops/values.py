"""The values of a loop kernel at one place: loads, numbers, positions, and the ops on them, each made once."""

from __future__ import annotations

from attrs import field

from rlx_core.codegen.loops import Apply, Bound, Const, Index, Kernel, Load, operands_of
from rlx_core.codegen.scalars.conversion import converted
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import f32, i64
from rlx_core.ops.conversion import Cast
from rlx_core.system.records import define
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, address, align_of, register_type, scaled, splat
from rlx_cpu.native.llvm.ir.numbers import constant, width
from rlx_cpu.native.llvm.sizes import Unsized, sized
from rlx_cpu.native.loops.memory import KernelBuffers
from rlx_cpu.native.loops.tiles import TransposedTiles
from rlx_cpu.native.loops.walk import Position, Shape
from rlx_cpu.native.scalars.table import NATIVE


@define(eq=False)
class KernelValues:
    """The values known at a position, and code for the others. Mutable, because a builder is."""

    builder: ir.IRBuilder
    shape: Shape
    memory: KernelBuffers
    rows: dict[int, ir.LlvmValue]
    """Kept value → its row of scratch memory."""
    varies_lane: tuple[bool, ...] = field(init=False)
    rounded_by_stores: frozenset[int] = field(init=False)
    """Casts to narrow floats that are only stored, which rounds them anyway."""
    tiles: TransposedTiles | None = None
    fixed: dict[int, ir.LlvmValue] = field(factory=dict)
    """Values of the unit: what does not vary over the row, and finished reductions."""
    complete: set[int] = field(factory=set)
    """Kept values whose loop is over."""

    def __attrs_post_init__(self) -> None:
        self.varies_lane = self.kernel.varies_along(self.shape.lane)
        read = {a for v in self.kernel.values for a in operands_of(v)}
        self.rounded_by_stores = frozenset(
            i
            for i, v in enumerate(self.kernel.values)
            if i not in read and isinstance(v, Apply) and isinstance(v.op, Cast) and v.op.to.is_narrow
        )

    @property
    def kernel(self) -> Kernel:
        return self.shape.kernel

    def start_unit(self) -> None:
        """Forget what was known of another unit."""
        self.fixed, self.complete = {}, set()

    def value(self, number: int, position: Position, known: dict[int, ir.LlvmValue]) -> ir.LlvmValue:
        """A value here: a vector if it varies along lanes, a scalar otherwise. Without recursion, because chains are long."""
        waiting = [number]
        while waiting:
            missing = [] if waiting[-1] in known else [a for a in self._reads(waiting[-1], position) if a not in known]
            if missing:
                waiting.extend(reversed(missing))
                continue
            operand = waiting.pop()
            if operand not in known:
                known[operand] = self._value(operand, position, known)
        return known[number]

    def _reads(self, number: int, position: Position) -> tuple[int, ...]:
        """The values that must be known first."""
        is_stored = number in self.complete or self._is_in_tile(number, position)
        return () if is_stored else operands_of(self.kernel.values[number])

    def _is_in_tile(self, number: int, position: Position) -> bool:
        return self.tiles is not None and position.tile is not None and number in self.tiles.places

    def _value(self, number: int, position: Position, known: dict[int, ir.LlvmValue]) -> ir.LlvmValue:
        """A value of which `known` has the operands."""
        b, term = self.builder, self.kernel.values[number]
        if number in self.complete:
            type = register_type(term.dtype, self.shape.lanes if self.varies_lane[number] else 1)
            return b.load(self.kept(number, position), typ=type, align=align_of(type))
        if isinstance(term, Const):
            return self._const(term)
        if isinstance(term, Index):
            return self._index(term, position)
        if isinstance(term, Load):
            if self.tiles is not None and self._is_in_tile(number, position):
                return self.tiles.read(number, position)
            return self.memory.load(term, position, [known[v] for v, _ in term.dynamic])
        if isinstance(term, Bound):
            return self._bound(term, position, known)
        assert isinstance(term, Apply), f"%{number} is used before its loop"
        args = [known[a] for a in term.args]
        lanes = max(width(a) for a in args)
        dtypes = tuple(self.kernel.values[a].dtype for a in term.args)
        if number in self.rounded_by_stores:
            return converted(b, args[0], dtypes[0].accumulator, f32)
        return NATIVE.apply(b, term.op, dtypes, tuple(splat(b, a, lanes) for a in args))

    def _const(self, term: Const) -> ir.LlvmValue:
        """A number, or a size as one."""
        type = register_type(term.dtype)
        size: object = term.number
        if isinstance(size, Expr):
            return converted(self.builder, sized(self.builder, size), i64, term.dtype.accumulator)
        return constant(type, term.number)

    def kept(self, number: int, position: Position) -> ir.LlvmValue:
        """Return the address of a kept value in its row of scratch memory."""
        b, dtype = self.builder, self.kernel.values[number].dtype
        assert position.slot is not None, "kept values have a place in the row"
        return address(b, self.rows[number], scaled(b, position.slot, self.shape.lanes * dtype.accumulator.itemsize))

    def _index(self, term: Index, position: Position) -> ir.LlvmValue:
        b = self.builder
        value = position.index[term.axis]
        if position.steps.get(term.axis):
            value = b.add(value, ir.LlvmConstant(I64, position.steps[term.axis]))
        if term.axis == self.shape.lane:
            lanes = ir.LlvmConstant(ir.VectorType(I64, self.shape.lanes), list(range(self.shape.lanes)))
            value = b.add(splat(b, value, self.shape.lanes), lanes)
        scale, offset = (constant(value.type, n) for n in (term.scale, term.offset))
        return b.add(b.mul(value, scale), offset)

    def _bound(self, term: Bound, position: Position, known: dict[int, ir.LlvmValue]) -> ir.LlvmValue:
        b = self.builder
        index = known[term.arg]
        last = splat(b, sized(b, term.size - 1), width(index))
        zero = constant(index.type, 0)
        inside = b.icmp_unsigned("<=", index, last)
        if term.is_checked:
            self._report(index, inside, position)
        nearest = b.select(b.icmp_signed("<", index, zero), zero, last)
        return b.select(inside, index, nearest)

    def _report(self, index: ir.LlvmValue, inside: ir.LlvmValue, position: Position) -> None:
        """Write the first index outside into the status words."""
        b, status = self.builder, self.memory.buffers[-1]
        lanes, numbers = [inside], [index]
        if width(index) > 1:
            if isinstance(position.active, ir.LlvmValue):
                raise Unsized("checked indices along an axis whose size is known")
            lanes, numbers = (
                [b.extract_element(x, ir.LlvmConstant(I32, k)) for k in range(position.active)] for x in (inside, index)
            )
        for is_inside, number in zip(lanes, numbers, strict=True):
            with b.if_then(b.not_(is_inside), likely=False):
                b.store(number, address(b, status, 8), align=8)
                b.store(ir.LlvmConstant(I64, 1), status, align=8)
