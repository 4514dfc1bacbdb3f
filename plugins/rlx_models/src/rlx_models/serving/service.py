"""`Service`: the engine in a thread, for coroutines: they submit texts and receive tokens by queues."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attrs import evolve, field, frozen

from rlx_core.errors import BudgetError, ConfigError, RlxError, ShapeError
from rlx_models.generation.grammar import Grammar, GrammarCompiler
from rlx_models.serving.engine import ServingEngine
from rlx_models.serving.options import RequestOptions
from rlx_models.serving.protocol import HttpError, Message, Prompt, logprobs_of, usage_of
from rlx_models.serving.requests import FinishReason, Request, TokenLogprob, Update
from rlx_models.tokenizers import Tokenizer

POLL_SECONDS = 0.05
"""The interval at which the end of requests is awaited."""
BODY_NAMES = {"max_new_tokens": "max_tokens"}
"""Options of requests whose fields have other names."""


@runtime_checkable
class ChatTokenizer(Protocol):
    """A tokenizer with the template of chats."""

    def apply_chat_template(
        self, messages: Sequence[Message], /, *, add_generation_prompt: bool = False
    ) -> str | Sequence[int]: ...


@frozen(eq=False)
class Generation:
    """The requests of one HTTP request: iterate over `updates`, then read `requests`.

    Attributes:
        requests: `n` requests for each prompt, one for each choice.
        n: Their number for each prompt.
    """

    requests: list[Request]
    n: int
    _updates: asyncio.Queue[tuple[int, Update]] = field(repr=False)
    _engine: ServingEngine = field(repr=False)

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """Yield the updates of all requests with the index of the request, until all have ended."""
        running = len(self.requests)
        while running:
            index, update = await self._updates.get()
            running -= update.finish_reason is not None
            yield index, update

    def cancel(self) -> None:
        """End the requests that have not ended."""
        for request in self.requests:
            if request.finish_reason is None:
                self._engine.cancel(request)

    def logprobs(self, index: int, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        """Return the field `logprobs` of tokens of a request, or `None` if it does not report them."""
        tokenizer = self._engine.tokenizer
        if self.requests[index].options.top_logprobs is None or tokenizer is None:
            return None
        return logprobs_of(tokens, lambda token: tokenizer.decode([token]))

    def usage(self) -> dict[str, Any]:
        """Return the field `usage`: tokens of each prompt count once."""
        firsts = self.requests[:: self.n]
        return usage_of(
            sum(len(request.prompt) for request in firsts),
            sum(len(request.tokens) for request in self.requests),
            sum(request.reused_tokens for request in firsts),
        )


class Service:
    """The engine in a thread.

    Args:
        engine: An engine with a tokenizer.
        model_name: The name of the model in the protocol.
        chat_tokenizer: The tokenizer with the template of chats, or `None`.
    """

    def __init__(self, engine: ServingEngine, model_name: str, chat_tokenizer: ChatTokenizer | None = None) -> None:
        if engine.tokenizer is None:
            raise ConfigError("serve: the engine needs a tokenizer", hint="ServingEngine(model, tokenizer=...)")
        self.engine, self.model_name = engine, model_name
        self._tokenizer: Tokenizer = engine.tokenizer
        self._chat_tokenizer = chat_tokenizer
        self._thread = threading.Thread(target=engine.run, name="rlx-engine", daemon=True)
        self._started = time.monotonic()
        self._created = int(time.time())
        self._is_draining = False
        self._grammars: GrammarCompiler | None = None
        self._grammar_lock = threading.Lock()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def health(self) -> dict[str, Any]:
        """Return the state for monitoring."""
        status = self.engine.status()
        state = "stopped" if self.engine.is_stopped else "draining" if self._is_draining else "ok"
        return {
            "status": state,
            "model": self.model_name,
            "queue": status.waiting,
            "active_slots": status.active,
            "slots": status.slots,
            "pages": status.pages,
            "used_pages": status.used_pages,
            "prefix_hits": status.prefix_hits,
            "reused_tokens": status.reused_tokens,
            "tokens": status.generated_tokens,
            "tokens_per_second": round(status.tokens_per_second, 2),
            "uptime": round(time.monotonic() - self._started, 2),
        }

    def models(self) -> dict[str, Any]:
        """Return the list of the one model."""
        row = {
            "id": self.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "rlx",
            "max_model_len": self.engine.max_length,
        }
        return {"object": "list", "data": [row]}

    def expect_model(self, name: str | None) -> None:
        """Raise an `HttpError` for the name of another model."""
        if name is not None and name != self.model_name:
            message = f"the model {name[:80]!r} does not exist; it is {self.model_name!r}"
            raise HttpError(404, message, "model", "model_not_found")

    def expect_running(self) -> None:
        """Raise an `HttpError` if the server ends, or the engine has stopped."""
        if self._is_draining or self.engine.is_stopped:
            raise unavailable()

    async def submit_prompts(self, prompts: Sequence[Prompt], options: RequestOptions, n: int = 1) -> Generation:
        """Submit texts or tokens, each `n` times.

        Raises:
            HttpError: They are too long, options are outside of their ranges, or too many requests are waiting.
        """
        ids = [
            prompt if isinstance(prompt, list) else await asyncio.to_thread(self._encode, prompt) for prompt in prompts
        ]
        return self._submit(ids, options, "prompt", n)

    async def submit_chat(self, messages: Sequence[Message], options: RequestOptions, n: int = 1) -> Generation:
        """Submit the messages of a chat `n` times.

        Raises:
            HttpError: As for `submit_prompts`; or the model has no template of chats.
        """
        ids = await asyncio.to_thread(self._encode_chat, messages)
        return self._submit([ids], options, "messages", n)

    async def constrained(self, options: RequestOptions, schema: Mapping[str, Any] | None) -> RequestOptions:
        """Return options whose texts are JSON documents of a schema; for `None` the options themselves.

        Raises:
            HttpError: The schema or the tokenizer is not supported, or the package llguidance is not installed.
        """
        if schema is None:
            return options
        try:
            grammar = await asyncio.to_thread(self._compile, schema)
        except RlxError as error:
            raise HttpError(400, error.message, "response_format", "invalid_value") from None
        return evolve(options, grammar=grammar)

    def _compile(self, schema: Mapping[str, Any]) -> Grammar:
        with self._grammar_lock:
            if self._grammars is None:
                self._grammars = GrammarCompiler(self._tokenizer)
        return self._grammars.json_grammar(schema)

    def _encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, ValueError) as error:  # a lone surrogate is no text
            raise HttpError(400, f"the prompt cannot be encoded: {error!s:.200}", "prompt", "invalid_value") from None

    def _encode_chat(self, messages: Sequence[Message]) -> list[int]:
        if self._chat_tokenizer is None:
            raise HttpError(400, "this model has no chat template", "messages", "unsupported_parameter")
        try:
            prompt = self._chat_tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        except RlxError as error:
            raise HttpError(400, error.message, "messages", "invalid_value") from None
        # A template states the tokens that begin a text itself.
        return self._encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else list(prompt)

    def _submit(self, prompts: Sequence[list[int]], options: RequestOptions, name: str, n: int) -> Generation:
        self.expect_running()
        queue: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        generation = Generation([], n, queue, self.engine)
        try:
            for index in range(len(prompts) * n):
                report = _reporter(asyncio.get_running_loop(), queue, index)
                choice = _choice_options(options, index % n)
                generation.requests.append(self.engine.submit(prompts[index // n], choice, report))
        except RlxError as error:
            generation.cancel()
            raise _http_error(error, name) from None
        return generation

    async def drain(self, is_exiting: Callable[[], bool], seconds: float) -> None:
        """Wait until the server is to end; then refuse requests, and stop the engine when it is idle or the time is over."""
        while not is_exiting():
            await asyncio.sleep(POLL_SECONDS)
        self._is_draining = True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.engine.status()
            if not status.waiting and not status.active:
                break
            await asyncio.sleep(POLL_SECONDS)
        self.engine.stop()

    async def close(self) -> None:
        """Stop the engine, and wait for its thread."""
        self._is_draining = True
        self.engine.stop()
        await asyncio.to_thread(self._thread.join)


def _reporter(
    loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[tuple[int, Update]], index: int
) -> Callable[[Update], None]:
    def report(update: Update) -> None:
        # The loop is closed if the server was ended by force: then there is no reader.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, (index, update))

    return report


def _choice_options(options: RequestOptions, number: int) -> RequestOptions:
    """Return the options of a choice: seeds of the choices of one prompt differ."""
    if options.seed is None or number == 0:
        return options
    seed = options.seed + number
    return evolve(options, seed=seed if seed < 1 << 64 else seed - (1 << 64))


def unavailable() -> HttpError:
    """Return the error of a server that ends."""
    return HttpError(503, "the server is shutting down", code="unavailable", headers={"Retry-After": "5"})


def failure(reason: FinishReason | None, error: BaseException | None) -> HttpError | None:
    """Return the error of a request that ended without its text, or `None`."""
    if reason == "cancelled":
        return unavailable()
    if reason == "error":
        return HttpError(500, f"a step of the model failed: {type(error).__name__}", code="internal_error")
    return None


def _http_error(error: RlxError, name: str) -> HttpError:
    """Return the response to an error of `ServingEngine.submit`, for prompts in a field."""
    message = error.message
    if isinstance(error, BudgetError):
        return HttpError(429, message, code="queue_full", headers={"Retry-After": "1"})
    if isinstance(error, ShapeError):
        return HttpError(400, message, name, "context_length_exceeded")
    options = [str(fact.value) for fact in error.facts if fact.label == "option"]
    param = BODY_NAMES.get(options[0], options[0]) if options else name
    return HttpError(400, message, param, "invalid_value")
