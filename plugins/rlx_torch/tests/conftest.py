"""What tests of torch share: its warnings are not ours, its generator starts anew, and what dynamo compiled is forgotten."""

from __future__ import annotations

import sys

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "rlx_torch/tests" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning"))


@pytest.fixture(autouse=True)
def _the_same_numbers() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
        torch._dynamo.reset()
