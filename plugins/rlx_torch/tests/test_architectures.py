"""Architectures of Hugging Face's by `from_torch`, with symbolic batch and length, against torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")
pytest.importorskip("transformers", reason="pip install 'rlx-torch[models]'")

from torch_architectures import architectures  # noqa: E402

from rlx_torch.modules import from_torch  # noqa: E402  # torch first: without it there is nothing to test

WORDS = ("input_ids", "attention_mask", "decoder_input_ids")
QUICK = ("distilbert", "gpt2")
ALL = architectures()


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in ALL])
def test_an_architecture(name: str) -> None:
    made = ALL[name]
    module = made.module(made.config).eval()
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=60)
    example = made.inputs(2, 7)
    shapes = {n: {0: batch, 1: length} if n in WORDS else {0: batch} for n in example}

    model = from_torch(module, (), example, dynamic_shapes=shapes)

    assert str(model.inputs[next(iter(example))]).split("[")[1].startswith("batch")
    for sizes in ((2, 7), (3, 5), (1, 11)):
        given = made.inputs(*sizes)
        found = model(**{n: x.numpy() for n, x in given.items()})
        with torch.no_grad():
            wanted = module(**given)
        first = next(iter(wanted.keys()))
        want = wanted[first].numpy()
        seen = given["attention_mask"].numpy() == 1 if "attention_mask" in given and want.ndim == 3 else np.bool_(True)
        difference = np.where(seen[..., None] if seen.ndim else True, found[first] - want, 0)
        assert np.abs(want).max() > 1e-3
        assert np.abs(difference).max() <= 1e-5 * max(1.0, float(np.abs(want).max()))
