"""The door: nothing heavy behind it, and a sentence where torch is not installed. These need no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlx_core.errors import PluginError
from rlx_torch.modules import from_torch


def test_the_door_imports_no_torch() -> None:
    program = "import sys, rlx_torch.plugin, rlx_torch.modules, rlx_torch.aten; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "rlx_torch.reading", raising=False)
    with pytest.raises(PluginError, match="PyTorch is not installed") as caught:
        from_torch(object())  # type: ignore[arg-type]
    assert "rlx-torch[torch]" in str(caught.value)
