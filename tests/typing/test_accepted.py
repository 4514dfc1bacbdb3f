"""What type checkers accept is true when it runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import rlx_core as rlx


@pytest.fixture(scope="module")
def accepted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accepted", Path(__file__).with_name("accepted.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.medium
def test_the_programs_that_type_checkers_accept_run(accepted: ModuleType) -> None:
    assert accepted.train() > 0  # the loss before the last step, beside the one after it
    assert accepted.derivatives() == [(3, 2), (2, 3), (3,), (2, 2)]
    assert len(accepted.spelled_out()) == 12


def test_a_compiled_method_is_bound_to_its_object(accepted: ModuleType) -> None:
    assert accepted.method().tolist() == [2.0, 2.0]


def test_arrays_are_told_from_other_things_at_run_time() -> None:
    seen: list[bool] = []

    def looked_at(x: rlx.Array) -> rlx.Array:
        seen.append(isinstance(x, rlx.Array))
        return x

    rlx.trace(looked_at, np.ones(3))
    assert seen == [True]
    assert isinstance(np.ones(3), rlx.Array)
    assert not isinstance([1.0], rlx.Array)


def test_annotations_may_be_evaluated() -> None:
    """Without `from __future__ import annotations`, and by those who read annotations."""
    for name in ("Array", "ArrayLike", "DTypeLike", "PyTree"):
        assert (getattr(rlx, name) | None) is not None
