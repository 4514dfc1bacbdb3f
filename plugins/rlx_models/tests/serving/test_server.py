"""The HTTP server, by ASGI without a network: every request has an answer or a status with an error object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

httpx = pytest.importorskip("httpx", reason="python -m pip install httpx")
pytest.importorskip("starlette", reason="python -m pip install starlette")
pytest.importorskip("uvicorn", reason="python -m pip install uvicorn")

from letters import LETTERS, ChatLetters, letter_tokenizer, written_letters  # noqa: E402  # it needs tokenizers

from rlx_models import PretrainedModel, from_pretrained, generate  # noqa: E402
from rlx_models.serving import ServingEngine  # noqa: E402
from rlx_models.serving.server import ServerLimits, application  # noqa: E402
from rlx_models.serving.service import Service  # noqa: E402

GREEDY = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written_letters(tmp_path_factory.mktemp("letters") / "m"))


class Served:
    """A service with its client, and the ASGI application."""

    def __init__(self, engine: ServingEngine, limits: ServerLimits, chat: Any = None) -> None:
        self.is_exiting = False
        self.engine, self.service = engine, Service(engine, "letters", chat)
        self.application = application(self.service, limits, lambda: self.is_exiting)
        transport = httpx.ASGITransport(self.application)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)

    async def post(self, path: str, **fields: Any) -> Any:
        return await self.client.post(f"/v1/{path}", json=fields)

    async def idle(self) -> None:
        """Wait until no request has a slot or waits."""
        for _ in range(1000):
            status = self.engine.status()
            if not status.active and not status.waiting:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"requests are left: {status}")


@asynccontextmanager
async def served(
    model: PretrainedModel, limits: ServerLimits | None = None, chat: Any = None, **options: Any
) -> AsyncIterator[Served]:
    engine = ServingEngine(model, **{"tokenizer": letter_tokenizer(), "max_batch": 4, **options})
    server = Served(engine, limits or ServerLimits(), chat)
    async with server.application.router.lifespan_context(server.application):
        yield server


def run(work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*arguments), 120))


def greedy(model: PretrainedModel, prompt: str, count: int) -> str:
    (tokens,) = generate(model, [letter_tokenizer().encode(prompt).ids], count, eos_token_id=())
    text: str = letter_tokenizer().decode(tokens)
    return text


def events_of(text: str) -> list[Any]:
    """Return the data of server-sent events."""
    blocks = text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block if block == "data: [DONE]" else json.loads(block.removeprefix("data: ")) for block in blocks]


@pytest.mark.medium
def test_completions_are_those_of_generate(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model) as server:
            response = await server.post("completions", model="letters", prompt=["abc", "d"], max_tokens=6, **GREEDY)
            assert response.status_code == 200
            body = response.json()
            assert (body["object"], body["model"]) == ("text_completion", "letters")
            expected = [greedy(model, prompt, 6) for prompt in ("abc", "d")]
            assert [choice["text"] for choice in body["choices"]] == expected
            assert [(choice["index"], choice["finish_reason"]) for choice in body["choices"]] == [
                (0, "length"),
                (1, "length"),
            ]
            assert body["usage"] == {
                "prompt_tokens": 4,
                "completion_tokens": 12,
                "total_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 0},
            }

            stop = expected[0][2:4]
            response = await server.post("completions", prompt=[0, 1, 2], max_tokens=6, stop=stop, **GREEDY)
            (choice,) = response.json()["choices"]
            assert (choice["text"], choice["finish_reason"]) == (expected[0][: expected[0].index(stop)], "stop")

            sampled = [
                await server.post(
                    "completions", prompt="abc", max_tokens=20, temperature=3.0, seed=seed, ignore_eos=True
                )
                for seed in (1, 1, 2)
            ]
            first, again, other = (response.json()["choices"][0]["text"] for response in sampled)
            assert first == again != other

    run(work)


def test_streams_are_server_sent_events(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model, chat=ChatLetters()) as server:
            response = await server.post(
                "completions", prompt="abc", max_tokens=6, stream=True, stream_options={"include_usage": True}, **GREEDY
            )
            assert response.headers["content-type"].startswith("text/event-stream")
            *deltas, usage, end = events_of(response.text)
            assert end == "data: [DONE]"
            assert "".join(event["choices"][0]["text"] for event in deltas) == greedy(model, "abc", 6)
            assert [event["choices"][0]["finish_reason"] for event in deltas] == [None] * 5 + ["length"]
            assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)
            assert len({event["id"] for event in (*deltas, usage)}) == 1

            messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "h"}]
            response = await server.post("chat/completions", messages=messages, max_tokens=4, stream=True, **GREEDY)
            role, *deltas, end = events_of(response.text)
            assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            text = "".join(event["choices"][0]["delta"].get("content", "") for event in deltas)
            assert text == greedy(model, "cabdhe", 4)
            assert {event["object"] for event in (role, *deltas)} == {"chat.completion.chunk"}

            response = await server.post("chat/completions", messages=messages, max_tokens=4, **GREEDY)
            (choice,) = response.json()["choices"]
            assert choice["message"] == {"role": "assistant", "content": text}
            response = await server.post("chat/completions", messages=messages, **GREEDY)
            assert response.json()["usage"]["total_tokens"] == 64, "to the maximum length"

    run(work)


@pytest.mark.medium
def test_a_response_has_n_choices(model: PretrainedModel) -> None:
    """The choices of a prompt have the seeds `seed`, `seed + 1`, …; the prompt is counted once."""

    async def work() -> None:
        async with served(model, chat=ChatLetters()) as server:
            options = {"max_tokens": 12, "temperature": 3.0, "ignore_eos": True}
            response = await server.post("completions", prompt=["abc", "d"], n=2, seed=7, **options)
            body = response.json()
            texts = [choice["text"] for choice in body["choices"]]
            assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
            assert body["usage"]["prompt_tokens"] == 4
            for prompt, number in ((0, 0), (0, 1), (1, 1)):
                alone = await server.post("completions", prompt=["abc", "d"][prompt], seed=7 + number, **options)
                assert alone.json()["choices"][0]["text"] == texts[2 * prompt + number]
            assert texts[0] != texts[1]

            response = await server.post("completions", prompt="abc", n=2, seed=2**64 - 1, **options)
            assert response.status_code == 200, "the next seed is 0"
            messages = [{"role": "user", "content": "ab"}]
            response = await server.post("chat/completions", messages=messages, n=3, seed=7, stream=True, **options)
            *events, _ = events_of(response.text)
            choices = [event["choices"][0] for event in events]
            assert sum("role" in choice["delta"] for choice in choices) == 3
            joined = ["".join(c["delta"].get("content", "") for c in choices if c["index"] == n) for n in range(3)]
            assert [len(text) for text in joined] == [12, 12, 12]
            assert len(set(joined)) > 1

    run(work)


@pytest.mark.medium
def test_chats_report_probabilities_of_tokens(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model, chat=ChatLetters()) as server:
            messages = [{"role": "user", "content": "ab"}]
            options = {"messages": messages, "max_tokens": 5, "logprobs": True, "top_logprobs": 3, **GREEDY}
            (choice,) = (await server.post("chat/completions", **options)).json()["choices"]
            content, tokens = choice["logprobs"]["content"], letter_tokenizer().encode("dabe").ids
            assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
            for entry in content:
                logits = np.asarray(model(np.array([tokens])))[0, -1]
                expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
                best = np.argsort(-expected)[:3]
                assert entry["logprob"] == pytest.approx(expected[best[0]], abs=1e-4)  # f32: logits of about 10
                assert [top["token"] for top in entry["top_logprobs"]] == [LETTERS[each] for each in best]
                assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx(expected[best], abs=1e-4)
                assert entry["bytes"] == list(entry["token"].encode())
                tokens.append(int(best[0]))

            *events, _ = events_of((await server.post("chat/completions", stream=True, **options)).text)
            parts = [event["choices"][0].get("logprobs") for event in events]
            assert [entry for part in parts if part for entry in part["content"]] == content
            plain = await server.post("chat/completions", messages=messages, max_tokens=1, **GREEDY)
            assert plain.json()["choices"][0]["logprobs"] is None
            none = await server.post("chat/completions", **{**options, "top_logprobs": 0})
            assert none.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
            for fields in ({"top_logprobs": 21}, {"top_logprobs": -1}, {"logprobs": False}, {"logprobs": 1}):
                response = await server.post("chat/completions", **{**options, **fields})
                assert response.status_code == 400
                assert "logprobs" in response.json()["error"]["param"]

    run(work)


@pytest.mark.medium
def test_response_formats_are_json_documents(model: PretrainedModel, tmp_path: Path) -> None:
    pytest.importorskip("llguidance", reason="python -m pip install 'rlx-models[grammar]'")
    from byte_letters import byte_tokenizer, written_bytes

    byte_model, tokenizer = from_pretrained(written_bytes(tmp_path / "m")), byte_tokenizer()
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [12, "é"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    no_space = {str(token): -100 for token in tokenizer.encode(" \n\r\t").ids}

    async def work() -> None:
        async with served(byte_model, tokenizer=tokenizer) as server:
            response = await server.post(
                "completions", prompt=["a", "b"], max_tokens=40, response_format=form, logit_bias=no_space, seed=1
            )
            for choice in response.json()["choices"]:
                assert choice["finish_reason"] == "stop"
                assert json.loads(choice["text"]) in ({"a": 12}, {"a": "é"})
            response = await server.post(
                "completions", prompt="a", max_tokens=2, response_format={"type": "json_object"}, logit_bias=no_space
            )
            assert response.json()["choices"][0]["text"][0] == "{"
            form["json_schema"]["schema"] = {"not": {}}
            response = await server.post("completions", prompt="a", response_format=form)
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, "response_format")
            assert "'not'" in error["message"]
        async with served(model) as server:
            response = await server.post("completions", prompt="a", response_format={"type": "json_object"})
            assert (response.status_code, response.json()["error"]["param"]) == (400, "response_format")

    run(work)


def test_models_and_health(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model) as server:
            (row,) = (await server.client.get("/v1/models")).json()["data"]
            assert (row["id"], row["max_model_len"]) == ("letters", 64)
            await server.post("completions", prompt="abc", max_tokens=6, **GREEDY)
            health = (await server.client.get("/health")).json()
            assert health["status"] == "ok"
            assert (health["queue"], health["active_slots"], health["slots"], health["tokens"]) == (0, 0, 4, 6)
            assert health["tokens_per_second"] > 0
            assert health["uptime"] > 0
            assert (health["pages"], health["used_pages"], health["prefix_hits"], health["reused_tokens"]) == (
                10,
                0,
                0,
                0,
            )
            for cached in (0, 16):
                response = await server.post("completions", prompt="abcdefgh" * 4, max_tokens=2, **GREEDY)
                usage = response.json()["usage"]
                assert (usage["prompt_tokens"], usage["prompt_tokens_details"]) == (32, {"cached_tokens": cached})
            health = (await server.client.get("/health")).json()
            assert (health["used_pages"], health["prefix_hits"], health["reused_tokens"]) == (2, 1, 16)

    run(work)


@pytest.mark.parametrize(
    ("path", "fields", "status", "param", "code"),
    [
        ("completions", {"prompt": "a", "model": "gpt"}, 404, "model", "model_not_found"),
        ("completions", {"prompt": "a" * 65}, 400, "prompt", "context_length_exceeded"),
        ("completions", {"prompt": "a", "max_tokens": 64}, 400, "prompt", "context_length_exceeded"),
        ("completions", {"prompt": ""}, 400, "prompt", "invalid_value"),
        ("completions", {"prompt": [11]}, 400, "prompt", "invalid_value"),
        ("completions", {"prompt": "\ud800"}, 400, "prompt", "invalid_value"),
        ("completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        ("completions", {"prompt": "a", "top_p": 2}, 400, "top_p", "invalid_value"),
        ("completions", {"prompt": "a", "seed": 1 << 70}, 400, "seed", "invalid_value"),
        ("completions", {"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty", "invalid_value"),
        ("completions", {"prompt": "a", "logit_bias": {"11": 1}}, 400, "logit_bias", "invalid_value"),
        ("completions", {"prompt": ["a"] * 40}, 429, None, "queue_full"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "a"}]},
            400,
            "messages",
            "unsupported_parameter",
        ),
        ("embeddings", {}, 404, None, None),
    ],
)
def test_errors_have_a_status_and_an_object(
    model: PretrainedModel, path: str, fields: dict[str, Any], status: int, param: str | None, code: str | None
) -> None:
    async def work() -> None:
        async with served(model, max_waiting=32) as server:
            response = await server.client.post(f"/v1/{path}", content=json.dumps(fields))
            error = response.json()["error"]
            assert (response.status_code, error["param"], error["code"]) == (status, param, code), error
            await server.idle()

    run(work)


def test_methods_and_malformed_bodies(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model, ServerLimits(body_nbytes=100, body_seconds=0.2)) as server:
            client = server.client
            assert (await client.get("/v1/completions")).status_code == 405
            assert (await client.post("/v1/completions", content=b"{")).json()["error"]["code"] == "invalid_json"
            assert (await client.post("/v1/completions", content=b" " * 101)).status_code == 413

            async def chunks(count: int, seconds: float) -> AsyncIterator[bytes]:
                for _ in range(count):
                    await asyncio.sleep(seconds)
                    yield b" " * 30

            assert (await client.post("/v1/completions", content=chunks(4, 0))).status_code == 413, "without a length"
            response = await client.post("/v1/completions", content=chunks(3, 0.15))
            assert (response.status_code, response.json()["error"]["code"]) == (408, "timeout")

    run(work)


def test_a_full_queue_is_429_with_retry_after(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model, max_batch=1, max_waiting=1) as server:
            running = [
                asyncio.create_task(server.post("completions", prompt="a", max_tokens=60, **GREEDY)) for _ in range(12)
            ]
            responses = await asyncio.gather(*running)
            refused = [response for response in responses if response.status_code == 429]
            assert 0 < len(refused) < 12
            assert {response.status_code for response in responses} == {200, 429}
            assert all(response.headers["retry-after"] == "1" for response in refused)
            assert (await server.post("completions", prompt="a", max_tokens=2, **GREEDY)).status_code == 200

    run(work)


async def abandoned(server: Served, fields: dict[str, Any], events: int) -> list[Any]:
    """Send a request by ASGI, close the connection after some messages of the response, and return the messages."""
    messages: list[Any] = []
    closed = asyncio.Event()
    body = json.dumps(fields).encode()
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)
        if len(messages) > events:
            closed.set()

    scope = {
        "type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions", "query_string": b"",
        "headers": [], "http_version": "1.1", "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": "",
    }  # fmt: skip
    if not events:
        asyncio.get_running_loop().call_later(0.05, closed.set)
    await server.application(scope, receive, send)
    return messages


def slowed(engine: ServingEngine, seconds: float) -> None:
    """Make the steps of an engine last longer."""
    step = engine.step

    def wait_and_step() -> bool:
        import time

        time.sleep(seconds)
        return step()

    engine.step = wait_and_step  # type: ignore[method-assign]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(model: PretrainedModel, is_streamed: bool) -> None:
    async def work() -> None:
        async with served(model) as server:
            slowed(server.engine, 0.02)
            fields = {"prompt": "a", "max_tokens": 60, "stream": is_streamed, **GREEDY}
            messages = await abandoned(server, fields, 4 if is_streamed else 0)
            await asyncio.sleep(0.1)
            status = server.engine.status()
            assert (status.active, status.waiting) == (0, 0)
            assert status.generated_tokens < 20
            assert [each["status"] for each in messages if "status" in each] == [200 if is_streamed else 499]

    run(work)


def test_a_client_that_does_not_read_is_left_after_a_time(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model, ServerLimits(write_seconds=0.1)) as server:
            sent: list[Any] = []

            async def receive() -> Any:
                if not sent:
                    sent.append(None)
                    body = json.dumps({"prompt": "a", "max_tokens": 60, "stream": True, **GREEDY}).encode()
                    return {"type": "http.request", "body": body, "more_body": False}
                return await asyncio.Event().wait()

            async def send(message: Any) -> None:
                sent.append(message)
                if len(sent) > 3:
                    await asyncio.Event().wait()

            scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
            await server.application(scope, receive, send)
            assert len(sent) == 4
            assert sent[-1]["more_body"], "the response is incomplete, so that the server closes the connection"
            await server.idle()

    run(work)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_requests_finish_until_the_deadline_and_then_receive_503(model: PretrainedModel, is_streamed: bool) -> None:
    async def work() -> None:
        async with served(model, ServerLimits(drain_seconds=0.6), max_batch=2) as server:
            slowed(server.engine, 0.05)
            short, long = (
                asyncio.create_task(server.post("completions", prompt="a", max_tokens=n, stream=is_streamed, **GREEDY))
                for n in (4, 60)
            )
            while server.engine.status().active < 2:
                await asyncio.sleep(0.01)
            server.is_exiting = True
            await asyncio.sleep(0.1)
            refused = await server.post("completions", prompt="a", **GREEDY)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert (await server.client.get("/health")).json()["status"] == "draining"
            first, second = await short, await long
            assert first.status_code == 200
            if is_streamed:
                assert events_of(first.text)[-1] == "data: [DONE]"
                assert events_of(second.text)[-1]["error"]["code"] == "unavailable"
            else:
                assert (second.status_code, second.json()["error"]["code"]) == (503, "unavailable")
            assert server.engine.is_stopped

    run(work)


def test_a_step_that_fails_is_500(model: PretrainedModel) -> None:
    async def work() -> None:
        async with served(model) as server:
            step, calls = server.engine._step, list[int]()

            def failing(*arguments: Any) -> Any:
                calls.append(1)
                if len(calls) == 2:
                    raise MemoryError("no memory")
                return step(*arguments)

            server.engine._step = failing  # type: ignore[assignment]
            response = await server.post("completions", prompt="a", max_tokens=6, **GREEDY)
            assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
            response = await server.post("completions", prompt="a", max_tokens=6, **GREEDY)
            assert response.json()["choices"][0]["text"] == greedy(model, "a", 6)

    run(work)


@pytest.mark.medium
def test_1000_requests_at_once_are_answered_or_refused(model: PretrainedModel) -> None:
    """A client retries after 429; some leave. Each request is answered once, with its own text."""

    async def work() -> None:
        async with served(model, max_batch=8, max_waiting=64) as server:
            expected = {prompt: greedy(model, prompt, 8) for prompt in ("a", "bc", "defg", "hijkabc")}
            statuses: list[int] = []

            async def one(number: int) -> None:
                prompt = list(expected)[number % 4]
                fields = {"prompt": prompt, "max_tokens": 8, "stream": number % 3 == 0, **GREEDY}
                if number % 10 == 9:
                    await abandoned(server, fields, number % 2)
                    return
                response = await server.client.post("/v1/completions", json=fields)
                statuses.append(response.status_code)
                for _ in range(3000):
                    if response.status_code != 429:
                        break
                    await asyncio.sleep(0.02)
                    response = await server.client.post("/v1/completions", json=fields)
                assert response.status_code == 200
                text = (
                    "".join(event["choices"][0]["text"] for event in events_of(response.text)[:-1])
                    if fields["stream"]
                    else response.json()["choices"][0]["text"]
                )
                assert text == expected[prompt]

            await asyncio.gather(*(one(number) for number in range(1000)))
            assert len(statuses) == 900
            assert statuses.count(200) >= 58  # the queue takes 64 or more at once, of which clients abandon each tenth
            assert statuses.count(200) + statuses.count(429) == 900
            await server.idle()

    run(work)


def test_the_engine_of_a_service_needs_a_tokenizer(model: PretrainedModel) -> None:
    from rlx_core.errors import ConfigError

    with pytest.raises(ConfigError, match="needs a tokenizer"):
        Service(ServingEngine(model), "m")
