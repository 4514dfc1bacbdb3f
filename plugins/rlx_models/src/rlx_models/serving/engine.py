"""`ServingEngine`: continuous batching. Requests join and leave a fixed number of slots between the steps of one program.

Source:
    Yu et al. 2022, "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI, section 4.1
    (iteration-level scheduling); Agrawal et al. 2023, "SARATHI", arXiv:2308.16369, section 4.2 (chunks of prompts).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from attrs import define

import rlx_core as rlx
from rlx_core.errors import BudgetError, ConfigError, Fact, RlxError, ShapeError
from rlx_models.architectures import Decoding
from rlx_models.generation.grammar import ConstrainedText
from rlx_models.generation.options import GenerationOptions, generation_options
from rlx_models.generation.programs import (
    PROMPT_MULTIPLE,
    SLOTS,
    check_cache_dtype,
    compiled_program,
    decoding_of,
    padded_length,
    zero_cache,
)
from rlx_models.model import PretrainedModel
from rlx_models.serving.options import MAX_TOP_LOGPROBS, RequestOptions, check_prompt
from rlx_models.serving.prefixes import PAGE_TOKENS, PrefixCache
from rlx_models.serving.requests import EngineStatus, FinishReason, Request, TokenLogprob, Update
from rlx_models.serving.sampling import SlotSampler, logprob_program
from rlx_models.serving.text import TextStream
from rlx_models.tokenizers import Tokenizer

DEFAULT_LENGTH: Final = 2048
"""The default of `max_length`, if the model's maximum is not less."""
RATE_SECONDS: Final = 10.0
"""The time over which tokens per second are counted."""


@define
class Prefill:
    """A prompt that is being processed, in a cache of its length.

    Attributes:
        slot: The slot that it will have.
        input_ids: The prompt i64[1, width] with padding on the left.
        left_padding: The length i64[1] of the padding.
        capacity: The capacity of the cache.
        position: The number of processed tokens.
    """

    request: Request
    slot: int
    input_ids: np.ndarray
    left_padding: np.ndarray
    capacity: int
    cache: Any
    position: int = 0


@define
class SlotState:
    """The state of all slots.

    Attributes:
        cache: Entries [slots, rows, features] of each layer.
        positions: The index i64[slots] of the next token in the cache.
        left_padding: The length i64[slots] of the padding at the start of the cache.
        last_tokens: The last token i64[slots], which is not in the cache yet.
    """

    cache: Any
    positions: np.ndarray
    left_padding: np.ndarray
    last_tokens: np.ndarray

    @classmethod
    def empty(cls, decoding: Decoding, slots: int, capacity: int, target: str, cache_dtype: str) -> SlotState:
        cache = zero_cache(decoding, slots, capacity, target, cache_dtype, is_exact=True)
        return cls(cache, *np.zeros((3, slots), np.int64))


