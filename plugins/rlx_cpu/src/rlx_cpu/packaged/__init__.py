"""Native programs in a file: written where LLVM is (`writing`, which links with `elf` and `linking`), run without it.

The modules that run programs import no code generator: `features` detects the processor's features, `image` and `mapping` load
code into executable memory, `form` is a program as data, and `program` runs it with the pool and the entry that all native
programs share.
"""
