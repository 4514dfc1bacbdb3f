"""The reader `transformers` of rlx-models: models by modules of Transformers, compared with these modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, FormatError, UnsupportedError

pytest.importorskip("rlx_models", reason="python -m pip install rlx-models")
torch = pytest.importorskip("torch", reason="python -m pip install torch")
transformers = pytest.importorskip("transformers", reason="python -m pip install transformers")

from random_checkpoints import FALCON_H1, GROUPED, MAMBA, MARIAN, RWKV, SMALL, VIT, saved, stored  # noqa: E402  # needs both

from rlx_models import from_pretrained, generate  # noqa: E402
from rlx_models.architectures import ARCHITECTURES  # noqa: E402

SAMPLED = {
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
SIGLIP = {
    "text_config": {**SMALL, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2},
    "vision_config": {**VIT, "image_size": 8},
}
BY_TRANSFORMERS: dict[str, tuple[tuple[str, str, dict[str, Any]], dict[str, int]]] = {
    "mamba": (("MambaConfig", "MambaForCausalLM", MAMBA), {"length": 9}),
    "rwkv": (("RwkvConfig", "RwkvForCausalLM", RWKV), {"length": 9}),
    "falcon_h1": (("FalconH1Config", "FalconH1ForCausalLM", {**GROUPED, **FALCON_H1}), {"length": 9}),
    "siglip": (("SiglipConfig", "SiglipModel", SIGLIP), {}),
    "dinov2": (("Dinov2Config", "Dinov2Model", {**VIT, "image_size": 8}), {}),
    "dinov2 of other sizes": (("Dinov2Config", "Dinov2Model", {**VIT, "image_size": 8}), {"height": 12, "width": 16}),
    "marian": (("MarianConfig", "MarianMTModel", MARIAN), {}),
    "wav2vec2": (("Wav2Vec2Config", "Wav2Vec2ForCTC", {**SMALL, **SAMPLED}), {"samples": 400}),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", BY_TRANSFORMERS)
def test_results_are_those_of_the_module(name: str, tmp_path: Path) -> None:
    made, sizes = BY_TRANSFORMERS[name]
    theirs, kind = stored(made, tmp_path), name.split(" ")[0]
    if kind not in ARCHITECTURES:
        with pytest.raises(UnsupportedError, match=f"model_type '{kind}'") as caught:
            from_pretrained(tmp_path)
        assert "reader='transformers'" in str(caught.value)
    ours = from_pretrained(tmp_path, reader="transformers", sizes=sizes)
    rng = np.random.default_rng(0)
    for count in (1, 3):
        given = []
        for spec in ours.inputs.values():
            shape = [each if isinstance(each, int) else count + 3 * axis for axis, each in enumerate(spec.shape)]
            is_whole = spec.dtype == rlx.i64
            given.append(rng.integers(3, 61, shape) if is_whole else rng.standard_normal(shape).astype(np.float32))
        named = dict(zip(ours.inputs, map(torch.tensor, given), strict=True))
        if "attention_mask" in named:
            given[1] = np.ones_like(given[1])
            named["attention_mask"] = torch.ones_like(named["attention_mask"])
        with torch.no_grad():
            expected = theirs(**named)
        found = ours(*given)
        if name == "siglip":
            found, expected = found["logits_per_image"], expected.logits_per_image
        else:
            expected = expected[0]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    with pytest.raises(ConfigError, match=f"{kind} was read by transformers"):
        generate(ours, [[1]], 3)


@pytest.mark.medium
def test_errors_name_sizes_that_export_fixes(tmp_path: Path) -> None:
    saved(BY_TRANSFORMERS["mamba"][0], tmp_path)
    with pytest.raises(UnsupportedError, match="MambaForCausalLM is exported at a fixed length only") as caught:
        from_pretrained(tmp_path, reader="transformers")
    assert "sizes={'length': 7}" in str(caught.value)
    with pytest.raises(ConfigError, match="mamba has no size 'steps'"):
        from_pretrained(tmp_path, reader="transformers", sizes={"steps": 3})
    made = ("SiglipConfig", "SiglipModel", SIGLIP)
    saved(made, tmp_path / "siglip")
    with pytest.raises(UnsupportedError, match="SiglipModel refuses its inputs"):
        from_pretrained(tmp_path / "siglip", reader="transformers", sizes={"height": 12})
    with pytest.raises(ConfigError, match="sizes are for reader='transformers'"):
        from_pretrained(tmp_path, sizes={"length": 3})


@pytest.mark.medium
def test_missing_tensors_are_rejected_if_the_program_reads_them(tmp_path: Path) -> None:
    """Wav2Vec2's embedding of masked positions may be missing: only training reads it."""
    made, sizes = BY_TRANSFORMERS["wav2vec2"]
    saved(made, tmp_path)
    tensors = rlx.load(tmp_path / "model.safetensors", mapped=False)

    def without(name: str) -> Path:
        rlx.save(tmp_path / "model.safetensors", {each: tensors[each] for each in tensors if each != name})
        return tmp_path

    ours = from_pretrained(without("wav2vec2.masked_spec_embed"), reader="transformers", sizes=sizes)
    assert "wav2vec2.masked_spec_embed" not in ours.parameters
    assert ours(np.zeros((1, 400), np.float32)).shape[-1] == 61
    with pytest.raises(FormatError, match="a tensor does not fit Wav2Vec2ForCTC") as caught:
        from_pretrained(without("lm_head.weight"), reader="transformers", sizes=sizes)
    assert "is missing" in str(caught.value)
