"""Emitters run on their own: compiled here, called through ctypes, with canaries around every buffer that they may write."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen
from quads import SETS, label, runs_here, with_meanings

import rlx_cpu.native.loops.rows  # noqa: F401  fills the table of vector functions
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_cpu.native.contract import ALIGNMENT, Emit, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.llvm.jit import JitCode, compile_module, keeping, link
from rlx_cpu.native.llvm.optimise import assembly, generate, new_module
from rlx_cpu.native.machine import assumed

WIDTHS = tuple({isa.vector_bytes: isa for isa in reversed(available())}.values())[::-1]
"""One instruction set of each width: what those of one width print differs in products of bf16 alone (`test_widths.py`)."""

EVERY_ISA = pytest.mark.parametrize("isa", available(), ids=lambda isa: isa.name)
EVERY_WIDTH = pytest.mark.parametrize("isa", WIDTHS, ids=lambda isa: isa.name)
EVERY_QUAD = pytest.mark.parametrize("isa", [*WIDTHS, *SETS], ids=label)
"""One instruction set of each width, and the sets with products of four bytes, computed by their meaning where this machine has
none."""


def products_of(*dtypes: str) -> pytest.MarkDecorator:
    """Each dtype on every instruction set that prints products of it in a way of its own."""
    pairs = [(isa, of) for of in dtypes for isa in (available() if of == "bf16" else WIDTHS)]
    return pytest.mark.parametrize(("isa", "of"), pairs, ids=[f"{of}-{isa.name}" for isa, of in pairs])


def integers_of(*dtypes: str, more: str | None = None, values: Sequence[Any] = ()) -> pytest.MarkDecorator:
    """Each dtype, with a further value if that is named, on the sets that print products of it in ways of their own."""
    rows = [(of, value) for of, value in zip(dtypes, values or dtypes, strict=True)]
    found = [(isa, *row) for row in rows for isa in (WIDTHS + SETS if row[0] in ("i8", "u8") else WIDTHS)]
    cases = [each if more else each[:2] for each in found]
    return pytest.mark.parametrize(
        ("isa", "of", *([more] if more else [])),
        cases,
        ids=["-".join((*map(str, each[1:]), label(each[0]))) for each in cases],
    )


CANARY = 0xA5
GUARD = 256  # bytes on either side


@frozen(eq=False)
class Kernel:
    """A compiled kernel, and what it asked for."""

    code: JitCode
    emitted: Emitted
    layout: Layout
    module: ir.Module
    isa: Isa

    @property
    def assembly(self) -> str:
        return assembly(self.module, self.isa)

    def __call__(
        self,
        *operands: np.ndarray | None,
        threads: int = 1,
        in_place: Mapping[int, Sequence[int]] | None = None,
        is_last_first: bool = True,
        shift: int = 0,
    ) -> tuple[np.ndarray, ...]:
        """The results; parts are run one after the other, which no kernel can tell, by a thread in turn.

        Args:
            in_place: Result → the operands whose bytes it takes over, all of which lie there; each as dense as the result.
            is_last_first: Whether parts are run from the last to the first.
            shift: Bytes after a cache line where results begin.
        """
        results = [Guarded(p, shift) for p in self.layout.results]
        packs = [
            aligned(p.pack(_present(operands[p.operand])).view(np.uint8), p.nbytes if p.view is None else p.capacity)
            for p in self.emitted.packs
        ]
        hidden = {p.operand for p in self.emitted.packs if p.replaces}
        buffers: list[int | None] = [
            None if x is None or i in hidden else x.ctypes.data for i, x in enumerate(operands)
        ]
        for number, taken in (in_place or {}).items():
            for position in taken:
                results[number].hold(_present(operands[position]))
                buffers[position] = results[number].address
        buffers += [r.address for r in results]
        scratch = Guarded.bytes(self.emitted.workspace_stride * threads + self.emitted.shared_stride)
        if self.emitted.has_workspace:
            buffers.append(scratch.address)
        buffers += [p.ctypes.data for p in packs]
        status = np.zeros(4, np.int64)
        if self.emitted.has_status:
            buffers.append(status.ctypes.data)
        pointers = (ctypes.c_void_p * len(buffers))(*buffers)
        parts = 1 if threads == 1 else max(self.emitted.parts, threads)
        for name in (self.emitted.prologue, self.emitted.function):
            if name is not None:
                function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(self.code.address(name))
                for part in reversed(range(parts)) if is_last_first else range(parts):
                    function(ctypes.addressof(pointers), part, parts, part % threads)
        for guarded in (*results, scratch):
            guarded.check()
        return tuple(r.array for r in results)


class Guarded:
    """A buffer that notices writes outside of it."""

    def __init__(self, place: Place, shift: int = 0) -> None:
        shape = place.type.static_shape
        extent = sum(s * (d - 1) for s, d in zip(place.strides, shape, strict=True)) + place.type.dtype.itemsize
        nbytes = extent if 0 not in shape else 0
        self._memory = aligned(np.full(nbytes + 2 * GUARD, CANARY, np.uint8), nbytes + 2 * GUARD)
        self._inside = np.zeros(nbytes + 2 * GUARD, bool)
        start = GUARD + shift
        inner = self._memory[start : start + nbytes]
        self.array = np.ndarray(shape, place.type.dtype.numpy, inner, 0, place.strides) if nbytes else np.empty(
            shape, place.type.dtype.numpy
        )  # fmt: skip
        if nbytes:
            bytes_ = np.ndarray((*shape, place.type.dtype.itemsize), bool, self._inside, start, (*place.strides, 1))
            bytes_[...] = True
        self.address = self._memory.ctypes.data + start

    def hold(self, array: np.ndarray) -> None:
        """Begin as the bytes of a dense array of as many elements of the same size."""
        assert array.flags.c_contiguous, "what is taken over is dense"
        self.array.view(f"V{array.itemsize}")[...] = array.view(f"V{array.itemsize}")

    @classmethod
    def bytes(cls, nbytes: int) -> Guarded:
        return cls(Place.dense(TensorType(dtype("u8"), (nbytes,))))

    def check(self) -> None:
        """Bytes between and around the elements are as they were."""
        assert (self._memory[~self._inside] == CANARY).all(), "written out of bounds"


def aligned(source: np.ndarray, nbytes: int) -> np.ndarray:
    """A copy that starts at a multiple of `ALIGNMENT`."""
    assert source.nbytes == nbytes, "as many bytes as were announced"
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    memory[start : start + nbytes] = source.reshape(-1).view(np.uint8)
    return memory[start : start + nbytes]


def place_of(array: np.ndarray, **more: Any) -> Place:
    return Place(TensorType(dtype(array.dtype), array.shape), array.strides, **more)


def kernel(
    emit: Emit,
    op: Op,
    operands: Sequence[np.ndarray | None],
    isa: Isa,
    *,
    bound: Sequence[int] = (),
    results: Sequence[Place] | None = None,
) -> Kernel:
    """Compile `op` for operands that lie in memory as these do.

    Args:
        isa: A set of this machine, or one with products of four bytes (`quads`).
        bound: Operands that are packed ahead if the emitter likes.
        results: Where results lie; dense by default.
    """
    places = tuple(None if x is None else place_of(x, is_bound=i in bound) for i, x in enumerate(operands))
    isa = evolve(isa, machine=assumed())
    builder = Builder()
    values = [None if p is None else builder.input(f"x{i}", p.type) for i, p in enumerate(places)]
    node = builder.emit(op, values)[0].node
    layout = Layout(places, tuple(results or (Place.dense(t) for t in node.types)))
    module = new_module("kernel")
    emitted = emit(module, node, layout, isa, "kernel")
    if runs_here(isa):
        with keeping(None):  # nobody asks for it again
            code = compile_module(module, isa)
    else:
        here = available()[0]
        code = JitCode(link([generate(with_meanings(str(module)), here)], here), is_cached=False)
    return Kernel(code, emitted, layout, module, isa)


def _present(operand: np.ndarray | None) -> np.ndarray:
    assert operand is not None, "packed operands are there"
    return operand
