"""Ops by name, for readers of programs in files."""

from __future__ import annotations

import pytest

from rlx_core.errors import UnknownNameError
from rlx_core.ops.arithmetic import add
from rlx_core.ops.families import FAMILIES, removed_ops
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import default_host


def test_an_op_is_found_by_its_name() -> None:
    assert HostOps(default_host())["rlx.add"] is add.op


@pytest.mark.parametrize("name", sorted(removed_ops()))
def test_an_op_of_an_earlier_version_is_refused_with_the_remedy(name: str) -> None:
    assert name.removeprefix("rlx.") not in " ".join(FAMILIES.values()).split()
    with pytest.raises(UnknownNameError, match="an op of an earlier version") as caught:
        HostOps(default_host())[name]
    assert "trace the function again" in str(caught.value)
