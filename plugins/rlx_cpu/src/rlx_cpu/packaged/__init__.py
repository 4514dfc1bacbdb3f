"""Native programs in a file: written where LLVM is (`writing`, which links with `elf` and `linking`), run without it.

What runs them imports nothing that emits code: `features` says what this machine has, `image` and `mapping` put code where
it can be executed, `form` is a program as data, and `program` runs it with the pool and the entry that all native programs share.
"""
