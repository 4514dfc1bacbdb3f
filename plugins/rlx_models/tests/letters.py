"""A small checkpoint whose tokens are letters, with its tokenizer: `text` and `tokens` are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import CONFIGS, written

tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")

LETTERS = "abcdefghijk"
MAX_LENGTH = 64


def letter_tokenizer() -> Any:
    """Return a tokenizer whose tokens are the letters a to k; other characters are an a."""
    model = tokenizers.models.BPE(vocab={each: n for n, each in enumerate(LETTERS)}, merges=[], unk_token="a")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = tokenizers.decoders.Fuse()
    return tokenizer


class ChatLetters:
    """The same tokenizer with a template of chats: the contents, each after the first letter of its role that is a token."""

    def __init__(self) -> None:
        self._tokenizer = letter_tokenizer()

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int], /) -> str:
        text: str = self._tokenizer.decode(ids)
        return text

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], /, *, add_generation_prompt: bool = False) -> str:
        marks = {"system": "c", "user": "d", "assistant": "e"}
        text = "".join(marks[each["role"]] + each["content"] for each in messages)
        return text + "e" * add_generation_prompt


def written_letters(folder: Path) -> Path:
    """Write a checkpoint of letters with its tokenizer."""
    written(folder, CONFIGS["llama"])
    letter_tokenizer().save(str(folder / "tokenizer.json"))
    return folder
