"""LLVM's language as text: every instruction becomes its line at once, and nothing else is kept of it.

The words are those of `llvmlite.ir`, which keeps an object for each instruction and spells them all when a module is printed:
five times as long, for a tree of instructions that nobody here looks at. Two kinds of values are spelt late, because they change
after they were made: a phi gets its edges, and memory on the stack may be given its alignment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

__all__ = [
    "Alloca",
    "Argument",
    "ArrayType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "HalfType",
    "IRBuilder",
    "IntType",
    "Module",
    "Phi",
    "PointerType",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
]

# ----------------------------------------------------------------------------------------------- types


class Type:
    """A type; two that are spelt alike are the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def number(self, value: Any) -> str:
        """A Python number as a constant of this type."""
        raise AssertionError(f"no number is of type {self.text}")


class IntType(Type):
    __slots__ = ("width",)

    def __init__(self, width: int) -> None:
        super().__init__(f"i{width}")
        self.width = width

    def number(self, value: Any) -> str:
        return str(int(value))


class HalfType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("half")

    def number(self, value: Any) -> str:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04x}"


class FloatType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("float")

    def number(self, value: Any) -> str:
        # A float is spelt as the double that it is.
        return _double(struct.unpack("<f", struct.pack("<f", value))[0])


class DoubleType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("double")

    def number(self, value: Any) -> str:
        return _double(value)


def _double(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


class PointerType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("ptr")


class VoidType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("void")


class VectorType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element.text}>")
        self.element = element
        self.count = count


class ArrayType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"[{count} x {element.text}]")
        self.element = element
        self.count = count


class FunctionType(Type):
    __slots__ = ("args", "result")

    def __init__(self, result: Type, args: Sequence[Type]) -> None:
        super().__init__(f"{result.text} ({', '.join(a.text for a in args)})")
        self.result = result
        self.args = tuple(args)


_POINTER: Final = PointerType()
_BIT: Final = IntType(1)

# ---------------------------------------------------------------------------------------------- values


class _Undefined:
    """The value that says nothing."""


Undefined: Final = _Undefined()


class Value:
    """What an instruction made, by its name."""

    __slots__ = ("text", "type")

    def __init__(self, type: Type, text: str) -> None:
        self.type = type
        self.text = text

    @property
    def typed(self) -> str:
        """As operands of some instructions are spelt."""
        return f"{self.type.text} {self.text}"

    def __repr__(self) -> str:
        return self.typed


class Constant(Value):
    """A number, `None` for a null pointer, `Undefined`, or a sequence of numbers or constants for a vector."""

    __slots__ = ("constant",)

    def __init__(self, type: Type, constant: Any) -> None:
        self.constant = constant
        self.type = type
        if constant is Undefined:
            self.text = "undef"
        elif constant is None:
            self.text = "null"
        elif isinstance(type, VectorType):
            self.text = _vector(type, constant)
        else:
            self.text = type.number(constant)


def _vector(type: VectorType, items: Sequence[Any]) -> str:
    assert len(items) == type.count, f"{type} has {type.count} lanes, not {len(items)}"
    first, element = items[0], type.element
    if all(each is first for each in items):
        return f"splat ({element.text} {_element(element, first)})"
    return f"<{', '.join(f'{element.text} {_element(element, each)}' for each in items)}>"


def _element(type: Type, item: Any) -> str:
    return item.text if isinstance(item, Constant) else type.number(item)


