"""The door: nothing heavy behind it, and a sentence where torch is not installed. These need no torch."""

from __future__ import annotations

import importlib
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


@pytest.mark.parametrize("module", ["pretrained", "pretrained.loading"])
def test_imports_of_pretrained_models_name_the_package_that_has_them(module: str) -> None:
    with pytest.raises(ImportError, match="is now the package rlx_models") as caught:
        importlib.import_module(f"rlx_torch.{module}")
    assert "from rlx_models import from_pretrained, generate" in str(caught.value)
