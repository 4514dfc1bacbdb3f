"""`generate(cache_dtype=)`: caches of f16, bf16 and int8 in less memory, read as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import written_gguf
from small_checkpoints import CONFIGS, written
from test_step_positions import DECODERS

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models import PretrainedModel, from_pretrained, generate
from rlx_models.generation.programs import STEPS, zero_cache
from rlx_models.layers.attention import head_codes

PROMPT, STEP_COUNT, LENGTH = np.arange(1, 33).reshape(2, 16), 4, 32
BOUNDS = {"f16": 2e-3, "bf16": 2e-2, "int8": 2e-2}
"""Differences of logits, relative to the largest: keys, values, queries and results are rounded to 11 and 8 bits; for int8 keys
and values to 7 bits of the largest of a head."""
RATIOS = {"f16": 2, "bf16": 2, "int8": 64 * 4 / (64 + 4)}
"""Bytes of an f32 cache over those of a cache: heads have 64 features."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return rlx.load(written_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", "llama", "q8_0"))


def steps(model: PretrainedModel, cache_dtype: str) -> tuple[list[np.ndarray], Any, Any]:
    """Return the logits of a prompt and of some tokens after it, the cache, and the program."""
    generate(model, PROMPT.tolist(), 1, cache_dtype=cache_dtype)
    step = model.programs[STEPS[cache_dtype], None]
    decoding = model.architecture.decoding
    assert decoding is not None
    cache: Any = zero_cache(decoding, 2, LENGTH, "cpu", cache_dtype)
    padding, logits = np.array([0, 3]), []
    for index in range(STEP_COUNT):
        ids = PROMPT if index == 0 else np.array([[7 + index], [40 - index]])
        result, cache = step(ids, padding, cache, np.array(0 if index == 0 else 15 + index))
        logits.append(np.asarray(result))
    return logits, cache, step


@pytest.mark.parametrize("dtype", BOUNDS)
def test_logits_are_near_those_of_f32_in_less_memory(model: PretrainedModel, dtype: str) -> None:
    (expected, wide, _), (found, narrow, _) = steps(model, "f32"), steps(model, dtype)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        difference = np.abs(one - other).max() / np.abs(other).max()
        assert 0 < difference < BOUNDS[dtype]
    sizes = [sum(np.asarray(x).nbytes for entry in cache for x in entry) for cache in (wide, narrow)]
    assert sizes[0] / sizes[1] == RATIOS[dtype]


@pytest.mark.parametrize("dtype", BOUNDS)
def test_only_attention_and_the_update_read_the_cache(model: PretrainedModel, dtype: str) -> None:
    """No step makes another copy of it, in f32 for example; the last program processes single tokens."""
    *_, step = steps(model, dtype)
    lir = step.executable.lir
    caches = {v for v in lir.graph.inputs if v.type.dtype.name == ("i8" if dtype == "int8" else dtype)}
    assert len(caches) == 4
    readers = [s.node for s in lir.steps if caches & set(s.node.operands)]
    assert {node.op.name for node in readers} == {"rlx.dynamic_update_slice"}
    updated = {node.result for node in readers}
    assert {s.node.op.name for s in lir.steps if updated & set(s.node.operands)} == {
        "rlx.quantized_attention" if dtype == "int8" else "rlx.attention"
    }


@pytest.mark.medium
@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "deepseek_v3", "t5", "mamba", "gpt_oss", "falcon_h1"])
def test_other_architectures_have_narrow_caches(tmp_path: Path, model_type: str) -> None:
    """gpt-oss has attention sinks, and Falcon-H1 a recurrent state next to keys and values."""
    model = from_pretrained(written(tmp_path, {**CONFIGS, **DECODERS}[model_type]))
    tokens = {dtype: generate(model, [[1, 5, 9], [4]], 4, cache_dtype=dtype, eos_token_id=()) for dtype in STEPS}
    assert all(len(text) == 4 for texts in tokens.values() for text in texts)
    assert tokens["f16"][0][0] == tokens["f32"][0][0]


def test_codes_are_rounded_to_the_nearest_of_127_fractions_of_a_head() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 10)).astype(np.float32)
    x[0, 1, 5:] = 0
    codes, scales = (np.asarray(each) for each in rlx.jit(lambda x: head_codes(x, 2))(x))
    heads = x.reshape(2, 3, 2, 5)
    np.testing.assert_allclose(scales, np.abs(heads).max(-1) / 127, rtol=1e-6)
    assert (codes.dtype, np.abs(codes).max()) == (np.int8, 127)
    assert np.all(np.abs(codes.reshape(heads.shape) * scales[..., None] - heads) <= scales[..., None] * 0.5001)
    assert not scales[0, 1, 1]
    assert not codes[0, 1, 5:].any()


def test_an_unknown_dtype_is_an_error_with_the_known_ones(model: PretrainedModel) -> None:
    with pytest.raises(ConfigError, match="cache_dtype is 'i8'") as caught:
        generate(model, [[1]], 1, cache_dtype="i8")
    assert "f32, f16, bf16, int8" in str(caught.value.hint)
