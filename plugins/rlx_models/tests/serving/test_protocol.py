"""Bodies of requests: what is read, and the errors of fields that are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlx_models.serving.options import RequestOptions
from rlx_models.serving.protocol import HttpError, parse_completion, parse_json

CHAT = {"messages": [{"role": "user", "content": "a"}]}


def test_fields_of_completions_are_read() -> None:
    body = parse_completion(
        {
            "model": "m", "prompt": ["a", "b"], "max_tokens": 5, "temperature": 0, "top_p": 0.5, "seed": 3, "stop": "x",
            "logit_bias": {"4": -100}, "stream": True, "stream_options": {"include_usage": True}, "top_k": 2, "min_p": 0.1,
            "repetition_penalty": 1.5, "stop_token_ids": [7], "ignore_eos": True, "n": 1, "user": "u", "presence_penalty": 0.0,
            "echo": None,
        },
        is_chat=False,
    )  # fmt: skip
    assert (body.model, body.prompts, body.messages) == ("m", ("a", "b"), None)
    assert (body.is_streamed, body.has_usage) == (True, True)
    assert body.options == RequestOptions(
        max_new_tokens=5, temperature=0.0, top_p=0.5, seed=3, stop=("x",), logit_bias={4: -100.0}, top_k=2, min_p=0.1,
        repetition_penalty=1.5, stop_token_ids=(7,), eos_token_id=(),
    )  # fmt: skip


def test_defaults_are_those_of_the_protocol() -> None:
    body = parse_completion({"prompt": [1], "temperature": None}, is_chat=False)
    assert body.prompts == ([1],)
    assert body.options == RequestOptions(max_new_tokens=16, temperature=1.0, stop=(), stop_token_ids=())
    chat = parse_completion({**CHAT, "max_completion_tokens": 3}, is_chat=True)
    assert (chat.options.max_new_tokens, chat.is_streamed) == (3, False)
    assert parse_completion(CHAT, is_chat=True).options.max_new_tokens is None
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = parse_completion({"messages": [{"role": "user", "content": parts, "name": "n"}]}, is_chat=True)
    assert chat.messages == ({"role": "user", "content": "ab", "name": "n"},)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({}, "prompt", "invalid_value"),
        ({"prompt": 3}, "prompt", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": ["a", 1]}, "prompt", "invalid_value"),
        ({"prompt": [[]]}, "prompt", "invalid_value"),
        ({"prompt": ["a"] * 65}, "prompt", "invalid_value"),
        ({"prompt": [True]}, "prompt", "invalid_value"),
        ({"prompt": "a", "model": 1}, "model", "invalid_value"),
        ({"prompt": "a", "max_tokens": "5"}, "max_tokens", "invalid_value"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens", "invalid_value"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens", "invalid_value"),
        ({"prompt": "a", "temperature": "hot"}, "temperature", "invalid_value"),
        ({"prompt": "a", "temperature": 10**400}, "temperature", "invalid_value"),
        ({"prompt": "a", "stop": [1]}, "stop", "invalid_value"),
        ({"prompt": "a", "stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"prompt": "a", "stop_token_ids": ["a"]}, "stop_token_ids", "invalid_value"),
        ({"prompt": "a", "logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
        ({"prompt": "a", "logit_bias": {"²": 1}}, "logit_bias", "invalid_value"),
        ({"prompt": "a", "logit_bias": {"1": "a"}}, "logit_bias", "invalid_value"),
        ({"prompt": "a", "stream": "yes"}, "stream", "invalid_value"),
        ({"prompt": "a", "stream_options": {"usage": True}}, "stream_options.usage", "unknown_parameter"),
        ({"prompt": "a", "n": 0}, "n", "invalid_value"),
        ({"prompt": "a", "n": True}, "n", "invalid_value"),
        ({"prompt": ["a"] * 33, "n": 2}, "n", "invalid_value"),
        ({"prompt": "a", "logprobs": 3}, "logprobs", "unsupported_parameter"),
        ({"prompt": "a", "echo": True}, "echo", "unsupported_parameter"),
        ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty", "unsupported_parameter"),
        ({"prompt": "a", "tools": [{}]}, "tools", "unsupported_parameter"),
        ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        (
            {"prompt": "a", "response_format": {"type": "json_schema"}},
            "response_format.json_schema.schema",
            "invalid_value",
        ),
        ({"prompt": "a", "response_format": {"type": "text", "a": 1}}, "response_format.a", "unknown_parameter"),
        ({"prompt": "a", "temprature": 1}, "temprature", "unknown_parameter"),
        ({"prompt": "a", "messages": []}, "messages", "unknown_parameter"),
    ],
)
def test_errors_of_completions_name_the_field(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_completion(fields, is_chat=False)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
    assert param in caught.value.message
    assert json.loads(json.dumps(caught.value.body))["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "robot", "content": "a"}], "messages[0].role"),
        ([{"role": {}, "content": "a"}], "messages[0].role"),
        ([{"role": "user", "content": "a"}, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": ["a"]}], "messages[0].content"),
        ([{"role": "user", "content": "a", "tool_calls": []}], "messages[0].tool_calls"),
    ],
)
def test_errors_of_chats_name_the_message(messages: Any, param: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_completion({"messages": messages}, is_chat=True)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": NaN}', b"1" * 10_000])
def test_bodies_that_are_no_object_are_refused(body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        parse_json(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
