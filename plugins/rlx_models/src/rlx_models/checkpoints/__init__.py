"""Checkpoint folders in the layout of Hugging Face: `config.json`, `generation_config.json` and safetensors files."""

from rlx_models.checkpoints.config import Config, Option, shown
from rlx_models.checkpoints.folder import read_config, read_generation_config
from rlx_models.checkpoints.tensors import Shapes, check_tensors, read_tensors

__all__ = [
    "Config",
    "Option",
    "Shapes",
    "check_tensors",
    "read_config",
    "read_generation_config",
    "read_tensors",
    "shown",
]
