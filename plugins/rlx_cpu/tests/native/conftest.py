"""Fixtures of the native tier's tests."""

from __future__ import annotations

from typing import Any

import pytest

from rlx_cpu.native.llvm import objects


@pytest.fixture
def without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what poison mode has no use for: entries for plain calls, memory of large results, one object file a program."""
    monkeypatch.delenv("RLX_CPU_POISON", raising=False)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many functions were asked of LLVM at a time."""
    made, found = objects._made, []

    def counting(count: int, *rest: Any) -> Any:
        found.append(count)
        return made(count, *rest)

    monkeypatch.setattr(objects, "_made", counting)
    monkeypatch.setattr(objects, "_read", lambda *_: None)
    return found
