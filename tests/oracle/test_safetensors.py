"""bfloat16 in safetensors files, between rlx and PyTorch: the library's NumPy side has no bfloat16."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file as torch_load_file
from safetensors.torch import save_file as torch_save_file

from rlx_core.files.safetensors import load_safetensors, save_safetensors


def test_bfloat16_agrees_with_the_library_both_ways(tmp_path: Path) -> None:
    numbers = np.random.default_rng(7).standard_normal((2, 3)).astype(ml_dtypes.bfloat16)
    save_safetensors(tmp_path / "ours.safetensors", {"x": numbers})
    theirs = torch_load_file(tmp_path / "ours.safetensors")["x"]
    torch_save_file({"x": theirs}, tmp_path / "theirs.safetensors")

    assert theirs.dtype == torch.bfloat16
    np.testing.assert_array_equal(theirs.float().numpy(), numbers.astype(np.float32))
    found = load_safetensors(tmp_path / "theirs.safetensors")["x"]
    assert found.dtype == numbers.dtype
    assert found.tobytes() == numbers.tobytes()
