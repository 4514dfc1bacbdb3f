"""Loop kernels as LLVM IR: explicit vectors along one axis, tails under a mask, units of work split over threads.

The *lane axis* is the one along which memory is contiguous. Where it is an axis of the row, a unit is one row and reductions
end with a fixed tree over lanes; where it is an axis of the grid, a unit is one vector of rows, side by side, and reductions
stay in lanes. An element-wise kernel is a kernel whose row is its lane axis, cut into blocks. The units are what threads
share out; each is computed in the same order by whoever does it, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, evolve, field, frozen
from llvmlite import ir

from rlx_core.codegen.loops import Apply, Bound, Const, Index, Kernel, Load, Reduce, Store, operands_of
from rlx_core.codegen.schedule import Nest, Schedule, schedule
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_cpu.native import functions, scalar
from rlx_cpu.native.build import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    address,
    align_of,
    constant,
    counted,
    declare,
    memory_type,
    register_type,
    scaled,
    splat,
    suffix,
    variable,
    width,
)
from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.isa import Isa

__all__ = ["LlvmPrinter", "Printed"]

BLOCK = 4096
"""Elements of an element-wise unit: small enough to balance threads, large enough not to be counted one by one."""

WORTH_THREADS = 16384
"""Elements below which one thread is done before another has begun."""

UNROLL = 4
"""Independent accumulators of a reduction along lanes: additions take 3 to 4 cycles and two can start in each."""


@frozen
class Printed:
    """What the printer made: the function's name and what it needs at run time."""

    function: str
    workspace: int
    has_status: bool
    uses_threads: bool


@frozen
class LlvmPrinter:
    """Prints kernels into one LLVM module for one instruction set."""

    module: ir.Module
    isa: Isa

    def refusal(self, op: Op, dtypes: tuple[DType, ...]) -> str | None:
        return scalar.refusal(op, dtypes)

    def print(self, kernel: Kernel, name: str) -> Printed:
        """The kernel as a function `void name(i8** buffers, i64 tid, i64 nthreads)`."""
        function = ir.Function(self.module, ir.FunctionType(VOID, [POINTER, I64, I64]), name)
        function.args[0].add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        if 0 in kernel.extents[: kernel.grid] or (0 in kernel.extents and not _has_finish(kernel)):
            builder.ret_void()
            return Printed(name, 0, False, False)
        shape = Shape.of(kernel, self.isa)
        writer = Writer(builder, shape)
        writer.write()
        builder.ret_void()
        return Printed(name, shape.workspace, kernel.has_check, shape.uses_threads)


def _has_finish(kernel: Kernel) -> bool:
    return bool(schedule(kernel).finish)


# ---------------------------------------------------------------------------------------- the shape


