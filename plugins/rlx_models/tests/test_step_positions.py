"""Steps of decoders with a position for each batch entry: the values of steps with one position, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written

import rlx_core as rlx
from rlx_models import from_pretrained

GPT_OSS = {
    **CONFIGS["llama"], "model_type": "gpt_oss", "head_dim": 4, "sliding_window": 4, "num_local_experts": 3,
    "num_experts_per_tok": 2, "rope_theta": 500.0, "layer_types": ["full_attention", "sliding_attention"],
}  # fmt: skip
FALCON_H1 = {
    **CONFIGS["llama"], "model_type": "falcon_h1", "mamba_d_ssm": 8, "mamba_n_heads": 2, "mamba_d_head": 4, "mamba_d_state": 4,
    "mamba_chunk_size": 4, "mamba_n_groups": 1, "mamba_expand": 1, "mamba_d_conv": 4,
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    **{name: CONFIGS[name] for name in ("bloom", "deepseek_v3", "gpt2", "llama", "mamba", "mixtral")},
    "falcon_h1": FALCON_H1,
    "gpt_oss": GPT_OSS,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", DECODERS)
def test_positions_of_batch_entries_are_the_one_position_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Entry 0 of the second program is 3 tokens ahead of entry 1; each is compared with a batch at its position."""
    model = from_pretrained(written(tmp_path / "m", DECODERS[name]))
    decoding = model.architecture.decoding
    assert decoding is not None
    batch, capacity = 2, 32
    specs = [tuple(rlx.spec(f"f32[b, {rows or capacity}, {n}]") for rows, n in entry) for entry in decoding.cache]
    ids, entries = rlx.spec("i64[b, steps]"), rlx.spec("i64[b]")
    one, each = (
        rlx.compile(decoding.step, model.parameters, ids, entries, specs, position, donate="cache")
        for position in (rlx.spec("i64[]"), entries)
    )

    def zeros() -> list[tuple[np.ndarray, ...]]:
        return [
            tuple(np.zeros((batch, rows or capacity, n), np.float32) for rows, n in entry) for entry in decoding.cache
        ]

    rng, padding, ahead = np.random.default_rng(0), np.array([1, 3]), 3
    tokens = rng.integers(0, 11, (batch, 8 + ahead + 4))
    expected, cache, caches = [], zeros(), []
    for start, stop in ((0, 8), *((n, n + 1) for n in range(8, tokens.shape[1]))):
        logits, cache = one(tokens[:, start:stop], padding, cache, np.array(start))
        expected.append(np.asarray(logits).copy())
        caches.append([tuple(np.array(x) for x in entry) for entry in cache])

    both = [
        tuple(np.stack([x[0], y[1]]) for x, y in zip(first, second, strict=True))
        for first, second in zip(caches[ahead], caches[0], strict=True)
    ]
    for n in range(4):
        at = np.array([8 + ahead + n, 8 + n])
        logits, both = each(tokens[np.arange(batch), at][:, None], padding, both, at)
        np.testing.assert_array_equal(logits[0], expected[1 + ahead + n][0])
        np.testing.assert_array_equal(logits[1], expected[1 + n][1])
