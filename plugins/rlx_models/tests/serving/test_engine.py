"""Continuous batching: each request has the tokens of `generate` alone, whatever the other requests are.

Equality is exact: weights are of f32 with a few features, so that products sum in the same order for one row and for several.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written

import rlx_core as rlx
from rlx_core.errors import BudgetError, ConfigError, ShapeError
from rlx_models import PretrainedModel, from_pretrained, generate
from rlx_models.serving import Request, RequestOptions, ServingEngine, Update

VOCAB_SIZE = 11


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written(tmp_path_factory.mktemp("llama") / "m", CONFIGS["llama"]))


def finished(engine: ServingEngine, limit: int = 10_000) -> None:
    """Step until no request is left."""
    for _ in range(limit):
        if not engine.step():
            return
    raise AssertionError(f"requests are left after {limit} steps")


def alone(model: PretrainedModel, request: Request) -> list[int]:
    """Return the tokens of `generate` for a request's prompt and options."""
    options = request.options
    sampling: dict[str, Any] = {}
    if options.temperature:
        sampling = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        sampling["key"] = rlx.random.key(options.seed)
    (tokens,) = generate(
        model,
        [list(request.prompt)],
        request.max_new_tokens,
        eos_token_id=options.eos_token_id,
        repetition_penalty=options.repetition_penalty,
        **sampling,
    )
    return tokens


def with_arrivals(
    engine: ServingEngine, rng: random.Random, count: int, options: Callable[[int], RequestOptions]
) -> list[Request]:
    """Submit requests between steps at random, and step until all have ended."""
    requests: list[Request] = []
    while len(requests) < count:
        for _ in range(rng.choice((0, 0, 1, 3))):
            prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.choice((1, 2, 5, 16, 17, 33, 40)))]
            requests.append(engine.submit(prompt, options(len(requests))))
        engine.step()
    finished(engine)
    return requests


@pytest.mark.medium
@pytest.mark.parametrize("name", ["bloom", "deepseek_v3", "gpt2", "llama", "mamba", "mixtral"])
def test_greedy_tokens_are_those_of_generate(name: str, tmp_path: Path) -> None:
    """Prompts of 1 to 3 chunks, in 3 slots."""
    model, rng = from_pretrained(written(tmp_path / "m", CONFIGS[name])), random.Random(name)
    engine = ServingEngine(model, max_batch=3, max_length=60, prefill_chunk=16)
    requests = with_arrivals(
        engine, rng, 16, lambda _: RequestOptions(max_new_tokens=rng.randrange(1, 20), eos_token_id=rng.randrange(11))
    )
    assert [request.tokens for request in requests] == [alone(model, request) for request in requests]
    assert {request.finish_reason for request in requests} == {"stop", "length"}


@pytest.mark.medium
def test_sampled_tokens_depend_on_the_seed_and_not_on_other_requests(model: PretrainedModel) -> None:
    rng = random.Random(0)

    def options(number: int) -> RequestOptions:
        greedy = RequestOptions(max_new_tokens=rng.randrange(1, 20), eos_token_id=())
        sampled = RequestOptions(
            max_new_tokens=12, eos_token_id=(), temperature=rng.choice((0.5, 3.0)), seed=number,
            top_k=rng.choice((0, 4, 100)), top_p=rng.choice((1.0, 0.7, 0.0)), min_p=rng.choice((0.0, 0.05)),
            repetition_penalty=rng.choice((None, 1.5)),
        )  # fmt: skip
        return sampled if number % 3 else greedy

    requests = with_arrivals(ServingEngine(model, max_batch=4, prefill_chunk=16), rng, 24, options)
    assert [request.tokens for request in requests] == [alone(model, request) for request in requests]

    engine = ServingEngine(model, max_batch=1)
    again = engine.submit(requests[1].prompt, requests[1].options)
    other = engine.submit(
        requests[1].prompt, RequestOptions(max_new_tokens=12, eos_token_id=(), temperature=9.0, seed=2**64 - 1)
    )
    finished(engine)
    assert again.tokens == requests[1].tokens != other.tokens


