"""Names in generated source."""

from __future__ import annotations

import pytest

from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.writer import TYPE_NAMES, Writer


@pytest.mark.parametrize("prefix", ["i", "u", "f", "v"])
def test_no_name_is_that_of_a_type(prefix: str) -> None:
    writer = Writer(OPENCL)
    names = [writer.fresh(prefix) for _ in range(70)]
    assert len(set(names)) == len(names)
    assert not TYPE_NAMES.intersection(names)
