"""Prompts and tokens of quantised llamas from GGUF files: the shape of 134 million weights, and TinyLlama's of 1.1 billion.

Weights are random, so that the files say nothing about the quality of text; their bytes and sizes are those of trained models.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

import rlx_core as rlx
from benchmarks.case import Case, Data, Program

PROMPT, TOKENS, DISTINCT_ROWS = 128, 64, 512


@frozen
class LlamaShape:
    """The sizes of a llama."""

    name: str
    layers: int
    features: int
    hidden: int
    heads: int
    key_value_heads: int
    vocabulary: int = 32000


LLAMA_134M = LlamaShape("134m", 12, 768, 2048, 12, 12)
LLAMA_1B = LlamaShape("1b", 22, 2048, 5632, 32, 4)
SCHEMES = ("q4_0", "q4_k_m", "q8_0")


def scheme_of(name: str, mixture: str, shape: LlamaShape) -> str:
    """Return the scheme of a weight: files of 4 bits of llama.cpp store some weights in 6."""
    if mixture == "q8_0":
        return mixture
    if name == "output":
        return "q6_k"
    if mixture != "q4_k_m":
        return mixture
    layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
    first, last = shape.layers // 8, 7 * shape.layers // 8
    is_sensitive = name.endswith(("attn_v", "ffn_down")) and (
        layer < first or layer >= last or (layer - first) % 3 == 2
    )
    return "q6_k" if is_sensitive else "q4_k"


def weight(rng: np.random.Generator, rows: int, columns: int, scheme: str) -> Any:
    """Return a quantised weight `f32[rows, columns]`, whose rows repeat 512: searching scales takes long."""
    values = rng.standard_normal((min(rows, DISTINCT_ROWS), columns)).astype(np.float32) / np.float32(columns**0.5)
    distinct = rlx.quantization.quantize(values, scheme)
    order = rng.integers(0, len(values), rows)
    return rlx.quantization.QuantizedArray(
        {name: np.asarray(each)[order] for name, each in distinct.fields.items()}, distinct.scheme
    )


def write_llama(path: Path, shape: LlamaShape, mixture: str) -> None:
    """Write a llama of random weights without a tokenizer."""
    from rlx_models import gguf

    rng, d = np.random.default_rng(0), shape.features
    keys = d // shape.heads * shape.key_value_heads
    sizes = {"token_embd": (shape.vocabulary, d), "output": (shape.vocabulary, d)}
    norms = ["output_norm"]
    for i in range(shape.layers):
        sizes |= {f"blk.{i}.attn_{n}": (rows, d) for n, rows in (("q", d), ("k", keys), ("v", keys), ("output", d))}
        sizes |= {f"blk.{i}.ffn_{n}": (shape.hidden, d) for n in ("gate", "up")}
        sizes |= {f"blk.{i}.ffn_down": (d, shape.hidden)}
        norms += [f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm"]
    tensors = {f"{n}.weight": weight(rng, *size, scheme_of(n, mixture, shape)) for n, size in sizes.items()}
    tensors |= {f"{n}.weight": np.ones(d, np.float32) for n in norms}
    metadata = {
        "general.architecture": "llama", "general.name": shape.name, "llama.block_count": shape.layers,
        "llama.context_length": 2048, "llama.embedding_length": d, "llama.feed_forward_length": shape.hidden,
        "llama.attention.head_count": shape.heads, "llama.attention.head_count_kv": shape.key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": d // shape.heads,
        "llama.vocab_size": shape.vocabulary, "tokenizer.ggml.model": "none",
    }  # fmt: skip
    gguf.write(path, tensors, metadata)


@cache
def written_llama(shape: LlamaShape, mixture: str) -> Path:
    """Return the path of a file, which is deleted when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="rlx-bench-")
    atexit.register(folder.cleanup)
    path = Path(folder.name, "model.gguf")
    write_llama(path, shape, mixture)
    return path


def data(shape: LlamaShape, mixture: str, prompt: int, tokens: int) -> Data:
    ids = np.random.default_rng(1).integers(3, shape.vocabulary, PROMPT)
    return {"path": written_llama(shape, mixture), "ids": ids, "prompt": ids[:prompt], "tokens": tokens}


def normalised(logits: Any) -> np.ndarray:
    """Return logits with a mean of 0 and a standard deviation of 1, so that a tolerance is a part of their spread."""
    values = np.asarray(logits, np.float64).reshape(-1)
    return (values - values.mean()) / values.std()


def generate(data: Data, activations: str) -> Program:
    from rlx_models import generate as generated
    from rlx_models.generation.batch import prepare_batch
    from rlx_models.generation.programs import STEPS

    model = rlx.load(data["path"])
    prompt: Sequence[int] = data["prompt"].tolist()

    def logits() -> list[Any]:
        batch = prepare_batch(model, prompts=[data["ids"].tolist()], max_new_tokens=1, activations=activations)
        step = batch.program(STEPS)
        last, _ = step(batch.input_ids, batch.left_padding, batch.zero_cache(step), np.array(0))
        return [normalised(last)]

    run = partial(generated, model, [prompt], data["tokens"], eos_token_id=(), activations=activations)
    return Program(run, logits)


def case(shape: LlamaShape, mixture: str, *, is_prompt: bool, activations: str) -> Case:
    prompt, tokens = (PROMPT, 1) if is_prompt else (1, TOKENS)
    suffix = "" if activations == "f32" else f"-{activations}"
    return Case(
        f"{'prefill' if is_prompt else 'decode'}-gguf-{shape.name}-{mixture}{suffix}", "gguf",
        partial(data, shape, mixture, prompt, tokens), partial(generate, activations=activations),
        work=(prompt if is_prompt else tokens, "tokens/s"),
        # llama.cpp rounds the operands of products to 8 bits in blocks of 32, in every layer; rlx does so on request.
        rtol=0, atol=0.3, aim=1 / 1.25 if is_prompt else 1 / 1.3,
    )  # fmt: skip


CASES = tuple(
    case(shape, mixture, is_prompt=is_prompt, activations=activations)
    for shape in (LLAMA_134M, LLAMA_1B)
    for mixture in SCHEMES
    for is_prompt in (False, True)
    for activations in ("f32", "int8")
)
"""Selected by name only: making the files takes from 10 seconds to minutes."""
