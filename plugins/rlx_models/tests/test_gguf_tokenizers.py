"""Tokenizers of GGUF metadata: tokens of the tokenizer that they came from, and of SentencePiece's algorithm."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import written_checkpoint, written_gguf
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import FormatError, UnsupportedError
from rlx_models import generate, gguf
from rlx_models.gguf.tokenizer import LLAMA3, PRE_TOKENIZERS, QWEN2, SPACE, tokenizer_of
from rlx_models.gguf.tokenizer_metadata import tokenizer_metadata

tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")

TEXTS = [
    "the quick brown fox jumps",
    "It's 12345 o'clock,\n\n  isn't it?",
    "Ärger über Öl 漢字 🙂",
    " a  b\tc",
    "",
    "<|end|>the<|end|>",
]
CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "the thing isn't that 12345 12 34",
    "Ärger über Öl the then",
] * 3


def trained(expression: str | None) -> Any:
    """Return a tokenizer of bytes that is trained on a small text."""
    division = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=expression is LLAMA3))
    tokenizer.pre_tokenizer = division.ByteLevel(add_prefix_space=False)
    if expression is not None:
        split = division.Split(tokenizers.Regex(expression), behavior="isolated")
        tokenizer.pre_tokenizer = division.Sequence(
            [split, division.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tokenizer.normalizer = tokenizers.normalizers.NFC() if expression is QWEN2 else None
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = division.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|begin|>", "<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_metadata(tokenizer: Any, label: str) -> dict[str, Any]:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": label,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3 if token.startswith("<|") else 1 for token in tokens], np.int32),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }


@pytest.mark.parametrize("label", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_pairs_are_those_of_the_original(label: str) -> None:
    original = trained(PRE_TOKENIZERS[label])
    metadata = byte_metadata(original, label)
    assert len(metadata["tokenizer.ggml.merges"]) > 20
    tokenizer = tokenizer_of(metadata)
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert ids == original.encode(text).ids
        assert tokenizer.decode(ids) == original.decode(ids)
    begun = tokenizer_of({**metadata, "tokenizer.ggml.add_bos_token": True}).encode("the").ids
    assert begun == [0, *original.encode("the").ids]


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *"abcdehqtu", SPACE,
          "th", "he", "the", f"{SPACE}t", f"{SPACE}the", "qu", "ea", "ab", "bc", f"{SPACE}a"]  # fmt: skip


def piece_metadata() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    types = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.scores": rng.permutation(len(PIECES)).astype(np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def sentencepiece_tokens(text: str, scores: np.ndarray) -> list[int]:
    """Return the tokens by SentencePiece's algorithm: the adjacent pair of the highest score becomes one, until there is none."""
    ids = {piece: n for n, piece in enumerate(PIECES)}
    parts = list(SPACE + text.replace(" ", SPACE))
    while True:
        merged = [(scores[ids[a + b]], -n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not merged:
            break
        n = -max(merged)[1]
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
    return [n for part in parts for n in ([ids[part]] if part in ids else [3 + byte for byte in part.encode()])]


@pytest.mark.parametrize("text", ["the", "the bathe a bceab", "quetheab  the", "zebra ü the", "aabbcc"])
def test_pieces_are_those_of_sentencepiece(text: str) -> None:
    metadata = piece_metadata()
    tokenizer = tokenizer_of(metadata)
    ids = tokenizer.encode(text).ids
    assert ids == [1, *sentencepiece_tokens(text, metadata["tokenizer.ggml.scores"])]
    assert tokenizer.decode(ids) == text
    ended = tokenizer_of({**metadata, "tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": False})
    assert ended.encode(text).ids == [*ids[1:], 2]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, UnsupportedError, "the tokenizer 'bert'"),
        ({"tokenizer.ggml.tokens": [1]}, FormatError, "no list of texts"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, FormatError, "a token twice"),
        ({"tokenizer.ggml.token_type": np.zeros(3, np.int32)}, FormatError, "token_type` is no list"),
        ({"tokenizer.ggml.scores": None}, FormatError, "scores` is no list"),
        ({"tokenizer.ggml.bos_token_id": 10**6}, FormatError, "bos_token_id` is 1000000"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a"]}, FormatError, "merges` is no list"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["xy z"]},
            FormatError,
            "do not describe a tokenizer",
        ),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "poro"}, UnsupportedError, "'poro'"),
    ],
)
def test_metadata_that_are_no_tokenizer_are_refused(changed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tokenizer_of({**piece_metadata(), **changed})


def test_the_command_continues_a_text(tmp_path: Path) -> None:
    metadata = {**piece_metadata(), "tokenizer.ggml.eos_token_id": 2}
    path = written_gguf(tmp_path / "m.gguf", "llama", "q4_0", metadata=metadata, vocab_size=len(PIECES))
    result = CliRunner().invoke(app, ["generate", str(path), "the bat", "-n", "5", "--json"])
    assert result.exit_code == 0, result.output
    model = rlx.load(path)
    tokenizer = tokenizer_of(gguf.read(path).metadata)
    (tokens,) = generate(model, [tokenizer.encode("the bat").ids], 5)
    assert json.loads(result.output)["text"] == tokenizer.decode(tokens)


def folder_of(path: Path, tokenizer: Any, **config: Any) -> Path:
    """Write the files of a folder that describe a tokenizer."""
    path.mkdir()
    (path / "tokenizer.json").write_text(tokenizer.to_str())
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("label", ["gpt-2", "llama-bpe", "qwen2"])
def test_the_tokenizer_of_a_folder_is_that_of_its_metadata(tmp_path: Path, label: str) -> None:
    original = trained(PRE_TOKENIZERS[label])
    size = original.get_vocab_size() + 3
    folder = folder_of(tmp_path / "m", original, eos_token={"content": "<|end|>"}, chat_template="{{ messages }}")
    metadata = tokenizer_metadata(folder, size, {"eos_token_id": [7, 1], "bos_token_id": 0})
    assert (metadata["tokenizer.ggml.pre"], len(metadata["tokenizer.ggml.tokens"])) == (label, size)
    assert metadata["tokenizer.ggml.token_type"][[0, 1, -1]].tolist() == [3, 3, 5]
    ends = [metadata[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "bos")]
    assert ends == [1, 7, 0]
    assert metadata["tokenizer.chat_template"] == "{{ messages }}"
    gguf.write(tmp_path / "m.gguf", {}, metadata)
    tokenizer = tokenizer_of(gguf.read(tmp_path / "m.gguf").metadata)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == original.encode(text).ids
    begun = library_template(original)
    metadata = tokenizer_metadata(folder_of(tmp_path / "n", begun), size, {})
    assert tokenizer_of(metadata).encode("the").ids == begun.encode("the").ids == [0, *original.encode("the").ids]


def library_template(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer that adds the first token to texts."""
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    copy.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    return copy


@pytest.mark.parametrize("has_prefix", [True, False])
def test_pieces_of_a_folder_are_those_of_its_metadata(tmp_path: Path, has_prefix: bool) -> None:
    original = tokenizer_of({**piece_metadata(), "tokenizer.ggml.add_space_prefix": has_prefix})
    metadata = tokenizer_metadata(folder_of(tmp_path / "m", original), len(PIECES), {"eos_token_id": 2})
    assert metadata["tokenizer.ggml.model"] == "llama"
    assert metadata["tokenizer.ggml.token_type"].tolist() == piece_metadata()["tokenizer.ggml.token_type"].tolist()
    assert metadata["tokenizer.ggml.bos_token_id"] == 1
    tokenizer = tokenizer_of(metadata)
    for text in ("the bathe a bceab", "zebra ü the", "aabbcc"):
        assert tokenizer.encode(text).ids == original.encode(text).ids
        assert tokenizer.decode(original.encode(text).ids) == text


def test_tokenizers_that_files_cannot_describe_are_refused(tmp_path: Path) -> None:
    assert tokenizer_metadata(tmp_path, 10, {}) == {}
    original = trained(None)
    with pytest.raises(FormatError, match="is number 5 of 5"):
        tokenizer_metadata(folder_of(tmp_path / "few", original), 5, {})
    content = json.loads(original.to_str())

    def refusal(name: str, **changed: Any) -> str:
        folder = folder_of(tmp_path / name, original)
        (folder / "tokenizer.json").write_text(json.dumps({**content, **changed}))
        with pytest.raises((UnsupportedError, FormatError)) as caught:
            tokenizer_metadata(folder, 300, {})
        assert "tokenizer.json" in str(caught.value)
        return str(caught.value)

    assert "'WordPiece' has no form" in refusal("kind", model={"type": "WordPiece"})
    assert "no name in GGUF files" in refusal("division", pre_tokenizer={"type": "Whitespace"})
    assert "no name in GGUF files" in refusal("normalizer", normalizer={"type": "Lowercase"})
    assert "is no tokenizer" in refusal("damaged", model={"type": "BPE"})
    pieces = json.loads(tokenizer_of(piece_metadata()).to_str())
    pieces["model"]["merges"].append(pieces["model"]["merges"].pop(0))
    reordered = tokenizers.Tokenizer.from_str(json.dumps(pieces))
    assert tokenizer_metadata(folder_of(tmp_path / "ranks", reordered), len(PIECES), {})
    pieces["model"]["merges"].pop()
    fewer = tokenizers.Tokenizer.from_str(json.dumps(pieces))
    with pytest.raises(UnsupportedError, match="not those of pieces with scores"):
        tokenizer_metadata(folder_of(tmp_path / "fewer", fewer), len(PIECES), {})


def test_a_quantised_folder_continues_texts(tmp_path: Path) -> None:
    original = trained(QWEN2)
    size = original.get_vocab_size()
    folder = written_checkpoint(tmp_path / "m", "qwen2", "f16", vocab_size=size)
    (folder / "tokenizer.json").write_text(original.to_str())
    answers = []
    result = CliRunner().invoke(app, ["quantize", str(folder), "--scheme", "q8_0", "-o", str(tmp_path / "m.gguf")])
    assert result.exit_code == 0, result.output
    rlx.save(tmp_path / "saved.gguf", rlx.from_pretrained(folder))
    for model in (folder, tmp_path / "saved.gguf", tmp_path / "m.gguf"):
        result = CliRunner().invoke(app, ["generate", str(model), "the quick", "-n", "4", "--json"])
        assert result.exit_code == 0, result.output
        answers.append(json.loads(result.output)["text"])
    assert answers[0] == answers[1]
    assert answers[2]
