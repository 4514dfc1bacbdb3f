"""What tests of torch share: torch itself, or the command that installs it; and its warnings, which are not ours."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "rlx_torch/tests" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning"))


@pytest.fixture(autouse=True)
def _the_same_numbers() -> None:
    """Torch's generator starts anew, and what dynamo compiled is forgotten."""
    torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")
    torch.manual_seed(0)
    torch._dynamo.reset()
