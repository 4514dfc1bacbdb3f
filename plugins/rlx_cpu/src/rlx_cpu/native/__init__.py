"""The native tier: LIR steps as LLVM IR, with whole sequences of steps in one native call.

This package emits, compiles and caches kernels and runs them with several threads. Element-wise semantics come from the ops'
definitions, through the loop language of `rlx_core.codegen`; products and attention use dedicated templates. The modules that
run code (`runtime.pool`, `runtime.entry`) can be imported without llvmlite, for packages; the others cannot.

The lowest layer is `contract` (between an emitter and the runtime), `table` (of emitters), `packs`, and the properties of the
`machine` and its `threads`. The folders form layers, listed here from the bottom up; a folder imports only itself and lower
layers (`tests/test_architecture.py`):

    llvm                                                        the IR builder, the compiler, helpers shared by emitters
    scalars  movement                                           scalar functions; data movement
    loops  products  scans  ordering  indexing  runtime         kernels of each kind, and the runtime
    attention                                                   built from products

At the top, `kernels` registers all of them; `coverage`, `listing`, `replay` and `sharing` are diagnostics and test support.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_cpu.native import packs

__all__ = ["packs"]

if not TYPE_CHECKING:  # most programs have no packed operands
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
