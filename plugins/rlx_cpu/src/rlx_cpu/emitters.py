"""Public API for packages that add native code to the target `cpu`; these names are stable (decision 0021).

A module that can be imported without llvmlite creates the table, `NativeTable` of `rlx_cpu.native.table`, and names the module
that fills it, which imports this one:

    native = NativeTable(filled_by="acme_rlx.emitters")                  # acme_rlx/native.py
    KernelSpec("cpu", "acme_rlx.native:native")                          # returned by the hook `rlx_kernels`

`docs/how-to/add-a-native-kernel.md` is a tutorial; `native/contract.py` specifies the arguments and results of an emitter.
"""

import typing

from rlx_core import public
from rlx_core.codegen.places import Fault as Fault
from rlx_core.codegen.places import Layout as Layout
from rlx_core.codegen.places import Place as Place
from rlx_cpu.native.contract import Emit as Emit
from rlx_cpu.native.contract import Emitted as Emitted
from rlx_cpu.native.contract import Pack as Pack
from rlx_cpu.native.contract import aligned as aligned
from rlx_cpu.native.llvm.build import memory_type as memory_type
from rlx_cpu.native.llvm.build import splat as splat
from rlx_cpu.native.llvm.build import starting as starting
from rlx_cpu.native.llvm.build import variable as variable
from rlx_cpu.native.llvm.foreign import ForeignFunction as ForeignFunction
from rlx_cpu.native.llvm.foreign import call_foreign as call_foreign
from rlx_cpu.native.llvm.ir.assembler import intrinsic as intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant as constant
from rlx_cpu.native.llvm.simd import counting as counting
from rlx_cpu.native.llvm.simd import index as index
from rlx_cpu.native.llvm.simd import offset as offset
from rlx_cpu.native.llvm.simd import pointer_at as pointer_at
from rlx_cpu.native.llvm.simd import share as share
from rlx_cpu.native.llvm.status import is_lowest as is_lowest
from rlx_cpu.native.llvm.status import report_lowest as report_lowest
from rlx_cpu.native.machine import MACHINE as _MACHINE
from rlx_cpu.native.systems.elimination import Elimination as Elimination
from rlx_cpu.native.systems.elimination import SystemRows as SystemRows
from rlx_cpu.native.systems.rank import numerical_rank as numerical_rank
from rlx_cpu.native.table import NativeTable as NativeTable

WORTH_THREADS = _MACHINE.serial_nbytes
"""Bytes below which one thread is done before another has begun; `isa.machine.serial_nbytes` is what tests may change."""

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = public.reexports(__name__)[0]
