"""Modules, their functions, and the blocks of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rlx_cpu.native.llvm.ir.types import POINTER, FunctionType, Type
from rlx_cpu.native.llvm.ir.values import Alloca, FunctionArgument, LlvmValue, Phi

_ESCAPED: Final = tuple(f"\\{byte:02x}" for byte in range(256))
"""Bytes as text."""


class Module:
    """Functions that are compiled together.

    Attributes:
        triple: LLVM's triple of the target machine.
        globals: Functions by name.
        sizes: Run-time sizes that functions are passed (`llvm.sizes`); `None` if all sizes are known.
        apart: Library modules whose functions are called, by function name: each is compiled once for many modules.
        foreign: Symbol → the name that loads its address, for called functions of other libraries.
    """

    def __init__(self, name: str, triple: str = "") -> None:
        self.name = name
        self.triple = triple
        self.globals: dict[str, Function] = {}
        self.sizes: object = None
        self.apart: dict[str, Module] = {}
        self.foreign: dict[str, str] = {}
        self._metadata: list[str] = []
        self._data: list[str] = []

    def borrowed(self, name: str, module: Module) -> Function:
        """Declare a function of a separately compiled library module."""
        self.apart[name] = module
        return declare(self, name, module.globals[name].signature.result, module.globals[name].signature.args)

    def data(self, name: str, content: bytes) -> LlvmValue:
        """Add constant bytes, aligned to a cache line; return their address."""
        text = "".join(map(_ESCAPED.__getitem__, content))
        self._data.append(f'@"{name}" = internal constant [{len(content)} x i8] c"{text}", align 64')
        return LlvmValue(POINTER, f'@"{name}"')

    def weights(self, yes: int, no: int) -> str:
        """Return the metadata of a branch of which one side is more likely."""
        text = f'!{{ !"branch_weights", i32 {yes}, i32 {no} }}'
        return f", !prof {self._noted(text)}"

    def nontemporal_note(self) -> str:
        """Return the metadata of a nontemporal store."""
        return f", !nontemporal {self._noted('!{ i32 1 }')}"

    def _noted(self, text: str) -> str:
        if text not in self._metadata:
            self._metadata.append(text)
        return f"!{self._metadata.index(text)}"

    def __str__(self) -> str:
        """The text including library modules, which is self-contained."""
        symbols = dict(self.globals)
        for module in self.apart.values():
            assert not [*module._data, *module._metadata, *module.apart], "what is apart is functions alone"
            defined = {name: each for name, each in module.globals.items() if each.is_defined or name not in symbols}
            symbols |= defined
        return self._text(symbols)

    def alone(self) -> str:
        """Return the text with library functions as declarations."""
        return self._text(self.globals)

    def _text(self, functions: Mapping[str, Function]) -> str:
        head = [f'; ModuleID = "{self.name}"', f'target triple = "{self.triple}"', ""]
        metadata = (f"!{number} = {text}" for number, text in enumerate(self._metadata))
        return "\n".join([*head, *self._data, *map(str, functions.values()), *metadata, ""])


class Function(LlvmValue):
    """A function of a module: declared, and defined once it has a block.

    Attributes:
        linkage: "internal" for one that only its module calls.
        attributes: LLVM attributes.
    """

    __slots__ = ("_blocks", "_count", "_names", "args", "attributes", "linkage", "module", "name", "signature")

    def __init__(self, module: Module, signature: FunctionType, name: str) -> None:
        assert name not in module.globals, f"the module has a function {name}"
        super().__init__(POINTER, f'@"{name}"')
        self.module = module
        self.signature = signature
        self.name = name
        self.linkage = ""
        self.attributes: set[str] = set()
        self._names: dict[str, int] = {}
        self._blocks: list[Block] = []
        self._count = 0
        self.args = tuple(FunctionArgument(each, self.fresh()) for each in signature.args)
        module.globals[name] = self

    def fresh(self) -> str:
        """A name for one more value."""
        self._count += 1
        return f"%.{self._count}"

    def append_basic_block(self, name: str) -> Block:
        taken = self._names.get(name, 0)
        self._names[name] = taken + 1
        block = Block(f"{name}.{taken}" if taken else name, self)
        self._blocks.append(block)
        return block

    @property
    def is_defined(self) -> bool:
        return bool(self._blocks)

    @property
    def entry(self) -> Block:
        return self._blocks[0]

    def __str__(self) -> str:
        result = self.signature.result.text
        if not self._blocks:
            return f"declare {result} {self.text}({', '.join(a.text for a in self.signature.args)})"
        parameters = ", ".join(" ".join([a.type.text, *a.attributes, a.text]) for a in self.args)
        words = [
            "define",
            *filter(None, [self.linkage]),
            result,
            f"{self.text}({parameters})",
            *sorted(self.attributes),
        ]
        return "\n".join([f"{' '.join(words)} {{", *(str(block) for block in self._blocks), "}"])


class Block:
    """Instructions that run one after the other, and where control goes then.

    Attributes:
        lines: Lines of all instructions except the last.
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


def declare(module: Module, name: str, result: Type, arguments: Sequence[Type]) -> Function:
    """A function from elsewhere (an intrinsic, the C library), declared once per module."""
    existing = module.globals.get(name)
    return existing or Function(module, FunctionType(result, arguments), name)
