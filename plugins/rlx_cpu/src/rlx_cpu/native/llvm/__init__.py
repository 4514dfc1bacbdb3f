"""LLVM for this target: the IR builder, the compiler, and helpers with which all emitters write code.

`ir` is the builder; `build`, `simd`, `cuts`, `elements`, `stored`, `narrow`, `words` and `nontemporal` are helpers on top of
it. `isa` describes instruction sets. `optimise` compiles text to object files, `objects` caches them, `jit` links them, those
from a cache by `loading` without LLVM. `boundary` loads LLVM's library, `background` runs these jobs in parallel with the
interpreter, and `c_library` lists the functions of C that generated code may call.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import background, boundary, build, ir, loading, sizes

__all__ = ["background", "boundary", "build", "ir", "loading", "sizes"]

if not TYPE_CHECKING:  # code from a cache is linked without them
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
