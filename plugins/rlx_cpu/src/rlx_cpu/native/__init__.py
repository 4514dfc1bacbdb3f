"""The native tier: LIR steps as LLVM IR, whole runs of them in one native call.

It knows how kernels are emitted, compiled, cached and run by several threads. What a kernel computes comes from the ops' own
definitions, through the loop language of `rlx_core.codegen`; products and attention bring templates of their own.
What runs code (`runtime.pool`, `runtime.entry`) is imported without llvmlite too, for packages; the rest only where it is.

At the bottom is what everything else goes by: `contract` between an emitter and what runs its code, `table` of emitters, `packs`,
and what is known of the `machine` and its `threads`. Folders stand above, from the bottom up, and import nothing beside or above
them but themselves (`tests/test_architecture.py`):

    llvm                                                        the language, its compiler, the words that emitters use
    scalars  movement                                           one element; elements that only move
    loops  products  scans  ordering  indexing  runtime         kernels of each kind, and what runs them
    attention                                                   made from products

On top `kernels` registers all of them, and `coverage`, `listing`, `replay` and `sharing` are for people and tests.
"""
