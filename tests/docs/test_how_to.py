"""The pages on how to extend rlx are programs that work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.every_case

HAS_NATIVE_CODE = all(importlib.util.find_spec(name) is not None for name in ("rlx_cpu", "llvmlite"))


@pytest.mark.parametrize("page", ["how-to/add-an-op", "how-to/add-a-pass", "how-to/add-a-backend", "types"])
def test_the_page_prints_what_it_shows(run_page: Callable[[str], None], page: str) -> None:
    run_page(f"{page}.md")


@pytest.mark.skipif(not HAS_NATIVE_CODE, reason="the page is about native code")
def test_a_native_kernel_is_added_as_the_page_says(run_page: Callable[[str], None]) -> None:
    run_page("how-to/add-a-native-kernel.md")