@pytest.mark.medium
def test_nothing_is_lost_under_200_requests(model: PretrainedModel) -> None:
    """A third are cancelled while they wait, are processed or run; each request ends once, and every slot is free."""
    rng, ended = random.Random(1), list[tuple[int, str | None]]()
    engine = ServingEngine(model, max_batch=4, max_waiting=200, prefill_chunk=16)
    requests: list[Request] = []
    tokens: dict[int, list[int]] = {n: [] for n in range(200)}

    def reporter(number: int) -> Callable[[Update], None]:
        def report(update: Update) -> None:
            tokens[number] += update.tokens
            if update.finish_reason is not None:
                ended.append((number, update.finish_reason))

        return report

    while len(requests) < 200:
        for _ in range(rng.randrange(5)):
            if len(requests) < 200:
                prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 40))]
                options = RequestOptions(max_new_tokens=rng.randrange(1, 24), eos_token_id=())
                requests.append(engine.submit(prompt, options, reporter(len(requests))))
        if requests and rng.random() < 0.5:
            engine.cancel(rng.choice(requests))
        engine.step()
    finished(engine)
    assert sorted(number for number, _ in ended) == list(range(200))
    status = engine.status()
    assert (status.active, status.waiting) == (0, 0)
    cancelled = [request for request in requests if request.finish_reason == "cancelled"]
    assert 20 < len(cancelled) < 180
    assert status.generated_tokens == sum(len(request.tokens) for request in requests)
    for number, request in enumerate(requests):
        assert tokens[number] == request.tokens
        expected = alone(model, request) if number % 10 == 0 else request.tokens
        assert request.tokens == expected[: len(request.tokens)]
        assert len(request.tokens) == request.max_new_tokens or request in cancelled


def test_a_cancelled_request_frees_its_slot_before_the_next_step(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=1, prefill_chunk=16)
    running, waiting, long = (
        engine.submit(prompt, RequestOptions(max_new_tokens=9, eos_token_id=())) for prompt in ([1, 2], [3], [4] * 40)
    )
    engine.step()
    assert len(running.tokens) == 2, "the prompt's token, and that of the step"
    assert not waiting.tokens
    engine.cancel(running)
    engine.step()
    assert (running.finish_reason, len(running.tokens)) == ("cancelled", 2)
    assert len(waiting.tokens) == 2
    engine.cancel(waiting)
    engine.step()
    assert engine.status().active == 1, "one chunk of three is processed"
    assert not long.tokens
    engine.cancel(long)
    assert not engine.step()
    assert (engine.status().active, long.finish_reason) == (0, "cancelled")
    last = engine.submit([1, 2], RequestOptions(max_new_tokens=9, eos_token_id=()))
    finished(engine)
    assert last.tokens == alone(model, last)


def test_a_long_prompt_delays_others_by_one_chunk(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=2, max_length=64, prefill_chunk=16)
    running = engine.submit([1, 2], RequestOptions(max_new_tokens=20, eos_token_id=()))
    engine.step()
    long = engine.submit([3] * 50, RequestOptions(max_new_tokens=4, eos_token_id=()))
    counts = []
    for _ in range(5):
        engine.step()
        counts.append((len(running.tokens), len(long.tokens)))
    assert counts == [(3, 0), (4, 0), (5, 0), (6, 2), (7, 3)]


def test_the_cache_is_updated_in_place(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=2)
    engine.submit([1, 2], RequestOptions(max_new_tokens=9, eos_token_id=()))
    engine.step()
    addresses = [[np.asarray(array).ctypes.data for array in entry] for entry in engine._state.cache]
    engine.submit([3] * 20, RequestOptions(max_new_tokens=3, eos_token_id=()))
    finished(engine)
    assert [[np.asarray(array).ctypes.data for array in entry] for entry in engine._state.cache] == addresses


