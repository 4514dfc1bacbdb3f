"""MiniLM-L6 sentence embeddings with the real weights: the program of `examples/minilm.py`, for fixed sizes."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from examples import minilm


@functools.cache
def model() -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights and the configuration."""
    files = minilm.model_files()
    weights = minilm.load_weights(files["model.safetensors"])
    return weights, json.loads(files["config.json"].read_text())


def data(batch: int, length: int) -> Data:
    weights, config = model()
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 30000, (batch, length))
    return {"weights": weights, "config": config, "ids": ids, "mask": np.ones((batch, length), np.float32)}


def compiled(data: Data, **options: Any) -> Any:
    """The compiled encoder for the sizes of the data, its weights bound."""
    config = data["config"]

    def embed(weights: Any, ids: Any, mask: Any) -> Any:
        return minilm.encode(weights, ids, mask, config)

    batch, length = data["ids"].shape
    specs = rlx.spec(f"i64[{batch}, {length}]"), rlx.spec(f"f32[{batch}, {length}]")
    return rlx.compile(embed, data["weights"], *specs, **options)


def rlx_program(data: Data) -> Program:
    encoder, ids, mask = compiled(data), data["ids"], data["mask"]
    return Program(lambda: encoder(ids, mask), lambda: [encoder(ids, mask)])


def case(batch: int, length: int, aim: float) -> Case:
    # Unit vectors of 384 components after six layers of float32 products in different orders.
    return Case(
        f"minilm-{batch}x{length}", "minilm", lambda: data(batch, length), rlx_program, rtol=0, atol=1e-5, aim=aim
    )


CASES = (case(1, 16, 0.55), case(1, 128, 0.70), case(8, 128, 0.80))
