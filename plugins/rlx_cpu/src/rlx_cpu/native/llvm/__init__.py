"""LLVM for this target: its language as text, its compiler, and the words that all emitters write code in.

`ir` is the builder; `build`, `simd`, `cuts`, `elements`, `stored`, `narrow`, `words` and `nontemporal` are its vocabulary.
`isa` says what a processor can do. `optimise` turns text into object files, `objects` keeps them, `jit` links them, `background`
does all that beside the interpreter, and `c_library` says which functions of C generated code may call.
"""
