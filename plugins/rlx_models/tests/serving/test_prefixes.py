"""Common prefixes: a prompt that begins as an earlier text has the tokens of `generate`; its first tokens are not processed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written

from rlx_core.errors import ConfigError
from rlx_models import PretrainedModel, from_pretrained, generate
from rlx_models.serving import Request, RequestOptions, ServingEngine
from rlx_models.serving.prefixes import PageIndex

PREFIX = [3, 1, 4, 1, 5, 9, 2, 6] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written(tmp_path_factory.mktemp("llama") / "m", CONFIGS["llama"]))


def finished(engine: ServingEngine, limit: int = 50_000) -> None:
    """Step until no request is left."""
    for _ in range(limit):
        if not engine.step():
            return
    raise AssertionError(f"requests are left after {limit} steps")


def greedy(count: int) -> RequestOptions:
    return RequestOptions(max_new_tokens=count, eos_token_id=())


def alone(model: PretrainedModel, request: Request) -> list[int]:
    """Return the tokens of `generate` for a request."""
    (tokens,) = generate(model, [list(request.prompt)], request.max_new_tokens, eos_token_id=())
    return tokens


@pytest.mark.medium
@pytest.mark.parametrize("name", ["bloom", "deepseek_v3", "gpt2", "llama", "mixtral"])
def test_tokens_are_those_of_generate(name: str, tmp_path: Path) -> None:
    """Prompts have every padding from 0 to 15, and their prefix 40 tokens: two full pages, and a part of a third one.

    Mixtral has a sliding window, and Bloom biases by distance.
    """
    model = from_pretrained(written(tmp_path / "m", CONFIGS[name]))
    engine, rng = ServingEngine(model, max_batch=3, max_length=64, prefill_chunk=16), random.Random(name)
    first = engine.submit(PREFIX, greedy(4))
    finished(engine)
    requests = [
        engine.submit([*PREFIX, *(rng.randrange(11) for _ in range(count))], greedy(4)) for count in range(1, 17)
    ]
    finished(engine)
    assert [request.tokens for request in (first, *requests)] == [
        alone(model, request) for request in (first, *requests)
    ]
    # 47 tokens and one of padding: entries 0 to 31 of the cache are copied, of which one is padding.
    assert [request.reused_tokens for request in requests[6:9]] == [31, 32, 17]
    assert all(request.reused_tokens for request in requests)
    status = engine.status()
    assert (status.prefix_hits, status.reused_tokens) == (16, sum(request.reused_tokens for request in requests))


def test_a_prefix_is_shared_while_its_first_request_runs(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=2, prefill_chunk=16)
    prompts = [[*PREFIX, 7], [*PREFIX, 8]]
    requests = [engine.submit(prompt, greedy(9)) for prompt in prompts]
    finished(engine)
    assert [request.tokens for request in requests] == [alone(model, request) for request in requests]
    assert (requests[0].reused_tokens, requests[1].reused_tokens > 0) == (0, True)


def test_a_chat_goes_on_after_its_answer(model: PretrainedModel) -> None:
    """The pages of an answer are stored, too: its last token is not in the cache, and the prompt has 8 tokens."""
    engine = ServingEngine(model, max_batch=2, max_length=64)
    first = engine.submit(PREFIX[:8], greedy(25))
    finished(engine)
    assert engine.status().used_pages == 2
    second = engine.submit([*first.prompt, *first.tokens, 1, 2, 3], greedy(8))
    finished(engine)
    assert second.reused_tokens == 20, "36 tokens with 12 of padding: entries 0 to 31 of the cache"
    assert second.tokens == alone(model, second)


def test_nothing_is_reused_without_a_common_page(model: PretrainedModel) -> None:
    engine, other = ServingEngine(model, max_batch=1), ServingEngine(model, max_batch=1, prefix_tokens=0)
    for each in (engine, other):
        for prompt in (PREFIX, [0, *PREFIX], PREFIX[:15], [*PREFIX[:15], 0, *PREFIX[16:]]):
            each.submit(prompt, greedy(2))
        finished(each)
        assert (each.status().prefix_hits, each.status().reused_tokens) == (0, 0)
    other.submit(PREFIX, greedy(2))
    finished(other)
    status = other.status()
    assert (status.pages, status.used_pages, status.prefix_hits) == (0, 0, 0)


@pytest.mark.medium
def test_full_pages_are_replaced_and_no_request_is_lost(model: PretrainedModel) -> None:
    """Eight prefixes of two pages each, and a pool of five pages; a quarter of 1,000 requests is cancelled at any time."""
    rng = random.Random(2)
    prefixes = [[rng.randrange(11) for _ in range(32)] for _ in range(8)]
    engine = ServingEngine(model, max_batch=4, max_waiting=1000, prefill_chunk=16, prefix_tokens=80)
    requests: list[Request] = []
    while len(requests) < 1000:
        for _ in range(min(rng.randrange(5), 1000 - len(requests))):
            prompt = [*rng.choice(prefixes), *(rng.randrange(11) for _ in range(rng.randrange(1, 10)))]
            requests.append(engine.submit(prompt, greedy(rng.randrange(1, 4))))
        if requests and rng.random() < 0.5:
            engine.cancel(rng.choice(requests))
        engine.step()
    finished(engine)
    status = engine.status()
    assert (status.active, status.waiting, status.pages, status.used_pages) == (0, 0, 5, 5)
    assert {request.finish_reason for request in requests} == {"length", "cancelled"}
    complete = [request for request in requests if request.finish_reason == "length"]
    assert len(complete) > 500
    assert 100 < status.prefix_hits < 1000
    for request in complete[::20]:
        assert request.tokens == alone(model, request)


def test_former_contents_of_caches_are_not_read(model: PretrainedModel) -> None:
    """The padding of a prompt whose prefix is copied is not processed; NaNs there would reach the sums of attention."""
    engine = ServingEngine(model, max_batch=1, max_length=64)
    engine.submit(PREFIX, greedy(1))
    finished(engine)
    engine._prompt_caches = {
        capacity: [tuple(np.full(array.shape, np.nan, np.float32) for array in entry) for entry in cache]
        for capacity, cache in engine._prompt_caches.items()
    }
    request = engine.submit([*PREFIX, 7], greedy(8))
    finished(engine)
    assert request.reused_tokens > 0
    assert request.tokens == alone(model, request)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["f16", "bf16", "int8"])
def test_narrow_caches_have_pages(model: PretrainedModel, dtype: str) -> None:
    engine = ServingEngine(model, max_batch=2, cache_dtype=dtype)
    for prompt in (PREFIX, [*PREFIX, 7], [*PREFIX, 8, 9]):
        request = engine.submit(prompt, greedy(8))
        finished(engine)
        (expected,) = generate(model, [prompt], 8, eos_token_id=(), cache_dtype=dtype)
        assert request.tokens == expected
    assert engine.status().prefix_hits == 2
    with pytest.raises(ConfigError, match="serve: cache_dtype is 'i8'"):
        ServingEngine(model, cache_dtype="i8")


def test_pages_are_updated_in_place(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=1)

    def addresses() -> list[int]:
        assert engine._prefixes is not None
        return [np.asarray(array).ctypes.data for entry in engine._prefixes._pool for array in entry]

    found = []
    for prompt in (PREFIX, PREFIX[::-1], [*PREFIX, 1]):
        engine.submit(prompt, greedy(2))
        finished(engine)
        found.append(addresses())
    assert found[0] == found[1] == found[2]


@pytest.mark.medium
def test_warm_up_and_a_failed_step_leave_no_pages(model: PretrainedModel) -> None:
    engine = ServingEngine(model, max_batch=1)
    engine.warm_up()
    assert engine.status().used_pages == 0
    engine.submit(PREFIX, greedy(2))
    finished(engine)
    assert engine.status().used_pages == 2
    engine._fail(MemoryError())
    request = engine.submit(PREFIX, greedy(2))
    finished(engine)
    assert (request.reused_tokens, request.tokens) == (0, alone(model, request))


def test_models_with_a_recurrent_state_have_no_pages(tmp_path: Path) -> None:
    engine = ServingEngine(from_pretrained(written(tmp_path / "m", CONFIGS["mamba"])), max_batch=1)
    assert engine.status().pages == 0


@pytest.mark.parametrize(("tokens", "message"), [(24, "a multiple of 16, not 24"), (-16, "a multiple of 16, not -16")])
def test_invalid_sizes_are_rejected(model: PretrainedModel, tokens: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"prefix_tokens must be {message}"):
        ServingEngine(model, prefix_tokens=tokens)


def test_the_least_recently_used_page_is_replaced_after_the_pages_that_follow_it() -> None:
    index = PageIndex(4)
    a, b, c = ([n] * 32 for n in range(3))
    assert index.add(a) == (0, [0, 1])
    assert index.add(b) == (0, [2, 3])
    assert index.find([*a, 5]) == [0, 1]
    assert index.add(c[:20]) == (0, [3]), "the last page of the text that was used before"
    assert index.find(b) == [2]
    assert index.find(a) == [0, 1]
    assert index.add([*a[:16], *c]) == (1, [3, 2]), "the remaining page of a is newer"
    assert (len(index), index.find(a), index.find(b), index.find(c)) == (4, [0, 1], [], [])


def test_a_text_of_more_pages_than_the_pool_has_keeps_its_first_ones() -> None:
    index = PageIndex(2)
    tokens = list(range(80))
    assert index.add(tokens) == (0, [0, 1])
    assert index.find(tokens) == [0, 1]
    assert index.add(tokens) == (2, [])
    assert PageIndex(0).add(tokens) == (0, [])


def test_pages_are_compared_by_tokens_and_by_their_prefix() -> None:
    """Random texts of few tokens against a list of all prefixes of full pages, while no page is replaced."""
    rng, index, prefixes, pages = random.Random(0), PageIndex(10_000), set[tuple[int, ...]](), dict[Any, int]()
    for _ in range(500):
        text = [token for _ in range(rng.randrange(5)) for token in [rng.randrange(2)] * 16] + [0] * rng.randrange(16)
        keys = [tuple(text[:end]) for end in range(16, len(text) + 1, 16)]
        present = [key for key in keys if key in prefixes]
        assert index.find(text) == [pages[key] for key in present]
        count, new = index.add(text)
        assert count == len(present)
        pages.update(zip(keys[count:], new, strict=True))
        prefixes.update(keys)
    assert len(set(pages.values())) == len(pages) == len(index)
