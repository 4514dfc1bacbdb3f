"""Install hints name distributions of the package index, never a folder."""

from __future__ import annotations

from rlx_core.hints.packages import known_packages


def test_no_command_names_a_folder() -> None:
    packages = known_packages()
    assert packages["target.cpu"].command == "python -m pip install rlx-cpu"
    assert [p.command for p in packages.values() if "/" in p.command or "checkout" in p.command] == []
