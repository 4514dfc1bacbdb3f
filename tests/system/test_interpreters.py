"""A subinterpreter is refused when it uses rlx, and the main one goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        sys.exit(77)
before = BEFORE
if before:
    import numpy as np
    import rlx_core as rlx
    rlx.exp(np.ones(2))
code = '''
import sys
sys.path[:0] = PATH
try:
    import rlx_core
    rlx_core.jit
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise AssertionError("it was used")
'''.replace("PATH", repr(sys.path))
made = interpreters.create()
error = interpreters.run_string(made, code)
assert error is None, error
interpreters.destroy(made)
import numpy as np
import rlx_core as rlx
assert float(rlx.jit(lambda x: x + 1)(np.float32(1))) == 2
"""


@pytest.mark.medium
@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported after"])
def test_a_subinterpreter_is_refused_by_name(before: bool) -> None:
    program = PROGRAM.replace("BEFORE", str(before))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode == 77:
        pytest.skip("this Python has no subinterpreters")
    assert found.returncode == 0, found.stderr[-2000:]
