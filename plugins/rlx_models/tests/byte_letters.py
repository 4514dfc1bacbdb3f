"""A small checkpoint whose tokens are the 256 bytes and one that ends texts, with its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import LLAMA, written

tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")

EOS = 256


def byte_tokenizer() -> Any:
    """Return a tokenizer whose tokens are bytes, in the order of their characters in byte-level BPE, and `<eos>`."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={each: n for n, each in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def written_bytes(folder: Path) -> Path:
    """Write a checkpoint of bytes with its tokenizer; its vocabulary has three tokens more, as padded tables have."""
    written(folder, {**LLAMA, "vocab_size": EOS + 4, "max_position_embeddings": 512, "eos_token_id": EOS})
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder
