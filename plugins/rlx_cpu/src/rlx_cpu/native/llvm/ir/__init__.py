"""LLVM IR as text: every instruction is formatted as a line immediately, and no object is kept for it.

The API is that of `llvmlite.ir`, which keeps an object for each instruction and formats them when a module is printed. That
takes five times as long, for an instruction tree that is not used here. Two kinds of values are formatted late, because they
change after their creation: a phi gets its edges, and stack memory may be given its alignment.
"""

from __future__ import annotations

from rlx_cpu.native.llvm.ir.assembler import IRBuilder as IRBuilder
from rlx_cpu.native.llvm.ir.assembler import new_function as new_function
from rlx_cpu.native.llvm.ir.functions import Block as Block
from rlx_cpu.native.llvm.ir.functions import Function as Function
from rlx_cpu.native.llvm.ir.functions import Module as Module
from rlx_cpu.native.llvm.ir.types import ArrayType as ArrayType
from rlx_cpu.native.llvm.ir.types import DoubleType as DoubleType
from rlx_cpu.native.llvm.ir.types import FloatType as FloatType
from rlx_cpu.native.llvm.ir.types import FunctionType as FunctionType
from rlx_cpu.native.llvm.ir.types import HalfType as HalfType
from rlx_cpu.native.llvm.ir.types import IntType as IntType
from rlx_cpu.native.llvm.ir.types import PointerType as PointerType
from rlx_cpu.native.llvm.ir.types import Type as Type
from rlx_cpu.native.llvm.ir.types import VectorType as VectorType
from rlx_cpu.native.llvm.ir.types import VoidType as VoidType
from rlx_cpu.native.llvm.ir.values import Alloca as Alloca
from rlx_cpu.native.llvm.ir.values import FunctionArgument as FunctionArgument
from rlx_cpu.native.llvm.ir.values import LlvmConstant as LlvmConstant
from rlx_cpu.native.llvm.ir.values import LlvmValue as LlvmValue
from rlx_cpu.native.llvm.ir.values import Phi as Phi
from rlx_cpu.native.llvm.ir.values import Undefined as Undefined
