"""Architectures of Hugging Face's, tiny and with random weights: a configuration, a class, and inputs of any batch and length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from attrs import frozen
from transformers.models.whisper.modeling_whisper import WhisperEncoder

Inputs = Callable[[int, int], dict[str, torch.Tensor]]

TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}
PICTURE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SHORT = {"max_position_embeddings": 64}
GROUPED = {"num_key_value_heads": 2, "use_cache": False}


@frozen
class Architecture:
    """What makes a module of one.

    Attributes:
        module: The class.
        config: The configuration of it.
        inputs: Inputs by name for a batch and a length.
    """

    module: Any
    config: Any
    inputs: Inputs


def words(batch: int, length: int) -> dict[str, torch.Tensor]:
    """Words, of which some rows are padded at the end."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length - 1 :] = 1 if batch == 1 else 0
    return {"input_ids": torch.randint(3, 90, (batch, length)), "attention_mask": mask}


def pair(batch: int, length: int) -> dict[str, torch.Tensor]:
    return words(batch, length) | {"decoder_input_ids": torch.randint(3, 90, (batch, length))}


def picture(name: str, *shape: int) -> Inputs:
    return lambda batch, _: {name: torch.randn(batch, *shape)}


def architectures() -> dict[str, Architecture]:
    """Name → architecture: encoders, decoders, both, and those of pictures and sound."""
    eyes, small_eyes = picture("pixel_values", 3, 32, 32), picture("pixel_values", 3, 16, 16)
    patches = {"image_size": 16, "patch_size": 4}
    listed = {
        "bert": (hf.BertModel, hf.BertConfig(**TEXT), words),
        "roberta": (hf.RobertaModel, hf.RobertaConfig(**TEXT, **SHORT), words),
        "distilbert": (
            hf.DistilBertModel,
            hf.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=99),
            words,
        ),
        "electra": (hf.ElectraModel, hf.ElectraConfig(**TEXT, embedding_size=16), words),
        "albert": (hf.AlbertModel, hf.AlbertConfig(**TEXT, embedding_size=16), words),
        "mpnet": (hf.MPNetModel, hf.MPNetConfig(**TEXT), words),
        "deberta_v2": (
            hf.DebertaV2Model,
            hf.DebertaV2Config(**TEXT, **SHORT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
            words,
        ),
        "gpt2": (
            hf.GPT2LMHeadModel,
            hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99, n_positions=64, use_cache=False),
            words,
        ),
        "gpt_neox": (hf.GPTNeoXModel, hf.GPTNeoXConfig(**TEXT, **SHORT, use_cache=False), words),
        "gptj": (
            hf.GPTJModel,
            hf.GPTJConfig(n_embd=32, n_layer=2, n_head=4, rotary_dim=8, vocab_size=99, n_positions=64, use_cache=False),
            words,
        ),
        "bloom": (hf.BloomModel, hf.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=99, use_cache=False), words),
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**TEXT, **GROUPED), words),
        "mistral": (hf.MistralModel, hf.MistralConfig(**TEXT, **GROUPED, sliding_window=4), words),
        "qwen2": (hf.Qwen2Model, hf.Qwen2Config(**TEXT, **GROUPED), words),
        "qwen3": (hf.Qwen3Model, hf.Qwen3Config(**TEXT, **GROUPED, head_dim=8), words),
        "olmoe": (hf.OlmoeModel, hf.OlmoeConfig(**TEXT, **GROUPED, num_experts=4, num_experts_per_tok=2), words),
        "gemma": (hf.GemmaModel, hf.GemmaConfig(**TEXT, **GROUPED, head_dim=8), words),
        "gemma2": (hf.Gemma2Model, hf.Gemma2Config(**TEXT, **GROUPED, head_dim=8, sliding_window=4), words),
        "phi3": (hf.Phi3Model, hf.Phi3Config(**TEXT, **GROUPED, pad_token_id=0), words),
        "t5": (
            hf.T5EncoderModel,
            hf.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99, use_cache=False),
            words,
        ),
        "bart": (
            hf.BartModel,
            hf.BartConfig(
                d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=99, max_position_embeddings=64, use_cache=False,
            ),
            pair,
        ),
        "vit": (hf.ViTModel, hf.ViTConfig(**PICTURE, **patches), small_eyes),
        "resnet": (
            hf.ResNetModel,
            hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
            eyes,
        ),
        "convnext": (hf.ConvNextModel, hf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), eyes),
        "swin": (
            hf.SwinModel,
            hf.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
            small_eyes,
        ),
        "wav2vec2": (
            hf.Wav2Vec2Model,
            hf.Wav2Vec2Config(
                **PICTURE, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2,
                num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
            ),
            picture("input_values", 400),
        ),
        "whisper": (
            WhisperEncoder,
            hf.WhisperConfig(
                d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, vocab_size=99,
                max_source_positions=50, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
            ),
            picture("input_features", 80, 100),
        ),
    }  # fmt: skip
    return {name: Architecture(*each) for name, each in listed.items()}
