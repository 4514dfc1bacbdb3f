"""Random checkpoints of small models, written by Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="python -m pip install torch")
transformers = pytest.importorskip("transformers", reason="python -m pip install transformers")

SMALL = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {
    **SMALL,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": None,
    "bos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}
SPARSE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GEMMA3 = {
    "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 16, "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
}  # fmt: skip
GPT_OSS = {
    "head_dim": 8, "sliding_window": 4, "num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 0.2,
    "rope_parameters": {**YARN, "truncate": False},
}  # fmt: skip
DEEPSEEK = {
    "num_key_value_heads": 4, "moe_intermediate_size": 24, "n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "n_group": 4, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 12, "q_lora_rank": 20, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 6, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
}  # fmt: skip
PLAIN = {**SMALL, "max_position_embeddings": 128, "eos_token_id": None, "bos_token_id": None}
HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
FALCON = {name: each for name, each in PLAIN.items() if name != "intermediate_size"}
FALCON_H1 = {
    "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4, "pad_token_id": 0,
    "lm_head_multiplier": 0.5, "embedding_multiplier": 3.0, "mlp_multipliers": [0.7, 1.3], "key_multiplier": 0.8,
    "attention_out_multiplier": 0.9, "attention_in_multiplier": 1.1, "ssm_multipliers": [0.5, 0.6, 0.7, 0.8, 0.9],
    "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6,
}  # fmt: skip
FALCON_H1_NORMED = {
    "mamba_n_groups": 2, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "mamba_proj_bias": True,
    "projectors_bias": True, "mamba_conv_bias": False, "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
MAMBA = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 3}
RWKV = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "rescale_every": 2}
OPT = {**FALCON, "ffn_dim": 48, "word_embed_proj_dim": 32}

DEBERTA = {**SMALL, "max_position_embeddings": 40, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}

ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", SMALL),
    "roberta": ("RobertaConfig", "RobertaModel", {**SMALL, "max_position_embeddings": 40}),
    "mpnet": (
        "MPNetConfig",
        "MPNetModel",
        {**SMALL, "max_position_embeddings": 160},
    ),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"vocab_size": 61, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    ),
    "electra": ("ElectraConfig", "ElectraModel", {**SMALL, "embedding_size": 16}),
    "albert": ("AlbertConfig", "AlbertModel", {**SMALL, "num_hidden_layers": 4, "num_hidden_groups": 2, "embedding_size": 16}),
    "deberta v2": ("DebertaV2Config", "DebertaV2Model", {**DEBERTA, "conv_kernel_size": 3}),
    "deberta v3": (
        "DebertaV2Config",
        "DebertaV2Model",
        {**DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
         "position_buckets": 8, "type_vocab_size": 0},
    ),
    "modernbert": (
        "ModernBertConfig",
        "ModernBertModel",
        {**SMALL, "num_hidden_layers": 4, "local_attention": 6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "cls_token_id": 1, "sep_token_id": 2},
    ),
}  # fmt: skip
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "llama3 tied": ("LlamaConfig", "LlamaForCausalLM", {**GROUPED, "rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**GROUPED, "head_dim": 8}),
    "mistral near": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": 4}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**GROUPED, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 16,
               "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.0}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0, "sliding_window": 5,
             "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**GROUPED, "num_local_experts": 5, "sliding_window": 4}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", GROUPED),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**GROUPED, **SPARSE, "head_dim": 8, "norm_topk_prob": True}),
    "qwen3_moe some layers": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**GROUPED, **SPARSE, "head_dim": 8,
                              "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    "qwen2_moe": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM", {**GROUPED, **SPARSE, "shared_expert_intermediate_size": 20}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {**GROUPED, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                "attention_multiplier": 0.3, "logits_scaling": 2.0, "attention_bias": True, "mlp_bias": True}),
    "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", {**GROUPED, "sliding_window": 4}),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", {**GROUPED, "use_qkv_bias": True, "rope_parameters": HALF}),
    "stablelm parallel": ("StableLmConfig", "StableLmForCausalLM", {**GROUPED, "use_parallel_residual": True,
                          "qk_layernorm": True}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {**GROUPED, "num_hidden_layers": 4, "pad_token_id": 0,
                "no_rope_layers": [1, 0, 1, 0]}),
    "cohere": ("CohereConfig", "CohereForCausalLM", {**GROUPED, "logit_scale": 0.5}),
    "cohere normed": ("CohereConfig", "CohereForCausalLM", {**GROUPED, "use_qk_norm": True, "attention_bias": True}),
    "glm4": ("Glm4Config", "Glm4ForCausalLM", {**GROUPED, "head_dim": 16, "pad_token_id": 0, "attention_bias": True}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**GROUPED, **GEMMA3}),
    "gemma3 pattern": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**GROUPED, "head_dim": 8, "sliding_window": 4,
                       "query_pre_attn_scalar": 16, "num_hidden_layers": 3, "sliding_window_pattern": 3,
                       "final_logit_softcapping": 1.0}),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM", {**GROUPED, **GPT_OSS}),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {**GROUPED, **DEEPSEEK}),
    "deepseek_v3 plain": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {**GROUPED, **DEEPSEEK, "q_lora_rank": None,
                          "attention_bias": True, "rope_interleave": False, "norm_topk_prob": False, "n_group": 1,
                          "topk_group": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "mamba": ("MambaConfig", "MambaForCausalLM", MAMBA),
    "mamba biased": ("MambaConfig", "MambaForCausalLM", {**MAMBA, "use_bias": True, "use_conv_bias": False, "conv_kernel": 3,
                     "tie_word_embeddings": False, "time_step_rank": "auto"}),
    "rwkv": ("RwkvConfig", "RwkvForCausalLM", RWKV),
    "falcon_h1": ("FalconH1Config", "FalconH1ForCausalLM", {**GROUPED, **FALCON_H1}),
    "falcon_h1 normed": ("FalconH1Config", "FalconH1ForCausalLM", {**GROUPED, **FALCON_H1, **FALCON_H1_NORMED}),
    "yarn": ("LlamaConfig", "LlamaForCausalLM", {**GROUPED, "rope_parameters": YARN}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**PLAIN, "rope_parameters": HALF}),
    "gpt_neox in turn": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**PLAIN, "use_parallel_residual": False,
                         "attention_bias": False, "rope_parameters": HALF}),
    "phi": ("PhiConfig", "PhiForCausalLM", {**PLAIN, "num_key_value_heads": 2, "rope_parameters": HALF}),
    "falcon": ("FalconConfig", "FalconForCausalLM", FALCON),
    "falcon grouped": ("FalconConfig", "FalconForCausalLM", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon one norm": ("FalconConfig", "FalconForCausalLM", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
                        "num_ln_in_parallel_attn": 1, "bias": True}),
    "falcon in turn": ("FalconConfig", "FalconForCausalLM", {**FALCON, "multi_query": False, "parallel_attn": False}),
    "opt": ("OPTConfig", "OPTForCausalLM", OPT),
    "opt behind": ("OPTConfig", "OPTForCausalLM", {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 24}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "bloom of six": ("BloomConfig", "BloomForCausalLM", {"vocab_size": 61, "hidden_size": 48, "n_layer": 2, "n_head": 6}),
}  # fmt: skip


T5 = {
    "vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
}  # fmt: skip
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FAR = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
BART = {
    "vocab_size": 61, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "max_position_embeddings": 64,
    "scale_embedding": True, "forced_eos_token_id": None,
}  # fmt: skip
MARIAN = {
    **BART, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, "activation_function": "swish",
}  # fmt: skip
READERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5Config", "T5ForConditionalGeneration", T5),
    "t5 gated": ("T5Config", "T5ForConditionalGeneration", {**T5, **GATED}),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", {**T5, **FAR}),
    "bart": ("BartConfig", "BartForConditionalGeneration", BART),
    "marian": ("MarianConfig", "MarianMTModel", MARIAN),
}


VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": [12, 8],
    "patch_size": 4,
}  # fmt: skip
SEEING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "features": ("ViTConfig", "ViTModel", VIT),
    "without biases": ("ViTConfig", "ViTModel", {**VIT, "qkv_bias": False, "image_size": 8}),
    "classifier": ("ViTConfig", "ViTForImageClassification", {**VIT, "num_labels": 5}),
}
WHISPER = (
    "WhisperConfig",
    "WhisperForConditionalGeneration",
    {
        "vocab_size": 61, "d_model": 32, "num_mel_bins": 8, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40,
        "max_source_positions": 20, "max_target_positions": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 3,
    },
)  # fmt: skip


def saved(made: tuple[str, str, dict[str, Any]], folder: Path, **said: Any) -> Any:
    """Write a random model with Transformers, and return it."""
    config, model, given = made
    torch.manual_seed(0)
    found = getattr(transformers, model)(getattr(transformers, config)(**given)).eval()
    for each in found.parameters():  # biases and norm weights of a new model are 0 and 1
        torch.nn.init.normal_(each, std=0.3 if each.ndim == 1 else 0.08)
    for name, each in found.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(each, std=0.02)  # of the size of the differences of scores
    found.save_pretrained(folder, **said)
    return found


def stored(made: tuple[str, str, dict[str, Any]], folder: Path) -> Any:
    """Write a random model and read it again: computed weights (sinusoids) are not written."""
    return type(saved(made, folder)).from_pretrained(folder).eval()


def ids_of(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(rows * length).integers(3, 61, (rows, length))
