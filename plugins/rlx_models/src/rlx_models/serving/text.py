"""`TextStream`: the text of tokens that arrive one by one, up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlx_models.tokenizers import Tokenizer

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
MAX_INCOMPLETE: Final = 3
"""Bytes of an incomplete character of UTF-8; each may be a token, and be decoded as a replacement character."""


class TextStream:
    """The text of tokens that arrive one by one, up to a stop string.

    A character whose bytes are incomplete is withheld, and so is the end of the text as long as it may begin a stop string.
    Only the last tokens are decoded for each new one.

    Args:
        tokenizer: The tokenizer.
        stop: Texts that end the text.

    Attributes:
        is_stopped: Whether a stop string has ended the text.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.is_stopped = False
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._window: list[int] = []
        self._context = 0
        self._pending = 0
        self._decoded = 0
        self._withheld = ""

    def add(self, token: int) -> str:
        """Return the text that a token completes; "" after a stop string."""
        self._window.append(token)
        self._pending += 1
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) and self._pending <= MAX_INCOMPLETE:
            return ""
        end = len(text.rstrip(REPLACEMENT))
        if end < len(text):
            end = max(end, len(text) - MAX_INCOMPLETE)
        new = text[self._decoded : end]
        self._decoded = max(self._decoded, end)
        if end == len(text):
            self._shift()
        return self._until_stop(new)

    def finish(self) -> str:
        """Return the withheld text, when no token follows."""
        if self.is_stopped:
            return ""
        remainder = self._until_stop(self._tokenizer.decode(self._window)[self._decoded :])
        remainder += "" if self.is_stopped else self._withheld
        self._window, self._context, self._pending, self._decoded, self._withheld = [], 0, 0, 0, ""
        return remainder

    def _shift(self) -> None:
        """Remove the tokens before the last shift, if the later ones have a text.

        Tokens are decoded after others, because decoders treat the beginning of a text differently.
        """
        self._pending = 0
        decoded = len(self._tokenizer.decode(self._window[self._context :]))
        if decoded:
            del self._window[: self._context]
            self._context, self._decoded = len(self._window), decoded

    def _until_stop(self, new: str) -> str:
        if self.is_stopped:
            return ""
        text = self._withheld + new
        ends = [text.find(each) for each in self._stop if each in text]
        if ends:
            self.is_stopped, self._withheld = True, ""
            return text[: min(ends)]
        count = max((_prefix_length(text, each) for each in self._stop), default=0)
        self._withheld = text[len(text) - count :]
        return text[: len(text) - count]


def _prefix_length(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that begins a stop string."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
