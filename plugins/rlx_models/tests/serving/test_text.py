"""`TextStream`: the parts of a text are the text, and stop strings end it, wherever tokens begin and end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from rlx_models.serving.text import TextStream

tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")

ALPHABET = "ab é你😀 "


def byte_level() -> Any:
    """Return a tokenizer whose tokens are bytes, and some pairs."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def byte_fallback() -> Any:
    """Return a tokenizer in the manner of SentencePiece: words, and bytes for other characters."""
    pieces = ["▁", "▁a", "a", "b", "▁b", *(f"<0x{n:02X}>" for n in range(256))]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=[("▁", "a"), ("▁", "b")], byte_fallback=True)
    )
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def streamed(tokenizer: Any, ids: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(tokenizer, stop)
    return [*(stream.add(token) for token in ids), stream.finish()]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["byte level", "byte fallback"])
def test_the_parts_of_a_text_are_the_text(tokenizer: Any) -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(20)))
        ids = tokenizer.encode(text).ids
        parts = streamed(tokenizer, ids)
        assert "".join(parts) == tokenizer.decode(ids)
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)
        assert parts[-1] == "", "nothing is withheld without stop strings and incomplete characters"


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["byte level", "byte fallback"])
def test_stop_strings_end_a_text(tokenizer: Any) -> None:
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choice("ab 你") for _ in range(rng.randrange(20)))
        stop = ["".join(rng.choice("ab 你") for _ in range(rng.randrange(1, 4))) for _ in range(2)]
        ids = tokenizer.encode(text).ids
        decoded, parts = tokenizer.decode(ids), streamed(tokenizer, ids, stop)
        # The stop string that is complete first ends the text; of those, the one that begins first.
        ends = [decoded.find(each) + len(each) for each in stop if each in decoded]
        first = decoded[: min(ends)] if ends else decoded
        begins = [first.find(each) for each in stop if each in first]
        assert "".join(parts) == (first[: min(begins)] if begins else decoded)


def test_bytes_that_are_no_text_are_replaced() -> None:
    tokenizer = byte_level()
    ids = [tokenizer.token_to_id(letter) for letter in ("ÿ", "ÿ", "a", "ÿ", "ÿ", "ÿ", "ÿ", "ÿ", "ÿ", "b")]
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)
    assert "".join(streamed(tokenizer, ids[:8])) == tokenizer.decode(ids[:8])


def test_the_end_of_a_text_is_withheld_while_it_may_begin_a_stop_string() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("ab\n\nUser: x").ids
    parts = streamed(tokenizer, ids, ["\n\nUser:"])
    assert "".join(parts) == "ab"
    assert streamed(tokenizer, tokenizer.encode("ab\n\nUs").ids, ["\n\nUser:"])[-1] == "\n\nUs"
