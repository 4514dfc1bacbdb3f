"""The native tier: LIR steps as LLVM IR, whole runs of them in one native call.

It knows how kernels are emitted, compiled, cached and run by several threads. What a kernel computes comes from the ops' own
definitions, through the loop language of `rlx_core.codegen`; products and attention bring templates of their own.
Nothing here is imported unless llvmlite is installed.
"""
