"""Every architecture against the one that its checkpoints come from, with weights at random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, FormatError, UnsupportedError
from rlx_torch.pretrained import from_pretrained, generate
from rlx_torch.pretrained.distances import buckets
from rlx_torch.pretrained.loading import ARCHITECTURES

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


SAMPLED = {
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
SIGLIP = {
    "text_config": {**SMALL, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2},
    "vision_config": {**VIT, "image_size": 8},
}
NAMES = {
    **dict.fromkeys(("mamba", "rwkv", "falcon_h1"), ("input_ids",)),
    "siglip": ("input_ids", "pixel_values"),
    **dict.fromkeys(("dinov2", "dinov2 of other sizes"), ("pixel_values",)),
    "marian": ("input_ids", "attention_mask", "decoder_input_ids"),
    "wav2vec2": ("input_values",),
}
BY_TRANSFORMERS: dict[str, tuple[tuple[str, str, dict[str, Any]], dict[str, int]]] = {
    "mamba": (("MambaConfig", "MambaForCausalLM", MAMBA), {"length": 9}),
    "rwkv": (("RwkvConfig", "RwkvForCausalLM", RWKV), {"length": 9}),
    "falcon_h1": (("FalconH1Config", "FalconH1ForCausalLM", {**GROUPED, **FALCON_H1}), {"length": 9}),
    "siglip": (("SiglipConfig", "SiglipModel", SIGLIP), {}),
    "dinov2": (("Dinov2Config", "Dinov2Model", {**VIT, "image_size": 8}), {}),
    "dinov2 of other sizes": (("Dinov2Config", "Dinov2Model", {**VIT, "image_size": 8}), {"height": 12, "width": 16}),
    "marian": (("MarianConfig", "MarianMTModel", MARIAN), {}),
    "wav2vec2": (("Wav2Vec2Config", "Wav2Vec2ForCTC", {**SMALL, **SAMPLED}), {"samples": 400}),
}  # fmt: skip


def saved(made: tuple[str, str, dict[str, Any]], folder: Path, **said: Any) -> Any:
    """A model at random, written as its authors write it."""
    config, model, given = made
    torch.manual_seed(0)
    found = getattr(transformers, model)(getattr(transformers, config)(**given)).eval()
    for each in found.parameters():  # biases and gains of a fresh model say nothing
        torch.nn.init.normal_(each, std=0.3 if each.ndim == 1 else 0.08)
    for name, each in found.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(each, std=0.02)  # of the size of the differences of scores
    found.save_pretrained(folder, **said)
    return found


def stored(made: tuple[str, str, dict[str, Any]], folder: Path) -> Any:
    """The same, read again: some weights are computed, and not written (sinusoids)."""
    return type(saved(made, folder)).from_pretrained(folder).eval()


def ids_of(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(rows * length).integers(3, 61, (rows, length))


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_give_what_theirs_give(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(ENCODERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 5), (3, 35)):
        ids, mask = ids_of(rows, length), np.ones((rows, length), np.int64)
        mask[-1, 3:], ids[-1, 3:] = 0, 1
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
        np.testing.assert_allclose(ours(ids, mask)[mask > 0], expected[mask > 0], atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_give_what_theirs_give(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(DECODERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 5), (3, 70)):
        ids = ids_of(rows, length)
        with torch.no_grad():
            expected = theirs(torch.tensor(ids)).logits.numpy()
        np.testing.assert_allclose(ours(ids), expected, atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_the_likeliest_continuations_are_theirs(name: str, tmp_path: Path) -> None:
    """Prompts of three lengths at once: each as by itself, without a cache."""
    theirs, ours = saved(DECODERS[name], tmp_path), from_pretrained(tmp_path)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 6, 9)]
    found = generate(ours, prompts, 12, stop=())
    for prompt, row in zip(prompts, found, strict=True):
        text = list(prompt)
        for _ in range(12):
            with torch.no_grad():
                text.append(int(theirs(torch.tensor([text])).logits[0, -1].argmax()))
        assert row == text[len(prompt) :]


OLDER: dict[str, dict[str, Any]] = {
    "gemma3": {"rope_parameters": None, "layer_types": None, "rope_theta": 500.0, "rope_local_base_freq": 50.0,
               "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "sliding_window_pattern": 2},
    "deepseek_v3": {"rope_parameters": None, "rope_theta": 500.0, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid",
                    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "beta_fast": 16,
                                     "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.7}},
    "gpt_oss": {"rope_parameters": None, "rope_theta": 500.0, "layer_types": None,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "truncate": False}},
    "smollm3": {"rope_parameters": None, "rope_theta": 500.0, "no_rope_layers": None, "no_rope_layer_interval": 2},
    "stablelm": {"rope_parameters": None, "rope_theta": 500.0, "partial_rotary_factor": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_configurations_of_older_files_are_read(name: str, tmp_path: Path) -> None:
    """Options of rope stood beside the others, and lists by layer were not written."""
    module = type(saved(DECODERS[name], tmp_path))
    path = tmp_path / "config.json"
    rows = {**json.loads(path.read_text()), **OLDER[name]}
    path.write_text(json.dumps({option: each for option, each in rows.items() if each is not None}))
    theirs, ours, ids = module.from_pretrained(tmp_path).eval(), from_pretrained(tmp_path), ids_of(2, 70)
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(ours(ids), expected, atol=1e-5)


REFUSED: dict[str, dict[str, Any]] = {
    "gemma3": {
        "use_bidirectional_attention": True,
        "attn_logit_softcapping": 2.0,
        "rope_parameters": {"rope_theta": 5.0},
    },
    "qwen2_moe": {"use_sliding_window": True},
    "llama": {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    "deepseek_v3": {"scoring_func": "softmax", "n_group": 3, "topk_method": "greedy"},
    "olmo2": {"layer_types": ["sliding_attention"] * 2, "hidden_act": "swish9", "rms_norm_eps": "small"},
    "smollm3": {"no_rope_layers": [1], "use_sliding_window": True},
    "granite": {"logits_scaling": 0, "quantization_config": {"quant_method": "mxfp4"}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_not_known_are_refused_by_name(name: str, tmp_path: Path) -> None:
    saved(DECODERS[name], tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **REFUSED[name]}))
    with pytest.raises(UnsupportedError) as caught:
        from_pretrained(tmp_path)
    for option in REFUSED[name]:
        assert option in str(caught.value)


def test_shards_and_narrow_weights_are_read(tmp_path: Path) -> None:
    theirs = saved(DECODERS["llama"], tmp_path / "whole")
    theirs.to(torch.bfloat16).save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    ours, ids = from_pretrained(tmp_path / "parts"), ids_of(1, 5)
    assert {str(each.dtype) for each in ours.parameters.values()} == {"bfloat16"}
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.float().numpy()
    np.testing.assert_allclose(np.asarray(ours(ids), np.float32), expected, atol=0.15)
    assert [len(row) for row in generate(ours, ids.tolist(), 4, stop=())] == [4]


def test_it_is_trained_as_any_function_is(tmp_path: Path) -> None:
    saved(DECODERS["llama"], tmp_path)
    ours, ids = from_pretrained(tmp_path), ids_of(2, 6)
    loss = lambda p: rlx.mean(ours.function(p, ids) ** 2)  # noqa: E731
    gradients = rlx.grad(loss)(dict(ours.parameters))
    assert all(np.isfinite(each).all() and each.any() for each in gradients.values())


@pytest.mark.parametrize("name", READERS)
def test_encoders_with_decoders_give_what_theirs_give(name: str, tmp_path: Path) -> None:
    theirs, ours = stored(READERS[name], tmp_path), from_pretrained(tmp_path)
    for rows, length, steps in ((1, 5, 1), (3, 40, 33)):
        ids, mask, written = ids_of(rows, length), np.ones((rows, length), np.int64), ids_of(rows, steps)
        mask[-1, 3:] = 0
        with torch.no_grad():
            expected = theirs(*map(torch.tensor, (ids, mask, written)))
        np.testing.assert_allclose(ours(ids, mask, written), expected.logits.numpy(), atol=1e-5)
        features = expected.encoder_last_hidden_state.numpy()
        np.testing.assert_allclose(ours.encoder(ids, mask)[mask > 0], features[mask > 0], atol=1e-5)


@pytest.mark.parametrize("name", READERS)
def test_what_is_written_is_what_theirs_writes(name: str, tmp_path: Path) -> None:
    theirs, ours = stored(READERS[name], tmp_path), from_pretrained(tmp_path)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 6, 20)]
    found = generate(ours, prompts, 12)
    for prompt, row in zip(prompts, found, strict=True):
        with torch.no_grad():
            (expected,) = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=12, do_sample=False, num_beams=1
            ).tolist()
        assert row == expected[1:]


@pytest.mark.parametrize("is_causal", [True, False])
def test_kinds_of_distances_are_theirs(is_causal: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    for count, reach in ((32, 128), (8, 20), (64, 256)):
        distances = torch.arange(-reach, reach + 1)
        theirs = T5Attention._relative_position_bucket(distances, not is_causal, count, reach)
        np.testing.assert_array_equal(buckets(count, reach, is_causal=is_causal), theirs.numpy())


@pytest.mark.parametrize("name", SEEING)
def test_pictures_are_seen_as_theirs_sees_them(name: str, tmp_path: Path) -> None:
    theirs, ours = saved(SEEING[name], tmp_path), from_pretrained(tmp_path)
    for rows in (1, 3):
        shape = ours.inputs["pixels"].shape[1:]
        pixels = np.random.default_rng(rows).standard_normal((rows, *shape)).astype(np.float32)
        with torch.no_grad():
            found = theirs(torch.tensor(pixels))
        expected = found.logits if name == "classifier" else found.last_hidden_state
        np.testing.assert_allclose(ours(pixels), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("end", [2, 60])
def test_texts_and_pictures_are_compared_as_theirs_compares_them(end: int, tmp_path: Path) -> None:
    """The end of a text is the highest token in old configurations."""
    text = {**SMALL, "max_position_embeddings": 40, "eos_token_id": end, "bos_token_id": 0}
    seen = {**VIT, "image_size": 8, "intermediate_size": 40}
    made = ("CLIPConfig", "CLIPModel", {"text_config": text, "vision_config": seen, "projection_dim": 24})
    theirs, ours = saved(made, tmp_path), from_pretrained(tmp_path)
    for texts, pictures in ((1, 3), (4, 2)):
        ids = ids_of(texts, 7)
        ids[0, 3:], ids[1:, -1] = 60, 60
        pixels = np.random.default_rng(pictures).standard_normal((pictures, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor(ids), pixel_values=torch.tensor(pixels))
        found = ours(ids, pixels)
        np.testing.assert_allclose(found["logits"], expected.logits_per_image.numpy(), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(ours.part("texts")(ids), expected.text_embeds.numpy(), atol=1e-5)
        np.testing.assert_allclose(ours.part("pictures")(pixels), expected.image_embeds.numpy(), atol=1e-5)


def test_sounds_are_heard_as_theirs_hears_them(tmp_path: Path) -> None:
    theirs, ours = saved(WHISPER, tmp_path), from_pretrained(tmp_path)
    for rows, length in ((1, 3), (3, 20)):
        features = np.random.default_rng(rows).standard_normal((rows, 8, 40)).astype(np.float32)
        ids = ids_of(rows, length)
        with torch.no_grad():
            expected = theirs(torch.tensor(features), decoder_input_ids=torch.tensor(ids))
        np.testing.assert_allclose(ours(features, ids), expected.logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(ours.encoder(features), expected.encoder_last_hidden_state.numpy(), atol=1e-5)
    prompts = [ids_of(1, length)[0].tolist() for length in (1, 4, 9)]
    found = generate(ours, prompts, 12, features=features, stop=())
    for heard, prompt, row in zip(features, prompts, found, strict=True):
        text = list(prompt)
        for _ in range(12):
            with torch.no_grad():
                said = theirs(torch.tensor(heard[None]), decoder_input_ids=torch.tensor([text])).logits
            text.append(int(said[0, -1].argmax()))
        assert row == text[len(prompt) :]
    theirs.generation_config.suppress_tokens = found[0][:2]
    theirs.generation_config.begin_suppress_tokens = found[0][2:4]
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        written = theirs.generate(torch.tensor(features), max_new_tokens=6, do_sample=False, num_beams=1)
    for row, each in zip(generate(from_pretrained(tmp_path), [[3]] * 3, 6, features=features), written, strict=True):
        assert [t for t in row if t != 2] == [t for t in each.tolist() if t not in (0, 2)]  # they leave ends out


@pytest.mark.parametrize("name", BY_TRANSFORMERS)
def test_other_architectures_are_read_by_transformers(name: str, tmp_path: Path) -> None:
    made, sizes = BY_TRANSFORMERS[name]
    theirs, kind = stored(made, tmp_path), name.split(" ")[0]
    if kind not in ARCHITECTURES:
        with pytest.raises(UnsupportedError, match=f"model_type '{kind}'") as caught:
            from_pretrained(tmp_path)
        assert "reader='transformers'" in str(caught.value)
    ours = from_pretrained(tmp_path, reader="transformers", sizes=sizes)
    rng = np.random.default_rng(0)
    for count in (1, 3):
        given = []
        for spec in ours.inputs.values():
            shape = [each if isinstance(each, int) else count + 3 * axis for axis, each in enumerate(spec.shape)]
            is_whole = spec.dtype == rlx.i64
            given.append(rng.integers(3, 61, shape) if is_whole else rng.standard_normal(shape).astype(np.float32))
        named = dict(zip(NAMES[name], map(torch.tensor, given), strict=True))
        if "attention_mask" in named:
            given[1] = np.ones_like(given[1])
            named["attention_mask"] = torch.ones_like(named["attention_mask"])
        with torch.no_grad():
            expected = theirs(**named)
        found = ours(*given)
        if name == "siglip":
            found, expected = found["logits"], expected.logits_per_image
        else:
            expected = expected[0]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    with pytest.raises(ConfigError, match=f"{kind} was read by transformers"):
        generate(ours, [[1]], 3)


def test_sizes_that_export_fixes_are_named(tmp_path: Path) -> None:
    saved(BY_TRANSFORMERS["mamba"][0], tmp_path)
    with pytest.raises(UnsupportedError, match="MambaForCausalLM is exported at a fixed length only") as caught:
        from_pretrained(tmp_path, reader="transformers")
    assert "sizes={'length': 7}" in str(caught.value)
    with pytest.raises(ConfigError, match="mamba has no size 'steps'"):
        from_pretrained(tmp_path, reader="transformers", sizes={"steps": 3})
    made = ("SiglipConfig", "SiglipModel", SIGLIP)
    saved(made, tmp_path / "siglip")
    with pytest.raises(UnsupportedError, match="SiglipModel refuses its inputs"):
        from_pretrained(tmp_path / "siglip", reader="transformers", sizes={"height": 12})
    with pytest.raises(ConfigError, match="sizes are for reader='transformers'"):
        from_pretrained(tmp_path, sizes={"length": 3})


def test_tensors_that_transformers_does_not_find_are_refused_where_they_are_read(tmp_path: Path) -> None:
    """The features that training masks with may be missing: no program reads them."""
    made, sizes = BY_TRANSFORMERS["wav2vec2"]
    saved(made, tmp_path)
    tensors = rlx.load(tmp_path / "model.safetensors", mapped=False)

    def without(name: str) -> Path:
        rlx.save(tmp_path / "model.safetensors", {each: tensors[each] for each in tensors if each != name})
        return tmp_path

    ours = from_pretrained(without("wav2vec2.masked_spec_embed"), reader="transformers", sizes=sizes)
    assert "wav2vec2.masked_spec_embed" not in ours.parameters
    assert ours(np.zeros((1, 400), np.float32)).shape[-1] == 61
    with pytest.raises(FormatError, match="a tensor does not fit Wav2Vec2ForCTC") as caught:
        from_pretrained(without("lm_head.weight"), reader="transformers", sizes=sizes)
    assert "is missing" in str(caught.value)