class ServingEngine:
    """Continuous batching of a decoder: requests share the steps of one program, and join and leave between steps.

    The engine has a fixed number of slots with a cache of fixed capacity each. A step generates a token for every active slot.
    Before it, prompts are processed, at most `prefill_chunk` tokens of them, so that a long prompt delays the other requests by
    one chunk per token. Free slots are computed, too: a request's logits do not depend on the number of other requests.

    `submit`, `cancel` and `status` may be called from any thread; `step` and `run` from one at a time.

    Args:
        model: A decoder from `from_pretrained` or a GGUF file.
        tokenizer: For texts of requests and stop strings.
        max_batch: The number of slots.
        max_length: The maximum length of a prompt and its continuation; by default the model's, but at most 2048.
        max_waiting: The maximum number of requests without a slot.
        prefill_chunk: The maximum number of tokens of prompts that are processed between two steps, a multiple of 16.
        prefix_tokens: The number of tokens whose keys and values are stored for later prompts that begin with them, a multiple
            of 16; by default those of two slots. 0 stores none, as do models with a recurrent state.
        cache_dtype: The dtype of keys and values, as for `generate`.
        target: The target that runs the model.

    Raises:
        ConfigError: The model is not a decoder, or a number is outside of its range.

    >>> engine = ServingEngine(model, max_batch=4)                                   # doctest: +SKIP
    >>> request = engine.submit([1, 450], RequestOptions(max_new_tokens=20))  # doctest: +SKIP
    >>> while engine.step(): pass                                             # doctest: +SKIP
    >>> request.tokens, request.finish_reason                                 # doctest: +SKIP
    """

    def __init__(
        self,
        model: PretrainedModel,
        *,
        tokenizer: Tokenizer | None = None,
        max_batch: int = 8,
        max_length: int | None = None,
        max_waiting: int = 64,
        prefill_chunk: int = 256,
        prefix_tokens: int | None = None,
        cache_dtype: str = "f32",
        target: str | None = None,
    ) -> None:
        decoding = decoding_of(model)
        if decoding.encode is not None:
            raise ConfigError(
                f"serve: {model.name} is an encoder-decoder", hint="the engine takes decoders; generate(...)"
            )
        _expect_size("max_batch", max_batch)
        _expect_size("max_waiting", max_waiting)
        _expect_size("prefill_chunk", prefill_chunk, PROMPT_MULTIPLE)
        if prefix_tokens:
            _expect_size("prefix_tokens", prefix_tokens, PAGE_TOKENS)
        check_cache_dtype("serve", cache_dtype)
        self.model, self.tokenizer, self._cache_dtype = model, tokenizer, cache_dtype
        self.max_length = _max_length(decoding, max_length, model.name)
        self.vocab_size = int(model.config["vocab_size"])
        self.max_waiting = max_waiting
        self._chunk = prefill_chunk
        self._step = compiled_program(model, SLOTS[cache_dtype], target)
        self._insert = rlx.jit(_insert, donate=("cache",), target=target)
        self._target = target or self._step.report.target
        self._decoding = decoding
        # A prompt of the maximum length has padding, too.
        self._capacity = padded_length(self.max_length + PROMPT_MULTIPLE)
        self._has_state = any(rows is not None for entry in decoding.cache for rows, _ in entry)
        num_pages = (2 * self._capacity if prefix_tokens is None else prefix_tokens) // PAGE_TOKENS
        self._prefixes = None
        if num_pages and not self._has_state:
            self._prefixes = PrefixCache(model, decoding, num_pages, cache_dtype, target)
        self._sampler = SlotSampler(max_batch, self.vocab_size, target)
        self._slots: list[Request | None] = [None] * max_batch
        self._waiting: deque[Request] = deque()
        self._prefill: Prefill | None = None
        self._prompt_caches: dict[int, Any] = {}
        self._arrival = threading.Condition()
        self._is_stopped = False
        self._generated = 0
        self._rates: deque[tuple[float, int]] = deque()
        self._suppressed = self._defaults(RequestOptions()).suppressed
        self._state = self._empty_state()

    def submit(
        self,
        prompt: Sequence[int],
        options: RequestOptions | None = None,
        on_update: Callable[[Update], None] | None = None,
    ) -> Request:
        """Add a request; it waits for a slot.

        Args:
            prompt: Its tokens.
            options: Its options; greedy decoding by default.
            on_update: Called in the engine's thread with the tokens of each step. It must not block.

        Raises:
            ConfigError: An option is outside of its range, or a token outside of the vocabulary; or there are stop strings, and
                the engine has no tokenizer.
            ShapeError: The prompt and its continuation are longer than `max_length`.
            BudgetError: `max_waiting` requests are waiting.
        """
        request = self._request(prompt, options or RequestOptions(), on_update)
        with self._arrival:
            if self._is_stopped:
                raise ConfigError("serve: the engine is stopped")
            if len(self._waiting) >= self.max_waiting:
                raise BudgetError(
                    f"serve: {self.max_waiting} requests are waiting",
                    hint="retry later, or ServingEngine(max_waiting=...)",
                )
            self._waiting.append(request)
            self._arrival.notify()
        return request

    def _request(
        self, prompt: Sequence[int], options: RequestOptions, on_update: Callable[[Update], None] | None
    ) -> Request:
        check_prompt(prompt, self.vocab_size)
        options.check(self.vocab_size)
        if options.stop and self.tokenizer is None:
            raise ConfigError("serve: stop strings need a tokenizer", hint="ServingEngine(model, tokenizer=...)")
        available = self.max_length - len(prompt)
        count = available if options.max_new_tokens is None else options.max_new_tokens
        if count > available or available < 1:
            raise ShapeError(
                f"serve: a prompt of {len(prompt)} tokens and {max(count, 1)} new ones are more than {self.max_length}",
                Fact("max_length", self.max_length),
            )
        defaults, grammar = self._defaults(options), options.grammar
        ends = defaults.eos_token_ids | frozenset(options.stop_token_ids)
        return Request(
            prompt=tuple(map(int, prompt)),
            options=options,
            defaults=defaults,
            seed=secrets.randbits(64) if options.seed is None else options.seed,
            max_new_tokens=count,
            on_update=on_update,
            stream=None if self.tokenizer is None else TextStream(self.tokenizer, options.stop),
            constraint=None if grammar is None else ConstrainedText(grammar, self.vocab_size, ends),
        )

    def _defaults(self, options: RequestOptions) -> GenerationOptions:
        """Return the options of the checkpoint, where a request has none."""
        return generation_options(
            self.model,
            eos_token_id=options.eos_token_id,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            repetition_penalty=options.repetition_penalty,
        )

    def cancel(self, request: Request) -> None:
        """End a request before the next step; its slot is free then. Nothing happens if it has ended."""
        with self._arrival:
            request.is_cancelled = True
            self._arrival.notify()

    def status(self) -> EngineStatus:
        """Return the counts."""
        with self._arrival:
            since = time.monotonic() - RATE_SECONDS
            recent = [(when, count) for when, count in self._rates if when > since]
            seconds = time.monotonic() - recent[0][0] if recent else 0.0
            prefixes = self._prefixes
            return EngineStatus(
                waiting=len(self._waiting),
                active=sum(request is not None for request in self._slots),
                slots=len(self._slots),
                generated_tokens=self._generated,
                tokens_per_second=sum(count for _, count in recent) / max(seconds, 1.0),
                pages=0 if prefixes is None else prefixes.num_pages,
                used_pages=0 if prefixes is None else len(prefixes.index),
                prefix_hits=0 if prefixes is None else prefixes.hits,
                reused_tokens=0 if prefixes is None else prefixes.reused_tokens,
            )

    # ----------------------------------------------------------------------------------------- steps

    def step(self) -> bool:
        """Process prompts up to `prefill_chunk` tokens, then generate a token for every active slot.

        Returns:
            Whether a request is waiting or has a slot.
        """
        self._remove_cancelled()
        budget = self._chunk
        while budget > 0 and self._begin_prefill():
            budget -= self._process_chunk()
        if any(self._is_decoding(slot) for slot in range(len(self._slots))):
            self._decode()
        with self._arrival:
            return bool(self._waiting) or any(self._slots)

    def run(self) -> None:
        """Step until `stop`; wait while there is no request. A step that fails ends the requests that have a slot."""
        try:
            while self._wait():
                try:
                    self.step()
                except Exception as error:  # noqa: BLE001 it is reported to each request
                    self._fail(error)
        finally:
            self.stop()
            self._finish_all("cancelled")

    def _wait(self) -> bool:
        """Wait for a request, and return whether the engine is not stopped."""
        with self._arrival:
            self._arrival.wait_for(lambda: self._is_stopped or self._waiting or any(self._slots))
            return not self._is_stopped

    @property
    def is_stopped(self) -> bool:
        """Whether requests are refused, because `stop` was called or `run` has failed."""
        return self._is_stopped

    def stop(self) -> None:
        """End `run` after the current step, and cancel all requests."""
        with self._arrival:
            self._is_stopped = True
            self._arrival.notify()

    def warm_up(self) -> None:
        """Compile the programs of a prompt of 16 tokens, greedy decoding and sampling, before the first request."""
        prompt, count = [0] * min(PROMPT_MULTIPLE, self.max_length - 2), 2
        for options in (
            RequestOptions(max_new_tokens=count, eos_token_id=()),
            RequestOptions(max_new_tokens=count, eos_token_id=(), temperature=1.0),
            RequestOptions(max_new_tokens=count, eos_token_id=(), temperature=1.0, top_p=0.5),
        ):
            self.submit(prompt, options)
            while self.step():
                pass
        with self._arrival:
            self._generated = 0
            self._rates.clear()
            if self._prefixes is not None:
                self._prefixes.clear()

    def _is_decoding(self, slot: int) -> bool:
        is_prefill = self._prefill is not None and self._prefill.slot == slot
        return self._slots[slot] is not None and not is_prefill

    def _remove_cancelled(self) -> None:
        with self._arrival:
            cancelled = [request for request in self._waiting if request.is_cancelled]
            if cancelled:
                self._waiting = deque(request for request in self._waiting if not request.is_cancelled)
        for request in cancelled:
            request.finish("cancelled")
        for slot, active in enumerate(self._slots):
            if active is not None and active.is_cancelled:
                self._release(slot)
                active.finish("cancelled")

    def _begin_prefill(self) -> bool:
        """Return whether a prompt is being processed; begin with the next one if none is, and a slot is free."""
        if self._prefill is not None:
            return True
        free = next((slot for slot, request in enumerate(self._slots) if request is None), None)
        if free is None:
            return False
        with self._arrival:
            if not self._waiting:
                return False
            request = self._slots[free] = self._waiting.popleft()
        length = len(request.prompt)
        width = padded_length(length)
        input_ids = np.zeros((1, width), np.int64)
        input_ids[0, width - length :] = request.prompt
        capacity = min(1 << (max(width, PROMPT_MULTIPLE) - 1).bit_length(), self._capacity)
        cache, position = self._prompt_cache(capacity), 0
        if self._prefixes is not None:
            # The last tokens are processed, because the first new one needs their logits.
            max_pages = width // PAGE_TOKENS - 1
            position, cache = self._prefixes.load(request.prompt, max_pages, width - length, cache)
            request.reused_tokens = max(position - (width - length), 0)
        self._prefill = Prefill(request, free, input_ids, np.array([width - length]), capacity, cache, position)
        return True

    def _prompt_cache(self, capacity: int) -> Any:
        """Return a cache for a prompt: keys and values of a former one are not read, but a recurrent state must be zeros."""
        used = self._prompt_caches.pop(capacity, None)
        if used is not None and not self._has_state:
            return used
        return zero_cache(self._decoding, 1, capacity, self._target, self._cache_dtype, is_exact=True)

    def _process_chunk(self) -> int:
        """Process the next tokens of the prompt, and return their number; generate the first token after the last of them."""
        prefill = self._prefill
        assert prefill is not None, "`_begin_prefill` was called"
        width = prefill.input_ids.shape[1]
        # The first chunk is the short one: with padding in it, the others are full.
        count = min((width - prefill.position) % self._chunk or self._chunk, width)
        stop = prefill.position + count
        chunk = prefill.input_ids[:, prefill.position : stop]
        position = np.array([prefill.position])
        logits, prefill.cache = self._step(chunk, prefill.left_padding, prefill.cache, position)
        prefill.position = stop
        if stop == width:
            self._prefill = None
            self._begin_decoding(prefill, logits)
        return count

    def _begin_decoding(self, prefill: Prefill, logits: Any) -> None:
        request, slot = prefill.request, prefill.slot
        options = request.defaults
        state = self._state
        state.cache = self._insert(state.cache, prefill.cache, np.array(slot))
        if self._prefixes is not None:
            self._prefixes.store(request.prompt, prefill.cache, int(prefill.left_padding[0]))
        self._prompt_caches[prefill.capacity] = prefill.cache
        state.left_padding[slot], state.positions[slot] = prefill.left_padding[0], prefill.position
        self._sampler.assign(slot, request.prompt, request.options, request.seed, options.repetition_penalty)
        try:
            suppressed = _excluded(request, options.begin_suppressed)
        except RlxError as error:
            self._end_with_error(slot, request, error)
            return
        token = self._sampler.next_tokens(logits, slice(slot, slot + 1), suppressed)
        (logprob,) = self._logprobs(logits, token, [request])
        self._count_tokens(1)
        self._accept(slot, request, int(token[0]), logprob)

    def _decode(self) -> None:
        """Generate a token for every active slot."""
        state = self._state
        logits, state.cache = self._step(state.last_tokens[:, None], state.left_padding, state.cache, state.positions)
        tokens = self._sampler.next_tokens(logits, slice(None), self._suppressed_tokens())
        active = [slot for slot in range(len(self._slots)) if self._is_decoding(slot)]
        self._count_tokens(len(active))
        logprobs = self._logprobs(logits, tokens, self._slots)
        for slot in active:
            request = self._slots[slot]
            assert request is not None, "active slots have a request"
            state.positions[slot] += 1
            self._accept(slot, request, int(tokens[slot]), logprobs[slot])

    def _logprobs(
        self, logits: Any, tokens: np.ndarray, requests: Sequence[Request | None]
    ) -> list[TokenLogprob | None]:
        """Return the probabilities of tokens i64[n], for the requests that report them."""
        counts = [None if request is None else request.options.top_logprobs for request in requests]
        if all(count is None for count in counts):
            return [None] * len(counts)
        program, limit = logprob_program(self._sampler.target), min(MAX_TOP_LOGPROBS, self.vocab_size)
        chosen, values, indices = (np.asarray(each).tolist() for each in program(logits, tokens, limit))
        return [
            None
            if count is None
            else TokenLogprob(token, chosen[row], tuple(zip(indices[row][:count], values[row][:count], strict=True)))
            for row, (token, count) in enumerate(zip(tokens.tolist(), counts, strict=True))
        ]

    def _suppressed_tokens(self) -> np.ndarray | None:
        """Return the mask bool[vocab_size], or bool[slots, vocab_size] if a slot has a grammar.

        A request is ended with an error if no token may follow.
        """
        constrained = [
            (slot, request)
            for slot, request in enumerate(self._slots)
            if request is not None and request.constraint is not None and self._is_decoding(slot)
        ]
        if not constrained:
            return self._suppressed
        result = np.zeros((len(self._slots), self.vocab_size), np.bool_)
        if self._suppressed is not None:
            result[:] = self._suppressed
        for slot, request in constrained:
            try:
                result[slot] = _excluded(request, self._suppressed)
            except RlxError as error:
                self._end_with_error(slot, request, error)
        return result

    def _end_with_error(self, slot: int, request: Request, error: Exception) -> None:
        self._release(slot)
        request.fail(error)

    def _accept(self, slot: int, request: Request, token: int, logprob: TokenLogprob | None) -> None:
        """Add a token to a request, and release its slot if the token ends it."""
        self._state.last_tokens[slot] = token
        request.tokens.append(token)
        is_end = token in request.end_tokens
        logprobs = () if is_end or logprob is None else (logprob,)
        request.logprobs += logprobs
        stream, text = request.stream, ""
        if stream is not None and not is_end:
            text = stream.add(token)
        is_stopped = is_end or (stream is not None and stream.is_stopped)
        if request.constraint is not None:
            try:
                request.constraint.advance(token)
            except RlxError as error:
                self._end_with_error(slot, request, error)
                return
            is_stopped = is_stopped or request.constraint.is_finished
        is_finished = is_stopped or len(request.tokens) >= request.max_new_tokens
        if stream is not None and is_finished:
            text += stream.finish()
            is_stopped = is_stopped or stream.is_stopped
        request.text += text
        if not is_finished:
            request.advance((token,), text, logprobs)
            return
        self._store_text(slot, request)
        self._release(slot)
        request.finish("stop" if is_stopped else "length", (token,), text, logprobs)

    def _store_text(self, slot: int, request: Request) -> None:
        """Store a text that has ended: the next prompt of a chat begins with it."""
        if self._prefixes is not None:
            # The last token is not in the cache.
            tokens = (*request.prompt, *request.tokens[:-1])
            first = slot * self._capacity + int(self._state.left_padding[slot])
            self._prefixes.store(tokens, self._state.cache, first)

    def _release(self, slot: int) -> None:
        if self._prefill is not None and self._prefill.slot == slot:
            self._prefill = None
        self._slots[slot] = None
        self._sampler.release(slot)
        # Attention of a free slot reads one key.
        self._state.positions[slot] = self._state.left_padding[slot] = self._state.last_tokens[slot] = 0

    def _count_tokens(self, count: int) -> None:
        now = time.monotonic()
        with self._arrival:
            self._generated += count
            self._rates.append((now, count))
            while self._rates[0][0] < now - RATE_SECONDS:
                self._rates.popleft()

    # ---------------------------------------------------------------------------------------- faults

    def _fail(self, error: Exception) -> None:
        """End the requests that have a slot with an error, and make a new cache: the step may have donated the former."""
        failed = [request for request in self._slots if request is not None]
        for slot in range(len(self._slots)):
            self._release(slot)
        self._state = self._empty_state()
        self._prompt_caches.clear()
        if self._prefixes is not None:
            self._prefixes.clear()
        for request in failed:
            request.fail(error)

    def _finish_all(self, reason: FinishReason) -> None:
        with self._arrival:
            requests = [*(request for request in self._slots if request is not None), *self._waiting]
            self._waiting.clear()
        for slot in range(len(self._slots)):
            self._release(slot)
        for request in requests:
            request.finish(reason)

    def _empty_state(self) -> SlotState:
        return SlotState.empty(self._decoding, len(self._slots), self._capacity, self._target, self._cache_dtype)


