"""The MiniLM example against PyTorch running the same weights, on sentences of different lengths in one padded batch."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import rlx_core as rlx

ROOT = Path(__file__).parents[2]

SENTENCES = [
    "Bread.",
    "A compiler turns programs into programs.",
    "The quick brown fox jumps over the lazy dog while the compiler plans its memory and the arena stays small.",
    "Weights of padded keys are exactly zero.",
    "Attention must not see the padding, however much of it there is.",
]


@pytest.fixture(scope="module")
def minilm() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minilm", ROOT / "examples" / "minilm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_embeddings(
    weights: dict[str, np.ndarray], config: dict[str, Any], ids: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """A BERT encoder with mean pooling written with torch's own functions, in float32."""
    functional = torch.nn.functional
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], tensors[f"{name}.weight"], tensors[f"{name}.bias"], eps)

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    valid = torch.from_numpy(mask)
    hidden = functional.embedding(torch.from_numpy(ids), tensors["embeddings.word_embeddings.weight"])
    hidden = hidden + tensors["embeddings.token_type_embeddings.weight"][0]
    hidden = norm(hidden + tensors["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
    hide = torch.where(valid[:, None, None, :] > 0, 0.0, -math.inf)
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        q, k, v = (split(linear(hidden, f"{at}.attention.self.{n}")) for n in ("query", "key", "value"))
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + hide, -1)
        context = (scores @ v).transpose(1, 2).reshape(hidden.shape)
        hidden = norm(hidden + linear(context, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = functional.gelu(linear(hidden, f"{at}.intermediate.dense"))
        hidden = norm(hidden + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    pooled = (hidden * valid[:, :, None]).sum(1) / valid.sum(1, keepdim=True)
    return functional.normalize(pooled, dim=1).numpy()


@pytest.mark.parametrize("policy", ["direct", "fusable"])
def test_embeddings_agree_with_pytorch(minilm: ModuleType, policy: str) -> None:
    files = minilm.model_files()
    config = json.loads(files["config.json"].read_text())
    ids, mask = minilm.tokenize(files["tokenizer.json"], SENTENCES)
    assert len({int(row.sum()) for row in mask}) >= 4, "the sentences have different lengths"
    model, _ = minilm.build(config={"fusion.policy": policy})
    with torch.inference_mode():
        expected = torch_embeddings(minilm.load_weights(files["model.safetensors"]), config, ids, mask)
    # Unit vectors of 384 components after 6 layers of float32 products: both sides are a few 1e-7 from the exact value.
    np.testing.assert_allclose(model(ids, mask), expected, rtol=0, atol=1e-5)


def test_dynamic_int8_keeps_directions(minilm: ModuleType) -> None:
    """One key of the configuration quantises all 24 products of the encoder; sentence vectors keep their directions."""
    model, tokenizer = minilm.build(config={"cache.disk": False})
    narrow, _ = minilm.build(config={"include": ["dynamic-int8"], "cache.disk": False})
    ids, mask = minilm.tokenize(tokenizer, SENTENCES)
    exact, quantised = np.asarray(model(ids, mask)), np.asarray(narrow(ids, mask))
    assert (exact * quantised).sum(-1).min() >= 0.99
    assert (exact != quantised).any()
    assert [entry.reason for entry in narrow.report.conversions] == [None] * 24


@pytest.mark.parametrize("method", ["min-max", "percentile"])
def test_static_int8_keeps_directions(minilm: ModuleType, method: Any) -> None:
    """Ranges are measured on other sentences. Entropy is not tried: it clips the few large features of such encoders."""
    files = minilm.model_files()
    weights, config = minilm.load_weights(files["model.safetensors"]), json.loads(files["config.json"].read_text())
    program = (
        lambda weights, ids, mask: minilm.encode(weights, ids, mask, config),
        *(weights, rlx.spec("i64[batch, seq]"), rlx.spec("f32[batch, seq]")),
    )
    batches = [minilm.tokenize(files["tokenizer.json"], MEASURED[i : i + 2]) for i in range(0, len(MEASURED), 2)]
    found = rlx.quantization.calibrate(*program, batches=batches, method=method)
    narrow = rlx.compile(*program, config={"include": [found.entry], "cache.disk": False})
    ids, mask = minilm.tokenize(files["tokenizer.json"], SENTENCES)
    exact, quantised = (np.asarray(each(ids, mask)) for each in (rlx.compile(*program), narrow))
    assert (exact * quantised).sum(-1).min() >= 0.98
    assert [entry.reason for entry in narrow.report.conversions] == [None] * 24


MEASURED = [
    "The cat sat on the mat.",
    "Stock markets fell sharply on Monday after new data.",
    "Quantum mechanics describes nature at small scales.",
    "How do I reset my password?",
    "The river flooded the valley last spring, and the bridge was closed for two weeks.",
    "She plays the violin in an orchestra.",
]
