"""Architectures by `model_type`: functions from a configuration to the tensors, inputs and programs of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlx_models.architectures.architecture import Architecture, CacheEntry, Decoding
from rlx_models.architectures.bart import bart, marian
from rlx_models.architectures.bert import albert, bert, distilbert, electra, mpnet, roberta
from rlx_models.architectures.clip import clip
from rlx_models.architectures.deberta import deberta
from rlx_models.architectures.decoders.mamba import mamba
from rlx_models.architectures.decoders.rwkv import rwkv
from rlx_models.architectures.decoders.table import DECODERS
from rlx_models.architectures.modernbert import modernbert
from rlx_models.architectures.t5 import t5
from rlx_models.architectures.vit import vit
from rlx_models.architectures.whisper import whisper
from rlx_models.checkpoints import Config

__all__ = ["ARCHITECTURES", "Architecture", "CacheEntry", "Decoding"]

ARCHITECTURES: Final[dict[str, Callable[[Config], Architecture]]] = {
    "albert": albert,
    "bart": bart,
    "bert": bert,
    "clip": clip,
    "deberta-v2": deberta,
    "distilbert": distilbert,
    "electra": electra,
    "mamba": mamba,
    "marian": marian,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "mt5": t5,
    "roberta": roberta,
    "rwkv": rwkv,
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
    "xlm-roberta": roberta,
    **DECODERS,
}
"""Functions from configurations to architectures, by `model_type`."""