def _excluded(request: Request, suppressed: np.ndarray | None) -> np.ndarray | None:
    """Return the mask bool[vocab_size] of the tokens that must not follow, by the grammar too."""
    return suppressed if request.constraint is None else request.constraint.excluded(suppressed)


def _insert(cache: Any, prompt_cache: Any, slot: Any) -> Any:
    """Return the cache of all slots with a prompt's cache in one of them."""

    def insert(entry: Any, update: Any) -> Any:
        return rlx.dynamic_update_slice(entry, update, [slot, 0, 0])

    pairs = zip(cache, prompt_cache, strict=True)
    return [tuple(insert(*each) for each in zip(entry, update, strict=True)) for entry, update in pairs]


def _max_length(decoding: Decoding, max_length: int | None, name: str) -> int:
    model_length = decoding.max_positions
    if max_length is None:
        return DEFAULT_LENGTH if model_length is None else min(model_length, DEFAULT_LENGTH)
    _expect_size("max_length", max_length, least=2)
    if model_length is not None and max_length > model_length:
        raise ConfigError(f"serve: max_length is {max_length}, and {name} has {model_length} positions")
    return max_length


def _expect_size(name: str, value: int, multiple: int = 1, least: int = 1) -> None:
    if value < least or value % multiple:
        condition = f"a multiple of {multiple}" if multiple > 1 else f"{least} or more"
        raise ConfigError(f"serve: {name} must be {condition}, not {value}")
