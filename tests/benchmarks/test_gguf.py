"""Files of quantised llamas for benchmarks: their weights' schemes and sizes, and that they generate."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the benchmarks are programs of the checkout, not an installed package
pytest.importorskip("rlx_models", reason="pip install rlx-models")

from benchmarks.cases import gguf
from rlx_models import gguf as files

SHAPE = gguf.LlamaShape("tiny", 8, 256, 512, 4, 2, vocabulary=64)


@pytest.mark.parametrize("mixture", gguf.SCHEMES)
def test_a_file_has_the_schemes_of_its_mixture(mixture: str, tmp_path: Path) -> None:
    gguf.write_llama(tmp_path / "m.gguf", SHAPE, mixture)
    file = files.read(tmp_path / "m.gguf")
    schemes = {n: t.scheme.name.removeprefix("rlx.") for n, t in file.items() if t.scheme is not None}
    sensitive = [n for n in range(SHAPE.layers) if schemes[f"blk.{n}.attn_v.weight"] == "q6_k"]
    assert schemes["output.weight"] == ("q8_0" if mixture == "q8_0" else "q6_k")
    assert schemes["blk.0.attn_q.weight"] == {"q4_k_m": "q4_k"}.get(mixture, mixture)
    assert sensitive == ([0, 3, 6, 7] if mixture == "q4_k_m" else [])
    assert file["blk.0.ffn_down.weight"].shape == (SHAPE.features, SHAPE.hidden)


@pytest.mark.parametrize("activations", ["f32", "int8"])
def test_a_program_generates_the_tokens_of_a_case(activations: str) -> None:
    case = gguf.case(SHAPE, "q4_0", is_prompt=False, activations=activations)
    data = {**case.data(), "prompt": np.array([3]), "tokens": 5}
    program = case.rlx(data)
    (tokens,) = program.run()  # type: ignore[misc]
    (logits,) = program.results()
    assert len(tokens) == 5
    assert logits.shape == (SHAPE.vocabulary,)
    assert abs(logits.std() - 1) < 1e-9
