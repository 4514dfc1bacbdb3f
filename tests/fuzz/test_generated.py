"""2,000 generated programs on the CPU: each against float64, without passes, and bit for bit on other numbers of threads."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")
pytest.importorskip("llvmlite", reason="it is about native code: llvmlite is not installed")

import rlx_cpu.plugin
from rlx_core.plugins import PluginHost
from rlx_core.testing.fuzz import complaint, reduced
from rlx_core.testing.generate import generate
from rlx_core.testing.kept import text_of
from rlx_cpu.fuzz_setups import FUZZ_SETUPS
from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])
PROGRAMS, BATCH = 2000, 25  # batches, so that processes that share the tests share these


@pytest.mark.medium
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_generated_programs_mean_on_the_cpu_what_they_mean_in_float64(first: int) -> None:
    for seed in range(first, first + BATCH):
        program = generate(seed)
        # Every second program is shared among threads however small it is; the others run as they would.
        with everything_is_shared() if seed % 2 else nullcontext():
            if complaint(program, FUZZ_SETUPS, host=HOST) is None:
                continue
            smallest, why = reduced(program, FUZZ_SETUPS, host=HOST)
            pytest.fail(f"seed {seed}; put this into tests/fuzz/cases:\n{text_of(smallest, why)}", pytrace=False)


def test_the_ways_are_those_that_are_promised() -> None:
    """One thread, three, and a plan without shared bytes repeat two to the bit; native code and NumPy run without passes."""
    assert [w.name for w in FUZZ_SETUPS if w.repeats == "2 threads"] == ["1 thread", "3 threads", "nothing in place"]
    assert [w.name for w in FUZZ_SETUPS if w.is_apart] == ["nothing in place"]
    assert {w.every for w in FUZZ_SETUPS if w.config.get("use") == "none"} == {1, 4}
