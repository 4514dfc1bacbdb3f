"""Pretrained models for rlx: checkpoints, architectures, tokenizers and generation. Nothing in this package needs torch.

`from_pretrained(folder)` returns the model of a checkpoint, and `generate` continues texts with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_models.generation import generate
    from rlx_models.loading import from_pretrained
    from rlx_models.model import PretrainedModel

__all__ = ["PretrainedModel", "from_pretrained", "generate"]

MODULES = {
    "PretrainedModel": "rlx_models.model",
    "from_pretrained": "rlx_models.loading",
    "generate": "rlx_models.generation",
}


def __getattr__(name: str) -> Any:
    # Lazy, because the package is imported with its plugin, before any of this is used.
    if name in MODULES:
        return getattr(importlib.import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
