"""Instructions, in the words of `llvmlite.ir`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from rlx_cpu.native.llvm.ir.functions import Block, Function
from rlx_cpu.native.llvm.ir.types import BIT, POINTER, FunctionType, Type, VectorType, VoidType
from rlx_cpu.native.llvm.ir.values import Alloca, LlvmConstant, LlvmValue, Phi


def _binary(word: str) -> Callable[[Instructions, LlvmValue, LlvmValue], LlvmValue]:
    def method(self: Instructions, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        name = self.function.fresh()
        self.lines.append(f"  {name} = {word} {x.type.text} {x.text}, {y.text}")
        return LlvmValue(x.type, name)

    return method


def _cast(word: str) -> Callable[[Instructions, LlvmValue, Type], LlvmValue]:
    def method(self: Instructions, x: LlvmValue, type: Type) -> LlvmValue:
        return x if x.type == type else self._made(type, f"{word} {x.type.text} {x.text} to {type.text}")

    return method


_COMPARED: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Instructions:
    """Adds instructions at the end of a block, before whatever ends it."""

    __slots__ = ("block", "function", "lines", "module")

    def __init__(self, block: Block) -> None:
        self.function = block.function
        self.module = block.function.module
        self.position_at_end(block)

    def position_at_end(self, block: Block) -> None:
        self.block = block
        self.lines = block.lines

    def append_basic_block(self, name: str) -> Block:
        return self.function.append_basic_block(name)

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """Context whose code is appended to the function's first block."""
        before = self.block
        self.position_at_end(self.function.entry)
        yield
        self.position_at_end(before)

    def _made(self, type: Type, text: str) -> LlvmValue:
        name = self.function.fresh()
        self.lines.append(f"  {name} = {text}")
        return LlvmValue(type, name)

    # ------------------------------------------------------------------------------------- control

    def _end(self, text: str) -> None:
        assert self.block.end is None, f"the block {self.block.name} of {self.function.name} has ended"
        self.block.end = text

    def branch(self, block: Block) -> None:
        self._end(f"  br label %{block.name}")

    def cbranch(self, condition: LlvmValue, yes: Block, no: Block, likely: bool | None = None) -> None:
        """Go to one of two blocks, of which one may be known to be likely."""
        weights = "" if likely is None else self.module.weights(*((99, 1) if likely else (1, 99)))
        self._end(f"  br i1 {condition.text}, label %{yes.name}, label %{no.name}{weights}")

    def ret(self, value: LlvmValue) -> None:
        self._end(f"  ret {value.typed}")

    def ret_void(self) -> None:
        self._end("  ret void")

    @contextmanager
    def if_then(self, condition: LlvmValue, likely: bool | None = None) -> Iterator[Block]:
        """Context whose code runs if the condition is true; yields the block that follows."""
        inside, after = (self.append_basic_block(name) for name in ("if", "endif"))
        self.cbranch(condition, inside, after, likely)
        with self._inside(inside, after):
            yield after
        self.position_at_end(after)

    @contextmanager
    def if_else(
        self, condition: LlvmValue, likely: bool | None = None
    ) -> Iterator[tuple[AbstractContextManager[Block], AbstractContextManager[Block]]]:
        """Yield two contexts: the code of the first runs if the condition is true, that of the other if not."""
        then, other, after = (self.append_basic_block(name) for name in ("if", "else", "endif"))
        self.cbranch(condition, then, other, likely)
        yield self._inside(then, after), self._inside(other, after)
        self.position_at_end(after)

    @contextmanager
    def _inside(self, block: Block, after: Block) -> Iterator[Block]:
        self.position_at_end(block)
        yield after
        if not self.block.is_terminated:
            self.branch(after)

    def phi(self, type: Type) -> Phi:
        phi = Phi(type, self.function.fresh())
        self.lines.append(phi)
        return phi

    def select(self, condition: LlvmValue, yes: LlvmValue, no: LlvmValue) -> LlvmValue:
        return self._made(yes.type, f"select {condition.typed}, {yes.typed}, {no.typed}")

    def call(
        self, function: LlvmValue, operands: Sequence[LlvmValue], signature: FunctionType | None = None
    ) -> LlvmValue:
        """Call a function, or one of that signature at an address."""
        if signature is None:
            assert isinstance(function, Function), "what lies at an address says no signature"
            signature = function.signature
        operand_text = ", ".join(f"{v.type.text} {v.text}" for v in operands)
        text = f"call {signature.result.text} {function.text}({operand_text})"
        if not isinstance(signature.result, VoidType):
            return self._made(signature.result, text)
        self.lines.append(f"  {text}")
        return LlvmValue(signature.result, "")

    # -------------------------------------------------------------------------------------- memory

    def alloca(self, type: Type, size: int | None = None) -> Alloca:
        allocation = Alloca(self.function.fresh(), type.text if size is None else f"{type.text}, i32 {size}")
        self.lines.append(allocation)
        return allocation

    def load(self, pointer: LlvmValue, *, typ: Type, align: int) -> LlvmValue:
        return self._made(typ, f"load {typ.text}, ptr {pointer.text}, align {align}")

    def store(self, value: LlvmValue, pointer: LlvmValue, *, align: int, is_nontemporal: bool = False) -> None:
        """Write a value; past the caches, where it is nontemporal and the processor can."""
        noted = self.module.nontemporal_note() if is_nontemporal else ""
        self.lines.append(f"  store {value.type.text} {value.text}, ptr {pointer.text}, align {align}{noted}")

    def load_atomic(self, pointer: LlvmValue, ordering: str, align: int, *, typ: Type) -> LlvmValue:
        return self._made(typ, f"load atomic {typ.text}, ptr {pointer.text} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: LlvmValue, value: LlvmValue, ordering: str) -> LlvmValue:
        return self._made(value.type, f"atomicrmw {operation} ptr {pointer.text}, {value.typed} {ordering}")

    def compare_exchange(self, pointer: LlvmValue, expected: LlvmValue, value: LlvmValue) -> LlvmValue:
        """Write a value where the expected one still is, as one step; whether it was."""
        pair = f"{{ {value.type.text}, i1 }}"
        exchange = self._made(
            value.type, f"cmpxchg ptr {pointer.text}, {expected.typed}, {value.typed} seq_cst seq_cst"
        )
        return self._made(BIT, f"extractvalue {pair} {exchange.text}, 1")

    def moved(self, pointer: LlvmValue, nbytes: LlvmValue) -> LlvmValue:
        """A pointer some bytes on."""
        return self._made(POINTER, f"getelementptr i8, ptr {pointer.text}, {nbytes.type.text} {nbytes.text}")

    # --------------------------------------------------------------------------------- comparisons

    def icmp_signed(self, relation: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        word = _COMPARED[relation]
        return self._compared(f"icmp {word if relation in ('==', '!=') else 's' + word}", x, y)

    def icmp_unsigned(self, relation: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        word = _COMPARED[relation]
        return self._compared(f"icmp {word if relation in ('==', '!=') else 'u' + word}", x, y)

    def fcmp_ordered(self, relation: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        """False where one is NaN; `ord` and `uno` ask whether none is, and whether one is."""
        return self._compared(f"fcmp {'o' + _COMPARED[relation] if relation in _COMPARED else relation}", x, y)

    def fcmp_unordered(self, relation: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        """True where one is NaN."""
        return self._compared(f"fcmp {'u' + _COMPARED[relation] if relation in _COMPARED else relation}", x, y)

    def _compared(self, words: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
        kind = VectorType(BIT, x.type.count) if isinstance(x.type, VectorType) else BIT
        return self._made(kind, f"{words} {x.type.text} {x.text}, {y.text}")

    # ------------------------------------------------------------------------------------- vectors

    def extract_element(self, vector: LlvmValue, lane: LlvmValue) -> LlvmValue:
        assert isinstance(vector.type, VectorType), f"{vector.type} has no lanes"
        return self._made(vector.type.element, f"extractelement {vector.typed}, {lane.typed}")

    def insert_element(self, vector: LlvmValue, value: LlvmValue, lane: LlvmValue) -> LlvmValue:
        return self._made(vector.type, f"insertelement {vector.typed}, {value.typed}, {lane.typed}")

    def shuffle_vector(self, x: LlvmValue, y: LlvmValue, lanes: LlvmConstant) -> LlvmValue:
        assert isinstance(x.type, VectorType), f"{x.type} has no lanes"
        assert isinstance(lanes.type, VectorType), "lanes are chosen by a vector"
        kind = VectorType(x.type.element, lanes.type.count)
        return self._made(kind, f"shufflevector {x.typed}, {y.typed}, {lanes.typed}")

    # ---------------------------------------------------------------------------------- arithmetic

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    sdiv, udiv, srem, urem = _binary("sdiv"), _binary("udiv"), _binary("srem"), _binary("urem")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    fadd, fsub, fmul = _binary("fadd"), _binary("fsub"), _binary("fmul")
    fdiv, frem = _binary("fdiv"), _binary("frem")

    bitcast, inttoptr, ptrtoint = _cast("bitcast"), _cast("inttoptr"), _cast("ptrtoint")
    zext, sext, trunc = _cast("zext"), _cast("sext"), _cast("trunc")
    fpext, fptrunc = _cast("fpext"), _cast("fptrunc")
    sitofp, uitofp, fptosi, fptoui = _cast("sitofp"), _cast("uitofp"), _cast("fptosi"), _cast("fptoui")

    def fneg(self, x: LlvmValue) -> LlvmValue:
        return self._made(x.type, f"fneg {x.type.text} {x.text}")

    def neg(self, x: LlvmValue) -> LlvmValue:
        return self.sub(_same(x.type, 0), x)

    def not_(self, x: LlvmValue) -> LlvmValue:
        return self.xor(x, _same(x.type, -1))


def _same(type: Type, number: int) -> LlvmConstant:
    return LlvmConstant(type, [number] * type.count if isinstance(type, VectorType) else number)
