"""Fixtures of the native tier's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what poison mode has no use for: entries for plain calls, memory of large results, one object file a program."""
    monkeypatch.delenv("RLX_CPU_POISON", raising=False)