def test_former_contents_of_caches_are_not_read(model: PretrainedModel) -> None:
    """NaNs of a former request would reach a later one if attention multiplied the values of later keys by 0."""
    engine = ServingEngine(model, max_batch=2)
    prompts = ([1, 2], [3] * 20)
    for prompt in prompts:
        engine.submit(prompt, RequestOptions(max_new_tokens=4, eos_token_id=()))
    finished(engine)

    def of_nan(cache: Any) -> Any:
        return [
            tuple(rlx.device_put(np.full(array.shape, np.nan, np.float32), "cpu") for array in entry) for entry in cache
        ]

    assert set(engine._prompt_caches) == {16, 32}
    engine._prompt_caches = {capacity: of_nan(cache) for capacity, cache in engine._prompt_caches.items()}
    engine._state.cache = of_nan(engine._state.cache)
    requests = [engine.submit(prompt, RequestOptions(max_new_tokens=20, eos_token_id=())) for prompt in prompts]
    finished(engine)
    assert [request.tokens for request in requests] == [alone(model, request) for request in requests]


def test_tokens_and_options_end_a_text(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=4)
    full = engine.submit([1, 2], RequestOptions(max_new_tokens=8, eos_token_id=()))
    finished(engine)
    last = next(n for n, token in enumerate(full.tokens) if token not in full.tokens[:n] and n > 0)
    ends = full.tokens[last]
    stopped, ended, biased, single = (
        engine.submit([1, 2], options)
        for options in (
            RequestOptions(max_new_tokens=8, eos_token_id=(), stop_token_ids=[ends]),
            RequestOptions(max_new_tokens=8, eos_token_id=ends),
            RequestOptions(max_new_tokens=3, eos_token_id=(), logit_bias={7: 100.0, full.tokens[0]: -100.0}),
            RequestOptions(max_new_tokens=1, eos_token_id=()),
        )
    )
    finished(engine)
    assert stopped.tokens == ended.tokens == full.tokens[: last + 1]
    assert (stopped.finish_reason, ended.finish_reason, single.finish_reason) == ("stop", "stop", "length")
    assert biased.tokens == [7, 7, 7]
    assert single.tokens == full.tokens[:1]
    no_maximum = engine.submit([1] * 60, RequestOptions(eos_token_id=()))
    finished(engine)
    assert (len(no_maximum.tokens), no_maximum.finish_reason) == (4, "length"), "the model has 64 positions"


class Letters:
    """A tokenizer whose tokens are the letters a to k."""

    def encode(self, text: str, /) -> Any:
        raise NotImplementedError

    def decode(self, ids: Any, /) -> str:
        return "".join(chr(ord("a") + token) for token in ids)


def test_stop_strings_end_a_text_before_them(model: PretrainedModel) -> None:
    engine = ServingEngine(model, tokenizer=Letters(), max_batch=2)
    full = engine.submit([1, 2], RequestOptions(max_new_tokens=8, eos_token_id=()))
    finished(engine)
    assert full.text == Letters().decode(full.tokens)
    stop, updates = full.text[3:5], list[Update]()
    index = full.text.index(stop)
    request = engine.submit(
        [1, 2], RequestOptions(max_new_tokens=8, eos_token_id=(), stop=["zz", stop]), updates.append
    )
    finished(engine)
    assert request.text == "".join(update.text for update in updates) == full.text[:index]
    assert (request.tokens, request.finish_reason) == (full.tokens[: index + 2], "stop")
    ended = engine.submit([1, 2], RequestOptions(max_new_tokens=8, eos_token_id=full.tokens[0]))
    finished(engine)
    assert (ended.text, ended.tokens) == ("", full.tokens[:1])


def test_a_full_queue_is_an_error_and_later_requests_are_accepted(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=1, max_waiting=2)
    for _ in range(2):
        engine.submit([1], RequestOptions(max_new_tokens=2, eos_token_id=()))
    with pytest.raises(BudgetError, match="serve: 2 requests are waiting"):
        engine.submit([1])
    engine.step()
    engine.submit([1], RequestOptions(max_new_tokens=2, eos_token_id=()))
    finished(engine)


