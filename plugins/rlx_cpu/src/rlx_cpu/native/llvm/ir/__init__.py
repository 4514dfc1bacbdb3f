"""LLVM IR as text: every instruction is formatted as a line immediately, and no object is kept for it.

The API is that of `llvmlite.ir`, which keeps an object for each instruction and formats them when a module is printed. That
takes five times as long, for an instruction tree that is not used here. Two kinds of values are formatted late, because they
change after their creation: a phi gets its edges, and stack memory may be given its alignment.
"""

from __future__ import annotations

from rlx_cpu.native.llvm.ir.assembler import IRBuilder, new_function
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
    "new_function",
]
