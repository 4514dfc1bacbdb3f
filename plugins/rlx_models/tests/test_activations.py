"""`generate(activations="int8")`: products with quantised weights multiply integers."""

from __future__ import annotations

import numpy as np
import pytest
from gguf_models import written_gguf

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_models import PretrainedModel, generate
from rlx_models.generation.programs import ACTIVATIONS, STEPS, zero_cache

SIZES = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}


@pytest.fixture(scope="module", params=["q4_0", "q8_0"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return rlx.load(written_gguf(path, "llama", request.param, **SIZES))


def logits(model: PretrainedModel, activations: str) -> np.ndarray:
    generate(model, [[1, 2, 3]], 2, activations=activations, eos_token_id=())
    step = model.programs[STEPS["f32"] + ACTIVATIONS[activations], None]
    decoding = model.architecture.decoding
    assert decoding is not None
    result, _ = step(np.array([[1, 2, 3]]), np.array([0]), zero_cache(decoding, 1, 16, "cpu"), np.array(0))
    assert ("block_scaled_matmul" in str([s.node.op.name for s in step.executable.lir.steps])) == (activations != "f32")
    return np.asarray(result)


def test_logits_are_near_those_of_f32(model: PretrainedModel) -> None:
    exact, narrow = (logits(model, each) for each in ("f32", "int8"))
    assert 0 < np.abs(narrow - exact).max() < 0.05 * np.abs(exact).max()


def test_unknown_activations_are_an_error_with_the_known_ones(model: PretrainedModel) -> None:
    with pytest.raises(ConfigError, match="activations is 'i8'") as caught:
        generate(model, [[1]], 1, activations="i8")
    assert "f32 or int8" in str(caught.value.hint)
