"""With `RLX_TEST_HOST=NAME` this plugin's tests run as on another processor of the table in `native/hosts.py`."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

_NAME = os.environ.get("RLX_TEST_HOST")
_MASK = ExitStack()

if _NAME is not None:  # when this file is imported: the test files ask for instruction sets when they are imported
    from hosts import HOSTS, masked

    from rlx_cpu.native.llvm.isa import assuming_host

    _ROW = next((row for row in HOSTS if row.name == _NAME), None)
    _HOST = None if _ROW is None else masked(_ROW)
    if _HOST is None:
        raise pytest.UsageError(
            f"RLX_TEST_HOST={_NAME}: this machine cannot run code for it; the table has "
            f"{', '.join(row.name for row in HOSTS if masked(row) is not None)} that it can run"
        )
    _MASK.enter_context(assuming_host(_HOST))
