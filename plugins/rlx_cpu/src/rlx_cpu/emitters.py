"""Public API for packages that add native code to the target `cpu`; these names are stable (decision 0021).

A module that can be imported without llvmlite creates the table, `NativeTable` of `rlx_cpu.native.table`, and names the module
that fills it, which imports this one:

    native = NativeTable(filled_by="acme_rlx.emitters")                  # acme_rlx/native.py
    KernelSpec("cpu", "acme_rlx.native:native")                          # returned by the hook `rlx_kernels`

`docs/how-to/add-a-native-kernel.md` is a tutorial; `native/contract.py` specifies the arguments and results of an emitter.
"""

from rlx_core.codegen.places import Fault, Layout, Place
from rlx_cpu.native.contract import Emit, Emitted, Pack, aligned
from rlx_cpu.native.llvm.build import memory_type, splat, starting, variable
from rlx_cpu.native.llvm.foreign import ForeignFunction, call_foreign
from rlx_cpu.native.llvm.ir.assembler import intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.status import is_lowest, report_lowest
from rlx_cpu.native.machine import MACHINE
from rlx_cpu.native.systems.elimination import Elimination, SystemRows
from rlx_cpu.native.systems.rank import numerical_rank
from rlx_cpu.native.table import NativeTable

__all__ = [
    "WORTH_THREADS",
    "Elimination",
    "Emit",
    "Emitted",
    "Fault",
    "ForeignFunction",
    "Layout",
    "NativeTable",
    "Pack",
    "Place",
    "SystemRows",
    "aligned",
    "call_foreign",
    "constant",
    "counting",
    "index",
    "intrinsic",
    "is_lowest",
    "memory_type",
    "numerical_rank",
    "offset",
    "pointer_at",
    "report_lowest",
    "share",
    "splat",
    "starting",
    "variable",
]

WORTH_THREADS = MACHINE.serial_nbytes
"""Bytes below which one thread is done before another has begun; `isa.machine.serial_nbytes` is what tests may change."""
