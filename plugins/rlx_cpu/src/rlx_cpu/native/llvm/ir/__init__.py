"""LLVM's language as text: every instruction becomes its line at once, and nothing else is kept of it.

The words are those of `llvmlite.ir`, which keeps an object for each instruction and spells them all when a module is printed:
five times as long, for a tree of instructions that nobody here looks at. Two kinds of values are spelt late, because they change
after they were made: a phi gets its edges, and memory on the stack may be given its alignment.
"""

from __future__ import annotations

from rlx_cpu.native.llvm.ir.assembler import IRBuilder
from rlx_cpu.native.llvm.ir.functions import Block, Function, Module
from rlx_cpu.native.llvm.ir.types import (
    ArrayType,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    PointerType,
    Type,
    VectorType,
    VoidType,
)
from rlx_cpu.native.llvm.ir.values import Alloca, FunctionArgument, LlvmConstant, LlvmValue, Phi, Undefined

__all__ = [
    "Alloca",
    "ArrayType",
    "Block",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionArgument",
    "FunctionType",
    "HalfType",
    "IRBuilder",
    "IntType",
    "LlvmConstant",
    "LlvmValue",
    "Module",
    "Phi",
    "PointerType",
    "Type",
    "Undefined",
    "VectorType",
    "VoidType",
]
