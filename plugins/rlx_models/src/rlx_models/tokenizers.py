"""Tokenizers of checkpoints: `tokenizer.json` by the package `tokenizers` (the extra `text`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rlx_core.errors import Fact, FileError, FormatError, PluginError


class Encoding(Protocol):
    """The tokens of a text."""

    @property
    def ids(self) -> list[int]: ...


class Tokenizer(Protocol):
    """The methods of `tokenizers.Tokenizer` that generation uses."""

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> Encoding: ...

    def decode(self, ids: Sequence[int], /) -> str: ...


def import_tokenizers() -> Any:
    """Return the package tokenizers.

    Raises:
        PluginError: It is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise PluginError(
            "generate: the package tokenizers is not installed", hint="python -m pip install 'rlx-models[text]'"
        ) from None
    return tokenizers


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a checkpoint.

    Raises:
        PluginError: The package tokenizers is not installed.
        FileError, FormatError: `tokenizer.json` is missing or invalid.
    """
    tokenizers = import_tokenizers()
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise FileError("generate: the folder has no tokenizer.json", Fact("folder", folder))
    try:
        tokenizer: Tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 the package raises bare exceptions
        raise FormatError(f"tokenizer.json: {error}", Fact("file", path)) from None
    return tokenizer
