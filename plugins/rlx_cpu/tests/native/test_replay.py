"""The code that native kernels emit is what the table of hashes says: a change that moves code shows that it changes none."""

from __future__ import annotations

import pytest

from rlx_cpu.native.llvm.isa import ISAS, Isa
from rlx_cpu.native.replay import TABLE, differences, hashes, print_table, read_table

QUICK = "avx2"


SETS = [pytest.param(i, marks=() if i.name == QUICK else pytest.mark.slow) for i in ISAS]


@pytest.mark.parametrize("isa", SETS, ids=lambda isa: isa.name)
def test_every_kernel_emits_the_code_that_it_did(isa: Isa) -> None:
    kept = read_table(TABLE.read_text(encoding="utf-8"))[isa.name]
    found = differences(kept, hashes(isa))
    assert not found, f"other code; if that is meant: python -m rlx_cpu.native.replay --update\n{found}"


def test_other_code_new_kernels_and_kernels_that_are_gone_are_found() -> None:
    kept = {"same": "a", "other": "b", "gone": "c"}
    assert differences(kept, {"same": "a", "other": "x", "new": "d"}) == ["gone", "new", "other"]


def test_a_table_is_read_as_it_was_printed() -> None:
    columns = {"avx2": {"native_sort[rlx.sort]": "0123456789ab"}, "neon": {"native_sort[rlx.sort]": "ba9876543210"}}
    assert read_table(print_table(columns)) == columns
