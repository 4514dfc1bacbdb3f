"""bfloat16 and float8 in safetensors files, between rlx and PyTorch: the library's NumPy side has no bfloat16."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
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


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_of_pytorch_is_read(tmp_path, name):
    numbers = torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).to(getattr(torch, name))
    torch_save_file({"x": numbers}, tmp_path / "theirs.safetensors")

    array = load_safetensors(tmp_path / "theirs.safetensors")["x"]
    assert array.shape == (4, 32)
    assert np.array_equal(array.dequantize(), numbers.to(torch.float32).numpy())
