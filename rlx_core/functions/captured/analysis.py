"""The names that a code object reads, from its bytecode: globals, variables of enclosing functions, attributes, imports.

A chain is a variable and the attributes read from it directly (`config.train.rate`): if the variable is a module, only the
attributes that the code names are captured.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import Final, Literal

from rlx_core.system.records import frozen

_GLOBAL: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL: Final = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


@frozen
class Chain:
    """A variable, and the attributes that are read from it one after the other."""

    scope: Literal["global", "cell"]
    name: str
    attributes: tuple[str, ...]


@frozen
class Reads:
    """The names that a function can read.

    Attributes:
        chains: Variables with attributes, including those of nested functions.
        names: Every name in the code: attributes, globals and strings that are names, since `getattr` takes those.
        imports: Modules that the code imports, with the level of a relative import.
    """

    chains: frozenset[Chain]
    names: frozenset[str]
    imports: frozenset[tuple[str, int]]


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """List the names that a code object and the code objects inside it read."""
    chains, imports = set(), set()
    names = set(code.co_names)
    names.update(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    instructions = list(dis.get_instructions(code))
    for i, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level = instructions[i - 2].argval if i >= 2 else 0
            imports.add((str(instruction.argval), level if isinstance(level, int) else 0))
            continue
        if instruction.opname in _GLOBAL:
            scope: Literal["global", "cell"] = "global"
        elif instruction.opname in _CELL:
            scope = "cell"
        else:
            continue
        end = i + 1
        while end < len(instructions) and instructions[end].opname in _ATTRIBUTE:
            end += 1
        chains.add(Chain(scope, str(instruction.argval), tuple(str(a.argval) for a in instructions[i + 1 : end])))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            inner_reads = reads_of(inner)
            chains |= inner_reads.chains
            names |= inner_reads.names
            imports |= inner_reads.imports
    return Reads(frozenset(chains), frozenset(names), frozenset(imports))
