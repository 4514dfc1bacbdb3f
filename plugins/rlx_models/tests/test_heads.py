"""Heads of encoders, compared with the classes of Transformers on random checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlx_core.errors import UnsupportedError
from rlx_models import from_pretrained
from rlx_models.architectures.heads import HEADS

torch = pytest.importorskip("torch", reason="python -m pip install torch")
pytest.importorskip("transformers", reason="python -m pip install transformers")

from random_checkpoints import DECODERS, ENCODERS, READERS, saved  # noqa: E402  # it needs both

CASES = {
    "bert": "bert",
    "roberta": "roberta",
    "mpnet": "mpnet",
    "distilbert": "distilbert",
    "electra": "electra",
    "albert": "albert",
    "deberta-v2": "deberta v2",
    "modernbert": "modernbert",
}
CLASSES = [(kind, head) for kind in CASES for head in HEADS[kind]]


def made_with(kind: str, head: str, folder: Path, **options: object) -> object:
    config, base, given = ENCODERS[CASES[kind]]
    return saved((config, base.removesuffix("Model") + head, {**given, "num_labels": 3, **options}), folder)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "head"), CLASSES, ids=lambda each: each)
def test_heads_agree_with_transformers(kind: str, head: str, tmp_path: Path) -> None:
    options = {"num_labels": 2} if head == "ForQuestionAnswering" else {}
    theirs = made_with(kind, head, tmp_path, **options)
    ids = np.random.default_rng(3).integers(3, 61, (2, 9))
    mask = np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    with torch.no_grad():
        found = theirs(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))  # type: ignore[operator]
    expected = (found.start_logits, found.end_logits) if head == "ForQuestionAnswering" else (found.logits,)
    own = from_pretrained(tmp_path)(ids, mask)
    own = own if isinstance(own, tuple) else (own,)
    for a, b in zip(own, expected, strict=True):
        seen = mask.astype(bool) if np.ndim(a) > 1 and np.shape(a)[1] == 9 else slice(None)
        np.testing.assert_allclose(np.asarray(a)[seen], b.numpy()[seen], rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_mean_pooling_ignores_padding(tmp_path: Path) -> None:
    theirs = made_with("modernbert", "ForSequenceClassification", tmp_path, classifier_pooling="mean")
    ids, mask = np.random.default_rng(3).integers(3, 61, (2, 9)), np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    with torch.no_grad():
        found = theirs(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).logits  # type: ignore[operator]
    np.testing.assert_allclose(from_pretrained(tmp_path)(ids, mask), found.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_unsupported_class_is_rejected_and_its_encoder_is_available(tmp_path: Path) -> None:
    made_with("bert", "ForMultipleChoice", tmp_path)
    with pytest.raises(UnsupportedError, match="bert with unsupported options") as caught:
        from_pretrained(tmp_path)
    assert "BertForMultipleChoice; supported are …ForSequenceClassification" in str(caught.value)
    assert "head=False" in str(caught.value)
    ids = np.array([[5, 6, 7]])
    assert from_pretrained(tmp_path, head=False)(ids, np.ones_like(ids)).shape == (1, 3, 32)


@pytest.mark.medium
def test_encoder_of_a_model_with_a_head_is_a_submodel(tmp_path: Path) -> None:
    made_with("bert", "ForTokenClassification", tmp_path)
    ids = np.array([[5, 6, 7]])
    model = from_pretrained(tmp_path)
    assert model(ids, np.ones_like(ids)).shape == (1, 3, 3)
    assert model.submodel("base_model")(ids, np.ones_like(ids)).shape == (1, 3, 32)


@pytest.mark.parametrize("name", ["gpt2", "llama3 tied", "bart"])
def test_classifier_on_a_decoder_is_rejected(name: str, tmp_path: Path) -> None:
    config, model, given = {**DECODERS, **READERS}[name]
    base = model.removesuffix("LMHeadModel").removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    saved((config, f"{base}ForSequenceClassification", {**given, "pad_token_id": 0, "eos_token_id": 2}), tmp_path)
    with pytest.raises(UnsupportedError, match=f"{base}ForSequenceClassification, whose head is not supported"):
        from_pretrained(tmp_path)
