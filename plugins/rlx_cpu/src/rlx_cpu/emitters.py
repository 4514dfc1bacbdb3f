"""What a package needs to bring machine code of its own to the target `cpu`; these names stay (decision 0021).

A module that is imported with or without llvmlite makes the table, `NativeTable` of `rlx_cpu.native.table`, and names the one
that fills it, which imports this one:

    native = NativeTable(filled_by="acme_rlx.emitters")                  # acme_rlx/native.py
    KernelSpec("cpu", "acme_rlx.native:native")                          # what the hook `rlx_kernels` returns

`docs/how-to/add-a-native-kernel.md` writes one from beginning to end; `native/contract.py` says what an emitter is given.
"""

from rlx_cpu.native.build import memory_type
from rlx_cpu.native.contract import Emit, Emitted, Fault, Layout, Pack, Place
from rlx_cpu.native.movement import WORTH_THREADS, starting
from rlx_cpu.native.simd import counting, offset, pointer_at, share
from rlx_cpu.native.table import NativeTable

__all__ = [
    "WORTH_THREADS",
    "Emit",
    "Emitted",
    "Fault",
    "Layout",
    "NativeTable",
    "Pack",
    "Place",
    "counting",
    "memory_type",
    "offset",
    "pointer_at",
    "share",
    "starting",
]