@frozen
class Shape:
    """How a kernel is walked: which axis has the lanes, how many, and in which units.

    Attributes:
        kernel: With an element-wise kernel's lane axis as its row.
        lane: The lane axis.
        lanes: Elements of a vector.
        block: Elements of an element-wise unit along the lane axis; `None` for kernels that reduce.
        plan: The loops.
    """

    kernel: Kernel
    lane: int
    lanes: int
    block: int | None
    plan: Schedule

    @classmethod
    def of(cls, kernel: Kernel, isa: Isa) -> Shape:
        widest = max((kernel.buffers[a.buffer].dtype.itemsize for a in kernel.accesses), default=4)
        lanes = isa.lanes(f32) if widest <= 4 else isa.vector_bytes // 8
        if len(kernel.extents) > kernel.grid:
            return cls(kernel, lane_axis(kernel, range(len(kernel.extents))), lanes, None, schedule(kernel))
        if not kernel.extents:
            return cls(evolve(kernel, extents=(1,), grid=0, **_along_nothing(kernel)), 0, lanes, BLOCK, _once(kernel))
        rowed = with_row(kernel, lane_axis(kernel, kernel.grid_axes))
        return cls(rowed, rowed.grid, lanes, BLOCK, _once(rowed))

    @property
    def size(self) -> int:
        """Elements along the lane axis."""
        return self.kernel.extents[self.lane]

    @property
    def is_in_row(self) -> bool:
        return self.lane >= self.kernel.grid

    @property
    def outer(self) -> tuple[int, ...]:
        """The axes of the grid that units are counted over, besides the blocks or vectors of the lane axis."""
        return tuple(a for a in self.kernel.grid_axes if a != self.lane)

    @property
    def pieces(self) -> int:
        """Blocks or vectors of the lane axis."""
        if self.block is not None:
            return max(1, -(-self.size // self.block))
        return 1 if self.is_in_row else max(1, -(-self.size // self.lanes))

    @property
    def units(self) -> int:
        total = self.pieces
        for axis in self.outer:
            total *= self.kernel.extents[axis]
        return total

    @property
    def uses_threads(self) -> bool:
        work = self.kernel.grid_size * self.kernel.row_size
        costs = sum(8 if isinstance(v, Apply) and type(v.op) in functions.OPS else 1 for v in self.kernel.values)
        return self.units > 1 and work * max(1, costs // 4) >= WORTH_THREADS

    @property
    def row_bytes(self) -> int:
        """Bytes of a kept value's row: of vectors, the last one whole."""
        itemsize = max((self.kernel.values[v].dtype.itemsize for v in self.plan.kept), default=0)
        if self.is_in_row:
            others = self.kernel.row_size // max(self.size, 1)
            return others * -(-self.size // self.lanes) * self.lanes * itemsize
        return self.kernel.row_size * self.lanes * itemsize

    @property
    def workspace(self) -> int:
        return len(self.plan.kept) * -(-self.row_bytes // ALIGNMENT) * ALIGNMENT


def _along_nothing(kernel: Kernel) -> dict[str, Any]:
    """The fields of a kernel of one point with an axis of size 1 added."""
    values = tuple(evolve(v, strides=(0,)) if isinstance(v, Load) else v for v in kernel.values)
    return {"values": values, "stores": tuple(evolve(s, strides=(0,)) for s in kernel.stores)}


def _once(kernel: Kernel) -> Schedule:
    """The loop of an element-wise kernel: it stores everything, what does not vary along lanes too."""
    return Schedule((Nest((), (), tuple(range(len(kernel.stores)))),), ())


def lane_axis(kernel: Kernel, axes: Sequence[int]) -> int:
    """The axis along which most accesses are contiguous; of equals a row's, then the last."""

    def score(axis: int) -> tuple[int, int, int]:
        contiguous = 0
        for access in kernel.accesses:
            if access.strides[axis] == kernel.buffers[access.buffer].dtype.itemsize:
                contiguous += 2 if isinstance(access, Store) and axis < kernel.grid else 1
        return contiguous if kernel.extents[axis] > 1 else -1, int(axis >= kernel.grid), axis

    return max(axes, key=score)


def with_row(kernel: Kernel, axis: int) -> Kernel:
    """An element-wise kernel with one of its axes as the row, last."""
    order = [a for a in range(len(kernel.extents)) if a != axis] + [axis]
    new = {old: i for i, old in enumerate(order)}

    def moved(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[a] for a in order)

    values = tuple(
        evolve(v, strides=moved(v.strides))
        if isinstance(v, Load)
        else evolve(v, axis=new[v.axis])
        if isinstance(v, Index)
        else v
        for v in kernel.values
    )
    stores = tuple(evolve(s, strides=moved(s.strides)) for s in kernel.stores)
    return evolve(
        kernel,
        extents=tuple(kernel.extents[a] for a in order),
        grid=len(order) - 1,
        values=values,
        stores=stores,
    )


# --------------------------------------------------------------------------------------- the writer


@frozen
class At:
    """Where in a unit code is being written.

    Attributes:
        index: The position on each axis that has one, as i64; the lane axis' is that of its first lane.
        active: How many of the lanes exist; all but in a tail.
        slot: The place of this vector in rows of kept values, counted in vectors.
    """

    index: dict[int, ir.Value]
    active: int
    slot: ir.Value | None = None


@define(eq=False)
class Writer:
    """Writes the body of one kernel. Mutable, because a builder is."""

    builder: ir.IRBuilder
    shape: Shape
    buffers: list[ir.Value] = field(init=False)
    varies_lane: tuple[bool, ...] = field(init=False)
    varies_row: tuple[bool, ...] = field(init=False)
    fixed: dict[int, ir.Value] = field(factory=dict)
    """Values of the unit: what does not vary over the row, and finished reductions."""
    rows: dict[int, ir.Value] = field(factory=dict)
    """Kept value → its row of scratch memory."""
    complete: set[int] = field(factory=set)
    """Kept values whose loop is over."""

    @property
    def kernel(self) -> Kernel:
        return self.shape.kernel

    def write(self) -> None:
        b, kernel = self.builder, self.kernel
        table, tid, threads = b.function.args
        count = len(kernel.buffers) + (self.shape.workspace > 0) + kernel.has_check
        self.buffers = [b.load(address(b, table, 8 * i), typ=POINTER, align=8, name=f"buffer{i}") for i in range(count)]
        self.varies_lane = kernel.varies_along(self.shape.lane)
        self.varies_row = kernel.varies
        if self.shape.workspace:
            mine = address(b, self.buffers[len(kernel.buffers)], scaled(b, tid, self.shape.workspace))
            step = self.shape.workspace // len(self.shape.plan.kept)
            self.rows = {v: address(b, mine, i * step) for i, v in enumerate(self.shape.plan.kept)}
        units = ir.Constant(I64, self.shape.units)
        first = b.sdiv(b.mul(tid, units), threads)
        last = b.sdiv(b.mul(b.add(tid, ir.Constant(I64, 1)), units), threads)
        with counted(b, first, last) as unit:
            self.unit(unit)

    # ----------------------------------------------------------------------------------- one unit

    def unit(self, unit: ir.Value) -> None:
        """One unit: its place on the grid, then the loops of its row or rows."""
        b, shape = self.builder, self.shape
        piece, rest = self._split(unit, shape.pieces)
        index: dict[int, ir.Value] = {}
        for axis in reversed(shape.outer):
            index[axis], rest = self._split(rest, self.kernel.extents[axis])
        if shape.block is not None:
            self.rows_of(At(index, shape.lanes), piece)
        elif shape.is_in_row:
            self.rows_of(At(index, shape.lanes), None)
        else:
            self.side_by_side(index, piece)
        assert b.block.terminator is None, "a unit falls through to the next"

    def _split(self, number: ir.Value, size: int) -> tuple[ir.Value, ir.Value]:
        b = self.builder
        if size == 1:
            return ir.Constant(I64, 0), number
        return b.urem(number, ir.Constant(I64, size)), b.udiv(number, ir.Constant(I64, size))

    def side_by_side(self, index: dict[int, ir.Value], piece: ir.Value) -> None:
        """A vector of rows, one a lane; the last vector may have fewer."""
        b, shape = self.builder, self.shape
        start = scaled(b, piece, shape.lanes)
        left = shape.size % shape.lanes
        if not left:
            self.rows_of(At({**index, shape.lane: start}, shape.lanes), None)
        elif shape.size < shape.lanes:
            self.rows_of(At({**index, shape.lane: start}, left), None)
        else:
            is_last = b.icmp_unsigned("==", piece, ir.Constant(I64, shape.pieces - 1))
            with b.if_else(is_last) as (then, otherwise):
                with then:
                    self.rows_of(At({**index, shape.lane: start}, left), None)
                with otherwise:
                    self.rows_of(At({**index, shape.lane: start}, shape.lanes), None)

    def rows_of(self, at: At, block: ir.Value | None) -> None:
        """All loops of a unit's row, then the stores of what is one a row."""
        self.fixed, self.complete = {}, set()
        for nest in self.shape.plan.nests:
            self.nest(nest, at, block)
            self.complete.update(nest.keeps)
        for number in self.shape.plan.finish:
            self.store(self.kernel.stores[number], at, self.fixed)

    # ------------------------------------------------------------------------------------- a loop

    def nest(self, nest: Nest, at: At, block: ir.Value | None) -> None:
        """One loop over the row."""
        self._hoist(nest, at)
        totals = {r: self._accumulators(r) for r in nest.reduces}
        if block is not None:
            self._blocked(nest, at, block)
        else:
            self._over(nest, at, list(self.kernel.row_axes), totals, None)
        for number, variables in totals.items():
            self.fixed[number] = self._total(number, variables)

    def _hoist(self, nest: Nest, at: At) -> None:
        """Compute what the loop needs and what does not vary in it, before it."""
        roots = [a for r in nest.reduces for a in operands_of(self.kernel.values[r])]
        roots += [self.kernel.stores[s].value for s in nest.stores]
        for value in sorted(self._below(roots)):
            if not self._varies(value):
                self.value(value, at, self.fixed)

    def _varies(self, value: int) -> bool:
        """Whether a value changes from one pass of the loop to the next."""
        return self.varies_row[value] or (self.shape.block is not None and self.varies_lane[value])

    def _below(self, roots: Sequence[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if value in found or value in self.complete or value in self.fixed:
                continue
            found.add(value)
            waiting += operands_of(self.kernel.values[value])
        return found

    def _over(
        self, nest: Nest, at: At, axes: list[int], totals: dict[int, list[ir.Value]], slot: ir.Value | None
    ) -> None:
        """The loops over `axes` of the row, the lane axis innermost."""
        b = self.builder
        others = [a for a in axes if a != self.shape.lane]
        if others:
            axis = others[0]
            rest = [a for a in axes if a != axis]
            with counted(b, ir.Constant(I64, 0), ir.Constant(I64, self.kernel.extents[axis])) as i:
                line = i if slot is None else b.add(scaled(b, slot, self.kernel.extents[axis]), i)
                self._over(nest, evolve(at, index={**at.index, axis: i}), rest, totals, line)
            return
        if not self.shape.is_in_row:
            self.step(nest, evolve(at, slot=slot or ir.Constant(I64, 0)), totals, 0)
            return
        vectors = -(-self.shape.size // self.shape.lanes)
        base = ir.Constant(I64, 0) if slot is None else scaled(b, slot, vectors)
        self._along_lanes(nest, at, totals, base)

    def _along_lanes(self, nest: Nest, at: At, totals: dict[int, list[ir.Value]], base: ir.Value) -> None:
        """The lane axis from end to end: several vectors at once, single ones, then what is left."""
        b, shape = self.builder, self.shape
        whole = shape.size // shape.lanes
        unroll = UNROLL if totals and whole >= 2 * UNROLL else 1
        bundles = whole // unroll * unroll
        if bundles:
            with counted(b, ir.Constant(I64, 0), ir.Constant(I64, bundles), unroll) as vector:
                for k in range(unroll):
                    self._vector(nest, at, totals, b.add(vector, ir.Constant(I64, k)), base, k)
        for k in range(bundles, whole):
            self._vector(nest, at, totals, ir.Constant(I64, k), base, k - bundles)
        left = shape.size % shape.lanes
        if left:
            self._vector(nest, evolve(at, active=left), totals, ir.Constant(I64, whole), base, 0)

    def _vector(
        self, nest: Nest, at: At, totals: dict[int, list[ir.Value]], vector: ir.Value, base: ir.Value, which: int
    ) -> None:
        b = self.builder
        here = {**at.index, self.shape.lane: scaled(b, vector, self.shape.lanes)}
        self.step(nest, At(here, at.active, b.add(base, vector)), totals, which)

    def _blocked(self, nest: Nest, at: At, block: ir.Value) -> None:
        """A block of an element-wise kernel; the last one has the tail."""
        b, shape = self.builder, self.shape
        assert shape.block is not None, "blocks are of element-wise kernels"
        whole = shape.size // shape.lanes * shape.lanes
        left = shape.size - whole
        if whole:
            start = scaled(b, block, shape.block)
            end = b.add(start, ir.Constant(I64, shape.block))
            limit = ir.Constant(I64, whole)
            end = b.select(b.icmp_signed("<", end, limit), end, limit)
            with counted(b, start, end, shape.lanes) as i:
                self.step(nest, evolve(at, index={**at.index, shape.lane: i}), {}, 0)
        if left:
            tail = evolve(at, index={**at.index, shape.lane: ir.Constant(I64, whole)}, active=left)
            if shape.pieces == 1:
                self.step(nest, tail, {}, 0)
            else:
                with b.if_then(b.icmp_unsigned("==", block, ir.Constant(I64, shape.pieces - 1))):
                    self.step(nest, tail, {}, 0)

    def step(self, nest: Nest, at: At, totals: dict[int, list[ir.Value]], which: int) -> None:
        """One pass of a loop: the values at one vector of the row."""
        b = self.builder
        here = dict(self.fixed)
        for number in nest.keeps:
            value = self.value(number, at, here)
            b.store(value, self._kept(number, at), align=align_of(value.type))
        for number, variables in totals.items():
            reduce = self.kernel.values[number]
            assert isinstance(reduce, Reduce), "totals are of reductions"
            value = self._lifted(reduce.arg, self.value(reduce.arg, at, here), at)
            self._accumulate(reduce, variables[which % len(variables)], value, at)
        # Every value before any store: a result may lie in the bytes of an operand that another result still needs.
        stores = [self.kernel.stores[s] for s in nest.stores]
        for store in stores:
            self.value(store.value, at, here)
        for store in stores:
            self.store(store, at, here)

    # --------------------------------------------------------------------------------- reductions

    def _register(self, number: int) -> Any:
        reduce = self.kernel.values[number]
        in_lanes = self.shape.is_in_row or self.varies_lane[number]
        return register_type(reduce.dtype, self.shape.lanes if in_lanes else 1)

    def _accumulators(self, number: int) -> list[ir.Value]:
        reduce = self.kernel.values[number]
        assert isinstance(reduce, Reduce), "accumulators are of reductions"
        type = self._register(number)
        count = UNROLL if self.shape.is_in_row and self.shape.size // self.shape.lanes >= 2 * UNROLL else 1
        variables = [variable(self.builder, type) for _ in range(count)]
        for each in variables:
            self.builder.store(identity(reduce, type), each, align=align_of(type))
        return variables

    def _lifted(self, number: int, value: ir.Value, at: At) -> ir.Value:
        """A value as a vector where the reduction adds lanes up; one that is equal in all lanes counts in each."""
        return splat(self.builder, value, self.shape.lanes) if self.shape.is_in_row else value

    def _accumulate(self, reduce: Reduce, into: ir.Value, value: ir.Value, at: At) -> None:
        b = self.builder
        before = b.load(into, typ=value.type, align=align_of(value.type))
        after = combined(b, reduce, before, value)
        if self.shape.is_in_row and at.active < self.shape.lanes:
            after = b.select(self._mask(at), after, before)
        b.store(after, into, align=align_of(value.type))

    def _total(self, number: int, variables: list[ir.Value]) -> ir.Value:
        b = self.builder
        reduce = self.kernel.values[number]
        assert isinstance(reduce, Reduce), "totals are of reductions"
        type = self._register(number)
        parts = [b.load(v, typ=type, align=align_of(type)) for v in variables]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [combined(b, reduce, x, y) for x, y in pairs]
        (total,) = parts
        if not self.shape.is_in_row:
            return total
        lanes = self.shape.lanes
        while lanes > 1:
            half = lanes // 2
            low, high = (
                b.shuffle_vector(
                    total,
                    ir.Constant(total.type, ir.Undefined),
                    ir.Constant(ir.VectorType(I32, half), list(range(start, start + half))),
                )
                for start in (0, half)
            )
            if half == 1:
                low, high = (b.extract_element(x, ir.Constant(I32, 0)) for x in (low, high))
            total = combined(b, reduce, low, high)
            lanes = half
        return total

    # -------------------------------------------------------------------------------------- values

    def value(self, number: int, at: At, known: dict[int, ir.Value]) -> ir.Value:
        """A value here: a vector if it varies along lanes, a scalar otherwise."""
        if number not in known:
            known[number] = self._value(number, at, known)
        return known[number]

    def _value(self, number: int, at: At, known: dict[int, ir.Value]) -> ir.Value:
        b, term = self.builder, self.kernel.values[number]
        if number in self.complete:
            type = register_type(term.dtype, self.shape.lanes if self.varies_lane[number] else 1)
            return b.load(self._kept(number, at), typ=type, align=align_of(type))
        if isinstance(term, Const):
            return constant(register_type(term.dtype), term.number)
        if isinstance(term, Index):
            return self._index(term, at)
        if isinstance(term, Load):
            return self._load(number, term, at, known)
        if isinstance(term, Bound):
            return self._bound(number, term, at, known)
        assert isinstance(term, Apply), f"%{number} is used before its loop"
        args = [self.value(a, at, known) for a in term.args]
        lanes = max(width(a) for a in args)
        dtypes = tuple(self.kernel.values[a].dtype for a in term.args)
        return scalar.apply(b, term.op, dtypes, tuple(splat(b, a, lanes) for a in args))

    def _kept(self, number: int, at: At) -> ir.Value:
        b, dtype = self.builder, self.kernel.values[number].dtype
        assert at.slot is not None, "kept values have a place in the row"
        return address(b, self.rows[number], scaled(b, at.slot, self.shape.lanes * dtype.itemsize))

    def _index(self, term: Index, at: At) -> ir.Value:
        b = self.builder
        position = at.index[term.axis]
        if term.axis == self.shape.lane:
            lanes = ir.Constant(ir.VectorType(I64, self.shape.lanes), list(range(self.shape.lanes)))
            position = b.add(splat(b, position, self.shape.lanes), lanes)
        scale, offset = (constant(position.type, n) for n in (term.scale, term.offset))
        return b.add(b.mul(position, scale), offset)

    def _bound(self, number: int, term: Bound, at: At, known: dict[int, ir.Value]) -> ir.Value:
        b = self.builder
        index = self.value(term.arg, at, known)
        last, zero = constant(index.type, term.size - 1), constant(index.type, 0)
        inside = b.icmp_unsigned("<=", index, last)
        if term.is_checked:
            self._report(index, inside, at)
        nearest = b.select(b.icmp_signed("<", index, zero), zero, last)
        return b.select(inside, index, nearest)

    def _report(self, index: ir.Value, inside: ir.Value, at: At) -> None:
        """Write the first index outside into the status words."""
        b, status = self.builder, self.buffers[-1]
        lanes = (
            [b.extract_element(inside, ir.Constant(I32, k)) for k in range(at.active)] if width(index) > 1 else [inside]
        )
        numbers = (
            [b.extract_element(index, ir.Constant(I32, k)) for k in range(at.active)] if width(index) > 1 else [index]
        )
        for is_inside, number in zip(lanes, numbers, strict=True):
            with b.if_then(b.not_(is_inside), likely=False):
                b.store(number, address(b, status, 8), align=8)
                b.store(ir.Constant(I64, 1), status, align=8)

    # -------------------------------------------------------------------------------------- memory

    def _offset(self, strides: tuple[int, ...], offset: int, at: At) -> ir.Value:
        """The byte offset of an access at the first lane."""
        b = self.builder
        total: ir.Value = ir.Constant(I64, offset)
        for axis, stride in enumerate(strides):
            if stride and axis in at.index:
                step = scaled(b, at.index[axis], stride)
                total = step if isinstance(total, ir.Constant) and total.constant == 0 else b.add(total, step)
        return total

    def _mask(self, at: At) -> ir.Constant:
        lanes = self.shape.lanes
        return ir.Constant(ir.VectorType(I1, lanes), [ir.Constant(I1, int(k < at.active)) for k in range(lanes)])

    def _load(self, number: int, term: Load, at: At, known: dict[int, ir.Value]) -> ir.Value:
        b, lanes, dtype = self.builder, self.shape.lanes, term.dtype
        place = address(b, self.buffers[term.buffer], self._offset(term.strides, term.offset, at))
        spread: ir.Value | None = None
        for value, stride in term.dynamic:
            moved = self.value(value, at, known)
            step = b.mul(moved, constant(moved.type, stride))
            if width(step) == 1:
                place = address(b, place, step)
            else:
                spread = step if spread is None else b.add(spread, step)
        stride = term.strides[self.shape.lane]
        align = dtype.itemsize
        if stride == 0 and spread is None:
            return self._to_register(dtype, b.load(place, typ=memory_type(dtype), align=align))
        if stride == dtype.itemsize and spread is None:
            type = memory_type(dtype, lanes)
            if at.active == lanes:
                return self._to_register(dtype, b.load(place, typ=type, align=align))
            return self._to_register(dtype, self._masked_load(place, type, align, at))
        whole = constant(memory_type(dtype, lanes), 0)
        for k in range(at.active):
            one = address(b, place, k * stride)
            if spread is not None:
                one = address(b, one, b.extract_element(spread, ir.Constant(I32, k)))
            whole = b.insert_element(whole, b.load(one, typ=memory_type(dtype), align=align), ir.Constant(I32, k))
        return self._to_register(dtype, whole)

    def _masked_load(self, place: ir.Value, type: Any, align: int, at: At) -> ir.Value:
        mask = self._mask(at)
        function = declare(
            self.builder.module, f"llvm.masked.load.{suffix(type)}.p0", type, [POINTER, I32, mask.type, type]
        )
        return self.builder.call(function, [place, ir.Constant(I32, align), mask, constant(type, 0)])

    def store(self, store: Store, at: At, known: dict[int, ir.Value]) -> None:
        """Write a value of the kernel to its result."""
        b, lanes = self.builder, self.shape.lanes
        dtype = self.kernel.values[store.value].dtype
        place = address(b, self.buffers[store.buffer], self._offset(store.strides, store.offset, at))
        value = self._to_memory(dtype, self.value(store.value, at, known))
        stride, align = store.strides[self.shape.lane], dtype.itemsize
        is_spread = stride != 0 or width(value) > 1
        if not is_spread or (self.shape.size == 1):
            one = value if width(value) == 1 else b.extract_element(value, ir.Constant(I32, 0))
            b.store(one, place, align=align)
            return
        value = splat(b, value, lanes)
        if stride == dtype.itemsize:
            if at.active == lanes:
                b.store(value, place, align=align)
            else:
                mask = self._mask(at)
                types = [value.type, POINTER, I32, mask.type]
                function = declare(b.module, f"llvm.masked.store.{suffix(value.type)}.p0", VOID, types)
                b.call(function, [value, place, ir.Constant(I32, align), mask])
            return
        for k in range(at.active):
            b.store(b.extract_element(value, ir.Constant(I32, k)), address(b, place, k * stride), align=align)

    def _to_register(self, dtype: DType, value: ir.Value) -> ir.Value:
        return self.builder.icmp_unsigned("!=", value, constant(value.type, 0)) if dtype.kind == "bool" else value

    def _to_memory(self, dtype: DType, value: ir.Value) -> ir.Value:
        if dtype.kind != "bool":
            return value
        return self.builder.zext(value, I8 if width(value) == 1 else ir.VectorType(I8, width(value)))


def identity(reduce: Reduce, type: Any) -> ir.Constant:
    """What a reduction starts from: the element that changes nothing."""
    dtype = reduce.dtype
    if reduce.combine in ("sum", "prod"):
        return constant(type, int(reduce.combine == "prod"))
    is_max = reduce.combine == "max"
    if dtype.is_float:
        return constant(type, float("-inf") if is_max else float("inf"))
    if dtype.kind == "bool":
        return constant(type, not is_max)
    bits = 8 * dtype.itemsize
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
    return constant(type, low if is_max else high)


def combined(b: ir.IRBuilder, reduce: Reduce, x: ir.Value, y: ir.Value) -> ir.Value:
    """Two partial results of a reduction as one."""
    is_float = reduce.dtype.is_float
    if reduce.combine == "sum":
        return b.fadd(x, y) if is_float else b.add(x, y)
    if reduce.combine == "prod":
        return b.fmul(x, y) if is_float else b.mul(x, y)
    return (scalar.larger if reduce.combine == "max" else scalar.smaller)(b, reduce.dtype, x, y)
