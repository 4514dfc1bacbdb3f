"""`rlx.load("model.gguf")`: the logits of the checkpoint of the same weights, which stay quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import OPTIONS, ROUTERS, config_of, file_weights, stored, written_checkpoint, written_gguf

import rlx_core as rlx
from rlx_core.errors import FormatError, UnsupportedError
from rlx_models import PretrainedModel, from_pretrained, generate, gguf
from rlx_models.gguf.names import LAYER_TENSORS

IDS = np.array([[1, 5, 9, 2, 60, 3, 3], [7, 0, 63, 5, 1, 8, 2]])


def quantized_names(model: PretrainedModel) -> set[str]:
    return {name for name, each in model.parameters.items() if isinstance(each, rlx.quantization.QuantizedArray)}


@pytest.mark.parametrize(
    ("model_type", "scheme"),
    [
        *(("llama", scheme) for scheme in ("q4_0", "q4_k", "q8_0", "f16")),
        *((each, "q4_k") for each in OPTIONS if each != "llama"),
    ],
)
def test_logits_are_those_of_the_checkpoint(tmp_path: Path, model_type: str, scheme: str) -> None:
    model = rlx.load(written_gguf(tmp_path / "m.gguf", model_type, scheme))
    reference = from_pretrained(written_checkpoint(tmp_path / "m", model_type, scheme))
    assert (type(model), model.name) == (PretrainedModel, model_type)
    matrices = {
        name
        for name, values in file_weights(model_type).items()
        if values.ndim > 1 and not name.removesuffix(".weight").endswith(ROUTERS)
    }
    assert quantized_names(model) == (set() if scheme == "f16" else matrices)
    compiled = model.compile()
    logits, expected = np.asarray(compiled(IDS)), np.asarray(reference(IDS))
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(logits, expected, rtol=2e-4, atol=2e-4)
    assert compiled.report.expansions == ()
    tokens = generate(model, [[1, 5, 9], [4]], 4)
    assert tokens == generate(reference, [[1, 5, 9], [4]], 4)
    assert model.programs["step", None].report.expansions == ()


def test_a_tied_table_of_blocks_is_not_expanded(tmp_path: Path) -> None:
    model = rlx.load(written_gguf(tmp_path / "m.gguf", "qwen3", "q8_0"))
    assert "lm_head.weight" not in model.parameters
    table = np.asarray(model.parameters["embed_tokens.weight"].dequantize()).nbytes
    compiled = model.compile()
    compiled(IDS)
    assert compiled.report.expansions == ()
    tables_of_rope = 2 * 64 * 32 * 4
    assert compiled.report.prepared_nbytes < table + tables_of_rope


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "f16"])
def test_a_file_of_the_package_gguf_is_read(tmp_path: Path, scheme: str) -> None:
    reference = pytest.importorskip("gguf")
    mine = gguf.read(written_gguf(tmp_path / "mine.gguf", "llama", scheme))
    writer = reference.GGUFWriter(tmp_path / "m.gguf", "llama")
    config = config_of("llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    for name, tensor in mine.items():
        raw_type = reference.GGMLQuantizationType(tensor.type_id)
        data = tensor.numpy() if tensor.scheme is None else tensor.raw.reshape(tensor.shape[0], -1)
        writer.add_tensor(name, data, raw_dtype=None if tensor.scheme is None else raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = rlx.load(tmp_path / "m.gguf")
    assert np.array_equal(np.asarray(model(IDS)), np.asarray(rlx.load(tmp_path / "mine.gguf")(IDS)))
    assert model.config["vocab_size"] == 64


def test_scaled_rope_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    plain = np.asarray(rlx.load(written_gguf(tmp_path / "plain.gguf", "llama", "q8_0"))(IDS))
    scaled = np.asarray(rlx.load(written_gguf(tmp_path / "linear.gguf", "llama", "q8_0", metadata=linear))(IDS))
    divisors = {"rope_freqs.weight": np.full(32, 4, np.float32)}
    divided = np.asarray(rlx.load(written_gguf(tmp_path / "divided.gguf", "llama", "q8_0", more=divisors))(IDS))
    assert np.abs(scaled - plain).max() > 0.01
    np.testing.assert_allclose(divided, scaled, rtol=1e-5, atol=1e-5)
    with pytest.raises(UnsupportedError, match="divisors"):
        rlx.load(written_gguf(tmp_path / "m.gguf", "llama", "q8_0", more={"rope_freqs.weight": np.ones(5, np.float32)}))


def test_tokens_and_the_template_of_chats_are_kept(tmp_path: Path) -> None:
    metadata = {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 53,
        "tokenizer.ggml.eot_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    }
    model = rlx.load(written_gguf(tmp_path / "m.gguf", "llama", "q8_0", metadata=metadata))
    assert (model.config["bos_token_id"], model.config["eos_token_id"]) == (1, [53, 2])
    assert model.metadata["tokenizer.chat_template"] == "{{ messages }}"
    first = generate(model, [[1, 5, 9]], 1)[0][0]
    ended = {**metadata, "tokenizer.ggml.eos_token_id": first}
    assert generate(rlx.load(written_gguf(tmp_path / "n.gguf", "llama", "q8_0", metadata=ended)), [[1, 5, 9]], 5) == [
        [first]
    ]


def test_an_unsupported_architecture_names_the_supported_ones(tmp_path: Path) -> None:
    gguf.write(tmp_path / "m.gguf", {}, {"general.architecture": "falcon"})
    with pytest.raises(UnsupportedError, match="the architecture 'falcon' is not supported") as caught:
        rlx.load(tmp_path / "m.gguf")
    assert "llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma, gemma2, phi3" in str(caught.value.hint)
    gguf.write(tmp_path / "m.gguf", {}, {})
    with pytest.raises(UnsupportedError, match="the architecture None"):
        rlx.load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("metadata", "fact"),
    [
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.attn_factor": 0.5}, "attn_factor"),
        ({"llama.rope.scaling.type": "longrope"}, "rope_type"),
        ({"llama.expert_weights_scale": 2.5}, "llama.expert_weights_scale  2.5"),
        ({"llama.expert_gating_func": 2}, "llama.expert_gating_func  2"),
        ({"llama.block_count": 10**6}, "num_hidden_layers"),
        ({"llama.attention.head_count_kv": [2, 2]}, "num_key_value_heads"),
        ({"llama.attention.layer_norm_rms_epsilon": "x"}, "rms_norm_eps"),
    ],
)
def test_unsupported_options_are_listed(tmp_path: Path, metadata: dict[str, Any], fact: str) -> None:
    path = written_gguf(tmp_path / "m.gguf", "llama", "q8_0", metadata=metadata)
    with pytest.raises(UnsupportedError, match="load: llama with unsupported options") as caught:
        rlx.load(path)
    assert fact in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"blk.0.attn_q.weight": np.ones((3, 256), np.float32)}, "is [3, 256], and the configuration says [256, 256]"),
        ({"blk.0.attn_rot.weight": np.ones(3, np.float32)}, "blk.0.attn_rot.weight (of the file)  is unknown"),
        ({"layers.0.self_attn.q_proj.weight": np.ones(3, np.float32)}, "(of the file)  is unknown"),
        ({"output_norm.weight": np.ones(256, np.int8)}, "is of i8, and must be of floats"),
    ],
)
def test_tensors_that_do_not_fit_are_listed(tmp_path: Path, more: dict[str, Any], fact: str) -> None:
    path = written_gguf(tmp_path / "m.gguf", "llama", "q8_0", more=more)
    with pytest.raises(FormatError, match="load: a tensor does not fit the architecture llama") as caught:
        rlx.load(path)
    assert fact in str(caught.value)
    assert str(path) in str(caught.value)


def test_norms_in_blocks_are_decoded_and_an_unknown_type_is_refused(tmp_path: Path) -> None:
    norm = np.linspace(0.5, 1, 256, dtype=np.float32)
    path = written_gguf(tmp_path / "m.gguf", "llama", "q8_0", more={"output_norm.weight": stored(norm, "q8_0")})
    assert isinstance(rlx.load(path).parameters["norm.weight"], np.ndarray)
    data = path.read_bytes()
    name = b"output_norm.weight" + b"\1\0\0\0" + (256).to_bytes(8, "little")
    assert data.count(name + b"\x08") == 1
    path.write_bytes(data.replace(name + b"\x08", name + b"\x09"))
    with pytest.raises(UnsupportedError, match="has the type 9"):
        rlx.load(path)


def test_names_of_layers_differ() -> None:
    assert len(set(LAYER_TENSORS.values())) == len(LAYER_TENSORS)


def test_a_mixture_of_experts_in_another_architecture_is_refused(tmp_path: Path) -> None:
    path = written_gguf(tmp_path / "m.gguf", "gemma", "q8_0", metadata={"gemma.expert_count": 8})
    with pytest.raises(UnsupportedError, match="load: gemma with unsupported options") as caught:
        rlx.load(path)
    assert "mixtures of experts" in str(caught.value)


def test_missing_experts_are_listed(tmp_path: Path) -> None:
    path = written_gguf(tmp_path / "m.gguf", "llama", "q8_0", metadata={"llama.expert_count": 8})
    with pytest.raises(FormatError) as caught:
        rlx.load(path)
    assert "layers.0.block_sparse_moe.experts.w1.weight  is missing, [8, 512, 256]" in str(caught.value)


def test_experts_are_read_where_they_lie(tmp_path: Path) -> None:
    """Fields of the experts in programs are those of the file, and binding makes no copy but the packed one."""
    model = rlx.load(written_gguf(tmp_path / "m.gguf", "mixtral", "q4_0"))
    compiled = model.compile()
    compiled(IDS)
    assert [step.node.op.name for step in compiled.executable.lir.steps].count("rlx.fused_grouped_matmul") == 6
    experts = sum(each.nbytes for name, each in model.parameters.items() if ".experts." in name)
    assert compiled.report.prepared_nbytes < experts / 4
