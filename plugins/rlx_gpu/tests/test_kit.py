"""The public names for packages that add a language or a target are frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlx_gpu import kit

NAMES = Path(__file__).with_name("kit_names.txt").read_text(encoding="utf-8").split()


def test_the_names_of_the_kit_are_those_of_the_list() -> None:
    """Removing a name needs a deprecation first: see docs/decisions/0056-plugin-api-stability.md."""
    assert sorted(kit.__all__) == NAMES
    assert all(hasattr(kit, name) for name in NAMES)


def test_the_former_name_of_a_dialect_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"use rlx_gpu\.kit\.GpuDialect"):
        assert kit.Language is kit.GpuDialect
