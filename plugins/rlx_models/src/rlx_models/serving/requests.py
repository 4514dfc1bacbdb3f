"""`Request`: a prompt of the engine and its continuation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from attrs import define, field, frozen

from rlx_models.generation.grammar import ConstrainedText
from rlx_models.generation.options import GenerationOptions
from rlx_models.serving.options import RequestOptions
from rlx_models.serving.text import TextStream

FinishReason = Literal["stop", "length", "cancelled", "error"]
"""`stop`: a token or a text that ends it; `length`: the maximum number of tokens; `error`: a step failed."""


@frozen
class TokenLogprob:
    """The probability of a token of the text.

    Attributes:
        token: The token.
        logprob: The logarithm of its probability by the model.
        top: The most probable tokens with the logarithms, in descending order.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@frozen
class Update:
    """New tokens of a request.

    Attributes:
        tokens: The new tokens.
        text: The text that they complete; "" without a tokenizer.
        finish_reason: Why the request ends with them, or `None`.
        logprobs: Their probabilities, if the request reports them; a token that ends the text is not among them.
    """

    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@define(eq=False)
class Request:
    """A prompt and its continuation.

    Attributes:
        prompt, options: As submitted.
        tokens: The generated tokens, including the one that ended the text.
        text: The generated text up to a stop string, without the token that ended it; "" without a tokenizer.
        logprobs: The probabilities of the tokens, as in `Update`.
        finish_reason: Why it has ended; `None` before.
        constraint: The text by its grammar, or `None`.
        error: The error of a step or of the grammar, if `finish_reason` is `error`.
        reused_tokens: First tokens of the prompt that were not processed, because an earlier text begins with them.
    """

    prompt: tuple[int, ...] = field(repr=False)
    options: RequestOptions = field(repr=False)
    defaults: GenerationOptions = field(repr=False)
    seed: int = field(repr=False)
    max_new_tokens: int
    on_update: Callable[[Update], None] | None = field(repr=False)
    stream: TextStream | None = field(repr=False)
    constraint: ConstrainedText | None = field(repr=False)
    tokens: list[int] = field(factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(factory=list, repr=False)
    finish_reason: FinishReason | None = None
    error: BaseException | None = field(default=None, repr=False)
    is_cancelled: bool = field(default=False, repr=False)
    reused_tokens: int = 0

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end the text."""
        return self.defaults.eos_token_ids | frozenset(self.options.stop_token_ids)

    def fail(self, error: BaseException) -> None:
        """End the request with an error."""
        self.error = error
        self.finish("error")

    def finish(
        self,
        reason: FinishReason,
        tokens: tuple[int, ...] = (),
        text: str = "",
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> None:
        """End the request, and report it."""
        self.finish_reason = reason
        self._report(Update(tokens, text, reason, logprobs))

    def advance(self, tokens: tuple[int, ...], text: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        """Report new tokens."""
        self._report(Update(tokens, text, None, logprobs))

    def _report(self, update: Update) -> None:
        if self.on_update is not None:
            self.on_update(update)


@frozen(kw_only=True)
class EngineStatus:
    """Counts of an engine.

    Attributes:
        waiting: Requests without a slot.
        active: Requests with a slot.
        slots: The number of slots.
        generated_tokens: All generated tokens.
        tokens_per_second: Generated tokens per second of the last 10 seconds.
        pages, used_pages: Pages of 16 tokens for common prefixes, and those of them that have keys and values.
        prefix_hits: Prompts whose first tokens were not processed again.
        reused_tokens: The number of these tokens.
    """

    waiting: int
    active: int
    slots: int
    generated_tokens: int
    tokens_per_second: float
    pages: int
    used_pages: int
    prefix_hits: int
    reused_tokens: int
