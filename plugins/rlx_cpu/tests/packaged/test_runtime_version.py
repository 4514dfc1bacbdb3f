"""The run-time's code in a package is called by whatever rlx opens it, so it has a version that must not be forgotten."""

from __future__ import annotations

import hashlib

from rlx_cpu.native.llvm.isa import portable
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS, VERSION
from rlx_cpu.native.runtime.own_code import module_of

KNOWN = {4: "3a2b1d9d4041b12b"}


def test_the_version_follows_the_code() -> None:
    """If this fails, ask: would a package from before still run? If its words or arguments differ, raise `code.VERSION`."""
    text = "".join(str(module_of(name, portable("avx2"))) for name in (STEPS, ENTRY, RESULT_MEMORY))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == KNOWN[VERSION]