def test_a_step_that_fails_ends_the_requests_with_a_slot_only(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=1)
    step, calls = engine._step, list[int]()

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("no memory")
        return step(*arguments)

    engine._step = failing  # type: ignore[assignment]
    ended = threading.Semaphore(0)

    def report(update: Update) -> None:
        if update.finish_reason is not None:
            ended.release()

    first, second = (engine.submit([1, 2], RequestOptions(max_new_tokens=4, eos_token_id=()), report) for _ in range(2))
    thread = threading.Thread(target=engine.run)
    thread.start()
    assert ended.acquire(timeout=60)
    assert ended.acquire(timeout=60)
    waiting = engine.submit([1, 2], RequestOptions(max_new_tokens=40, eos_token_id=()))
    engine.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert (first.finish_reason, str(first.error)) == ("error", "no memory")
    assert second.tokens == alone(model, second)
    assert waiting.finish_reason in ("cancelled", "length")
    with pytest.raises(ConfigError, match="the engine is stopped"):
        engine.submit([1])


@pytest.mark.medium
def test_warm_up_leaves_no_traces(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=2)
    engine.warm_up()
    status = engine.status()
    assert (status.active, status.waiting, status.generated_tokens, status.slots) == (0, 0, 0, 2)


@pytest.mark.parametrize(
    ("prompt", "options", "error", "message"),
    [
        ([], {}, ConfigError, "at least one token"),
        ([11], {}, ConfigError, "token 11 of the prompt is outside of the vocabulary of 11"),
        (["a"], {}, ConfigError, "token 'a' of the prompt"),
        ([1] * 64, {}, ShapeError, "64 tokens and 1 new ones are more than 64"),
        ([1], {"max_new_tokens": 64}, ShapeError, "1 tokens and 64 new ones are more than 64"),
        ([1], {"max_new_tokens": 0}, ConfigError, "max_new_tokens must be 1 or more"),
        ([1], {"temperature": -1.0}, ConfigError, "temperature must be 0 or more and finite"),
        ([1], {"top_k": -1}, ConfigError, "top_k must be 0 or more"),
        ([1], {"top_p": 1.5}, ConfigError, "top_p must be from 0 to 1"),
        ([1], {"min_p": float("nan")}, ConfigError, "min_p must be from 0 to 1"),
        ([1], {"seed": 1 << 64}, ConfigError, "seed must be an integer of 64 bits"),
        ([1], {"repetition_penalty": 0.0}, ConfigError, "repetition_penalty must be above 0"),
        ([1], {"logit_bias": {11: 1.0}}, ConfigError, "logit_bias must be of tokens below 11"),
        ([1], {"logit_bias": {1: float("inf")}}, ConfigError, "logit_bias must be finite"),
        ([1], {"stop": [""]}, ConfigError, "stop must be of 1 to 1024 characters"),
        ([1], {"stop": ["a"]}, ConfigError, "stop strings need a tokenizer"),
    ],
)
def test_invalid_requests_are_rejected_by_name(
    model: PretrainedModel, prompt: list[Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    engine = ServingEngine(model, max_batch=1)
    with pytest.raises(error, match=message):
        engine.submit(prompt, RequestOptions(**options))
    assert engine.status().waiting == 0


def test_invalid_engines_are_rejected(model: PretrainedModel, tmp_path: Path) -> None:
    for options, message in (
        ({"max_batch": 0}, "max_batch must be 1 or more, not 0"),
        ({"prefill_chunk": 24}, "prefill_chunk must be a multiple of 16, not 24"),
        ({"max_length": 65}, "max_length is 65, and llama has 64 positions"),
        ({"max_length": 1}, "max_length must be 2 or more"),
        ({"max_waiting": 0}, "max_waiting must be 1 or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            ServingEngine(model, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="t5 is an encoder-decoder"):
        ServingEngine(from_pretrained(written(tmp_path / "t5", CONFIGS["t5"])))
