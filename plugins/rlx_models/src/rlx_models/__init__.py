"""Pretrained models for rlx: checkpoints, architectures, tokenizers and generation. Nothing in this package needs torch.

`from_pretrained(folder)` returns the model of a checkpoint, and `generate` continues texts with it. `quantize` writes
one to a GGUF file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names

if TYPE_CHECKING:
    from rlx_models.generation import generate as generate
    from rlx_models.generation import json_grammar as json_grammar
    from rlx_models.loading import from_pretrained as from_pretrained
    from rlx_models.model import PretrainedModel as PretrainedModel
    from rlx_models.quantizing import quantize as quantize
else:  # lazy, because the package is imported with its plugin, before any of this is used
    _PLACES = {
        "PretrainedModel": "rlx_models.model",
        "from_pretrained": "rlx_models.loading",
        "generate": "rlx_models.generation",
        "json_grammar": "rlx_models.generation",
        "quantize": "rlx_models.quantizing",
    }
    __getattr__, __dir__, __all__ = lazy_names(__name__, _PLACES)