class Argument(Value):
    """What a function is given; it may be named and given attributes before its function's body is built."""

    __slots__ = ("attributes",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.attributes: list[str] = []

    def named(self, name: str) -> None:
        self.text = f"%{name}"

    def add_attribute(self, attribute: str) -> None:
        self.attributes.append(attribute)


class Phi(Value):
    """A value that depends on the block that control comes from."""

    __slots__ = ("_edges",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self._edges: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        assert value.type == self.type, f"a phi of {self.type}, not {value.type}"
        self._edges.append(f"[ {value.text}, %{block.name} ]")

    def __str__(self) -> str:
        return f"  {self.text} = phi {self.type.text} {', '.join(self._edges)}"


class Alloca(Value):
    """Memory on the stack.

    Attributes:
        align: In bytes; the type's own if it is not set.
    """

    __slots__ = ("_what", "align")

    def __init__(self, text: str, what: str) -> None:
        super().__init__(_POINTER, text)
        self._what = what
        self.align: int | None = None

    def __str__(self) -> str:
        return f"  {self.text} = alloca {self._what}{_aligned(self.align)}"


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"


# ------------------------------------------------------------------------------------------- functions


class Module:
    """Functions that are compiled together.

    Attributes:
        triple: The machine that they are for, as LLVM calls it.
        globals: Functions by name.
    """

    def __init__(self, name: str, triple: str = "") -> None:
        self.name = name
        self.triple = triple
        self.globals: dict[str, Function] = {}
        self._metadata: list[str] = []

    def weights(self, yes: int, no: int) -> str:
        """What is attached to a branch of which one side is more likely."""
        text = f'!{{ !"branch_weights", i32 {yes}, i32 {no} }}'
        if text not in self._metadata:
            self._metadata.append(text)
        return f", !prof !{self._metadata.index(text)}"

    def __str__(self) -> str:
        head = [f'; ModuleID = "{self.name}"', f'target triple = "{self.triple}"', ""]
        metadata = (f"!{number} = {text}" for number, text in enumerate(self._metadata))
        return "\n".join([*head, *map(str, self.globals.values()), *metadata, ""])


class Function(Value):
    """A function of a module: declared, and defined once it has a block.

    Attributes:
        linkage: "internal" for one that only its module calls.
        attributes: What LLVM is told of it.
    """

    __slots__ = ("_blocks", "_count", "_names", "args", "attributes", "linkage", "module", "name", "signature")

    def __init__(self, module: Module, signature: FunctionType, name: str) -> None:
        assert name not in module.globals, f"the module has a function {name}"
        super().__init__(_POINTER, f'@"{name}"')
        self.module = module
        self.signature = signature
        self.name = name
        self.linkage = ""
        self.attributes: set[str] = set()
        self._names: dict[str, int] = {}
        self._blocks: list[Block] = []
        self._count = 0
        self.args = tuple(Argument(each, self.fresh()) for each in signature.args)
        module.globals[name] = self

    def fresh(self) -> str:
        """A name for one more value."""
        self._count += 1
        return f"%.{self._count}"

    def append_basic_block(self, name: str) -> Block:
        taken = self._names.get(name, 0)
        self._names[name] = taken + 1
        made = Block(f"{name}.{taken}" if taken else name, self)
        self._blocks.append(made)
        return made

    @property
    def entry(self) -> Block:
        return self._blocks[0]

    def __str__(self) -> str:
        result = self.signature.result.text
        if not self._blocks:
            return f"declare {result} {self.text}({', '.join(a.text for a in self.signature.args)})"
        given = ", ".join(" ".join([a.type.text, *a.attributes, a.text]) for a in self.args)
        words = ["define", *filter(None, [self.linkage]), result, f"{self.text}({given})", *sorted(self.attributes)]
        return "\n".join([f"{' '.join(words)} {{", *(str(block) for block in self._blocks), "}"])


class Block:
    """Instructions that run one after the other, and where control goes then.

    Attributes:
        lines: Of all instructions but the last.
        end: The last one's, once there is one.
    """

    __slots__ = ("end", "function", "lines", "name")

    def __init__(self, name: str, function: Function) -> None:
        self.name = name
        self.function = function
        self.lines: list[str | Phi | Alloca] = []
        self.end: str | None = None

    @property
    def is_terminated(self) -> bool:
        return self.end is not None

    def __str__(self) -> str:
        assert self.end is not None, f"the block {self.name} of {self.function.name} does not end"
        return "\n".join([f"{self.name}:", *map(str, self.lines), self.end])


# --------------------------------------------------------------------------------------- instructions


def _binary(word: str) -> Callable[[IRBuilder, Value, Value], Value]:
    def method(self: IRBuilder, x: Value, y: Value) -> Value:
        name = self.function.fresh()
        self.lines.append(f"  {name} = {word} {x.type.text} {x.text}, {y.text}")
        return Value(x.type, name)

    return method


def _cast(word: str) -> Callable[[IRBuilder, Value, Type], Value]:
    def method(self: IRBuilder, x: Value, type: Type) -> Value:
        return x if x.type == type else self._made(type, f"{word} {x.type.text} {x.text} to {type.text}")

    return method


_COMPARED: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class IRBuilder:
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
        """What is built inside goes to the end of the function's first block."""
        before = self.block
        self.position_at_end(self.function.entry)
        yield
        self.position_at_end(before)

    def _made(self, type: Type, text: str) -> Value:
        name = self.function.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(type, name)

    # ------------------------------------------------------------------------------------- control

    def _end(self, text: str) -> None:
        assert self.block.end is None, f"the block {self.block.name} of {self.function.name} has ended"
        self.block.end = text

    def branch(self, block: Block) -> None:
        self._end(f"  br label %{block.name}")

    def cbranch(self, condition: Value, yes: Block, no: Block, likely: bool | None = None) -> None:
        """Go to one of two blocks, of which one may be known to be likely."""
        weights = "" if likely is None else self.module.weights(*((99, 1) if likely else (1, 99)))
        self._end(f"  br i1 {condition.text}, label %{yes.name}, label %{no.name}{weights}")

    def ret(self, value: Value) -> None:
        self._end(f"  ret {value.typed}")

    def ret_void(self) -> None:
        self._end("  ret void")

    @contextmanager
    def if_then(self, condition: Value, likely: bool | None = None) -> Iterator[Block]:
        """What is built inside runs if the condition holds; given is the block that follows."""
        inside, after = (self.append_basic_block(name) for name in ("if", "endif"))
        self.cbranch(condition, inside, after, likely)
        with self._inside(inside, after):
            yield after
        self.position_at_end(after)

    @contextmanager
    def if_else(
        self, condition: Value, likely: bool | None = None
    ) -> Iterator[tuple[AbstractContextManager[Block], AbstractContextManager[Block]]]:
        """Given are two contexts: what is built inside the first runs if the condition holds, inside the other if not."""
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
        made = Phi(type, self.function.fresh())
        self.lines.append(made)
        return made

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self._made(yes.type, f"select {condition.typed}, {yes.typed}, {no.typed}")

    def call(self, function: Value, operands: Sequence[Value], signature: FunctionType | None = None) -> Value:
        """Call a function, or one of that signature at an address."""
        if signature is None:
            assert isinstance(function, Function), "what lies at an address says no signature"
            signature = function.signature
        given = ", ".join(f"{v.type.text} {v.text}" for v in operands)
        text = f"call {signature.result.text} {function.text}({given})"
        if not isinstance(signature.result, VoidType):
            return self._made(signature.result, text)
        self.lines.append(f"  {text}")
        return Value(signature.result, "")

    # -------------------------------------------------------------------------------------- memory

    def alloca(self, type: Type, size: int | None = None) -> Alloca:
        made = Alloca(self.function.fresh(), type.text if size is None else f"{type.text}, i32 {size}")
        self.lines.append(made)
        return made

    def load(self, pointer: Value, *, typ: Type, align: int) -> Value:
        return self._made(typ, f"load {typ.text}, ptr {pointer.text}, align {align}")

    def store(self, value: Value, pointer: Value, *, align: int) -> None:
        self.lines.append(f"  store {value.type.text} {value.text}, ptr {pointer.text}, align {align}")

    def load_atomic(self, pointer: Value, ordering: str, align: int, *, typ: Type) -> Value:
        return self._made(typ, f"load atomic {typ.text}, ptr {pointer.text} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Value, value: Value, ordering: str) -> Value:
        return self._made(value.type, f"atomicrmw {operation} ptr {pointer.text}, {value.typed} {ordering}")

    def moved(self, pointer: Value, nbytes: Value) -> Value:
        """A pointer some bytes on."""
        return self._made(_POINTER, f"getelementptr i8, ptr {pointer.text}, {nbytes.type.text} {nbytes.text}")

    # --------------------------------------------------------------------------------- comparisons

    def icmp_signed(self, relation: str, x: Value, y: Value) -> Value:
        word = _COMPARED[relation]
        return self._compared(f"icmp {word if relation in ('==', '!=') else 's' + word}", x, y)

    def icmp_unsigned(self, relation: str, x: Value, y: Value) -> Value:
        word = _COMPARED[relation]
        return self._compared(f"icmp {word if relation in ('==', '!=') else 'u' + word}", x, y)

    def fcmp_ordered(self, relation: str, x: Value, y: Value) -> Value:
        """False where one is NaN; `ord` and `uno` ask whether none is, and whether one is."""
        return self._compared(f"fcmp {'o' + _COMPARED[relation] if relation in _COMPARED else relation}", x, y)

    def fcmp_unordered(self, relation: str, x: Value, y: Value) -> Value:
        """True where one is NaN."""
        return self._compared(f"fcmp {'u' + _COMPARED[relation] if relation in _COMPARED else relation}", x, y)

    def _compared(self, words: str, x: Value, y: Value) -> Value:
        kind = VectorType(_BIT, x.type.count) if isinstance(x.type, VectorType) else _BIT
        return self._made(kind, f"{words} {x.type.text} {x.text}, {y.text}")

    # ------------------------------------------------------------------------------------- vectors

    def extract_element(self, vector: Value, lane: Value) -> Value:
        assert isinstance(vector.type, VectorType), f"{vector.type} has no lanes"
        return self._made(vector.type.element, f"extractelement {vector.typed}, {lane.typed}")

    def insert_element(self, vector: Value, value: Value, lane: Value) -> Value:
        return self._made(vector.type, f"insertelement {vector.typed}, {value.typed}, {lane.typed}")

    def shuffle_vector(self, x: Value, y: Value, lanes: Constant) -> Value:
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

    def fneg(self, x: Value) -> Value:
        return self._made(x.type, f"fneg {x.type.text} {x.text}")

    def neg(self, x: Value) -> Value:
        return self.sub(_same(x.type, 0), x)

    def not_(self, x: Value) -> Value:
        return self.xor(x, _same(x.type, -1))


def _same(type: Type, number: int) -> Constant:
    return Constant(type, [number] * type.count if isinstance(type, VectorType) else number)
