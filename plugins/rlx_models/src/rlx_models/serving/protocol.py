"""OpenAI's protocol of completions: bodies of requests are read into `CompletionBody`, and results become bodies of responses.

A field that is unknown, or known and not supported, is an error that names it, as with OpenAI's server: a client that sends
`tools` or misspells `temperature` would otherwise receive a text of another kind. `null` is the default of every field.

Source:
    OpenAI API reference, "Create completion" and "Create chat completion", platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import field, frozen

from rlx_models.serving.options import RequestOptions
from rlx_models.serving.requests import TokenLogprob
from rlx_models.serving.text import REPLACEMENT

T = TypeVar("T")

Prompt = str | list[int]
Message = dict[str, Any]

MAX_PROMPTS: Final = 64
"""Prompts of one body."""
MAX_CHOICES: Final = 64
"""Texts of one response."""
MAX_MESSAGES: Final = 4096
MAX_STOPS: Final = 16
MAX_LOGIT_BIASES: Final = 1024
DEFAULT_MAX_TOKENS: Final = 16
"""The default of `max_tokens` for completions, as with OpenAI; chats have no default."""

MIN_LOGPROB: Final = -9999.0
"""The logarithm of probability 0, as with OpenAI."""

IGNORED: Final = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"),
    }
)
"""Fields without an effect on the text."""

NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
}
"""Fields that are not supported, with the values that request nothing."""
NEUTRAL_IN_COMPLETIONS: Final[Mapping[str, tuple[Any, ...]]] = {"logprobs": (False,), "top_logprobs": (0,)}
"""Further ones of completions; chats have them in another form."""

ROLES: Final = ("system", "developer", "user", "assistant", "tool")


@frozen
class HttpError(Exception):
    """An error response.

    Attributes:
        status: The HTTP status.
        message: What is wrong.
        param: The field of the body.
        code: A name for programs.
        headers: Further headers.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


@frozen(kw_only=True)
class CompletionBody:
    """A request of completions or of a chat.

    Attributes:
        model: The name of the model, or `None`.
        prompts: Texts or tokens, one choice each; empty for chats.
        messages: The messages of a chat, or `None`.
        options: Options of all choices.
        is_streamed: Whether the response has an event for each token.
        has_usage: Whether a stream ends with the numbers of tokens.
        schema: The JSON schema of the texts, or `None`.
        n: The number of choices for each prompt.
    """

    model: str | None
    prompts: tuple[Prompt, ...]
    messages: tuple[Message, ...] | None
    options: RequestOptions
    is_streamed: bool
    has_usage: bool
    schema: Mapping[str, Any] | None = None
    n: int = 1


class Fields:
    """The fields of a JSON object; those that were not read are unknown.

    Args:
        values: The object.
        prefix: The name of an object within the body, with a point.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values, self._prefix, self._read = values, prefix, set[str]()

    def get(self, name: str) -> Any:
        """Return a field; `None` if it is `null` or absent."""
        self._read.add(name)
        return self._values.get(name)

    def error(self, name: str, expected: str) -> HttpError:
        """Return the error of a field."""
        value, path = self._values.get(name), f"{self._prefix}{name}"
        message = f"{path} must be {expected}, not {json.dumps(value)[:80]}"
        return HttpError(400, message, path, "invalid_value")

    def optional(self, name: str, kind: Callable[[Any], bool], expected: str, default: T) -> T:
        """Return a field that must be of a kind, or the default."""
        value = self.get(name)
        if value is None:
            return default
        if not kind(value):
            raise self.error(name, expected)
        result: T = value
        return result

    def integer(self, name: str) -> int | None:
        return self.optional(name, is_integer, "an integer", None)

    def number(self, name: str, default: float) -> float:
        return float(self.optional(name, is_number, "a number", default))

    def flag(self, name: str) -> bool:
        return self.optional(name, lambda value: isinstance(value, bool), "true or false", False)

    def check_unknown(self) -> None:
        """Raise an `HttpError` for a field that was not read."""
        unknown = sorted(self._values.keys() - self._read)
        if unknown:
            path = f"{self._prefix}{unknown[0]}"[:80]
            raise HttpError(400, f"Unrecognized request argument supplied: {path}", path, "unknown_parameter")


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    # Longer integers are not floats.
    return isinstance(value, float) or (is_integer(value) and abs(value) < 1 << 64)


def is_list_of(kind: Callable[[Any], bool], value: Any, limit: int | None = None) -> bool:
    return isinstance(value, list) and (limit is None or len(value) <= limit) and all(map(kind, value))


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def parse_json(body: bytes | bytearray) -> dict[str, Any]:
    """Return the object of a body.

    Raises:
        HttpError: It is not JSON, or not an object.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise HttpError(400, f"the body must be a JSON object, not {json.dumps(value)[:40]}", code="invalid_json")
    return value


def parse_completion(values: Mapping[str, Any], *, is_chat: bool) -> CompletionBody:
    """Return the request of a body.

    Raises:
        HttpError: A field is missing, unknown, not supported, or of another type; the error names it.
    """
    fields = Fields(values)
    for name in IGNORED:
        fields.get(name)
    for name, neutral in (NEUTRAL if is_chat else {**NEUTRAL, **NEUTRAL_IN_COMPLETIONS}).items():
        value = fields.get(name)
        if value is not None and not any(value == each and type(value) is type(each) for each in neutral):
            is_zero = neutral == (0,) and isinstance(value, float) and value == 0
            if not is_zero:
                raise HttpError(400, f"{name} is not supported", name, "unsupported_parameter")
    messages = _messages(fields) if is_chat else None
    prompts = () if is_chat else _prompts(fields)
    limit = MAX_CHOICES // max(len(prompts), 1)
    n = fields.optional(
        "n", lambda value: is_integer(value) and 1 <= value <= limit, f"an integer from 1 to {limit}", 1
    )
    result = CompletionBody(
        model=fields.optional("model", is_text, "a string", None),
        prompts=prompts,
        messages=messages,
        options=_options(fields, is_chat=is_chat),
        is_streamed=fields.flag("stream"),
        has_usage=_stream_options(fields),
        schema=_schema(fields),
        n=n,
    )
    fields.check_unknown()
    return result


def _prompts(fields: Fields) -> tuple[Prompt, ...]:
    value = fields.get("prompt")
    if isinstance(value, str) or (value and is_list_of(is_integer, value)):
        return (value,)
    is_batch = is_list_of(is_text, value) or is_list_of(lambda each: bool(each) and is_list_of(is_integer, each), value)
    if not value or not is_batch or len(value) > MAX_PROMPTS:
        expected = f"a string, a list of tokens, or a list of 1 to {MAX_PROMPTS} of either"
        raise fields.error("prompt", expected)
    return tuple(value)


def _messages(fields: Fields) -> tuple[Message, ...]:
    value = fields.get("messages")
    if not value or not is_list_of(lambda each: isinstance(each, dict), value, MAX_MESSAGES):
        raise fields.error("messages", f"a list of 1 to {MAX_MESSAGES} objects")
    return tuple(_message(Fields(each, f"messages[{n}].")) for n, each in enumerate(value))


def _message(fields: Fields) -> Message:
    role = fields.get("role")
    if role not in ROLES:
        raise fields.error("role", f"one of {', '.join(ROLES)}")
    name = fields.optional("name", is_text, "a string", None)
    content = fields.get("content")
    if isinstance(content, list):
        content = "".join(_text_part(fields, part) for part in content)
    if not isinstance(content, str):
        raise fields.error("content", "a string, or a list of parts")
    fields.check_unknown()
    return {"role": role, "content": content, **({} if name is None else {"name": name})}


def _text_part(fields: Fields, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise fields.error("content", 'a list of parts of type "text"')
    text: str = part["text"]
    return text


def _options(fields: Fields, *, is_chat: bool) -> RequestOptions:
    maximum = fields.integer("max_tokens")
    if is_chat:
        newer = fields.integer("max_completion_tokens")
        maximum = maximum if newer is None else newer
    stop = fields.get("stop")
    stop = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not is_list_of(is_text, stop, MAX_STOPS):
        raise fields.error("stop", f"a string, or a list of up to {MAX_STOPS}")
    stop_tokens: list[int] = fields.optional(
        "stop_token_ids", lambda value: is_list_of(is_integer, value, MAX_LOGIT_BIASES), "a list of tokens", []
    )
    penalty = fields.optional("repetition_penalty", is_number, "a number", None)
    return RequestOptions(
        max_new_tokens=maximum if maximum is not None or is_chat else DEFAULT_MAX_TOKENS,
        temperature=fields.number("temperature", 1.0),
        top_k=fields.integer("top_k") or 0,
        top_p=fields.number("top_p", 1.0),
        min_p=fields.number("min_p", 0.0),
        seed=fields.integer("seed"),
        repetition_penalty=penalty,
        logit_bias=_logit_bias(fields),
        eos_token_id=() if fields.flag("ignore_eos") else None,
        stop_token_ids=tuple(stop_tokens),
        stop=tuple(stop),
        top_logprobs=_top_logprobs(fields) if is_chat else None,
    )


def _top_logprobs(fields: Fields) -> int | None:
    count = fields.integer("top_logprobs")
    if not fields.flag("logprobs"):
        if count:
            raise fields.error("top_logprobs", "0 without logprobs: true")
        return None
    return count or 0


def _schema(fields: Fields) -> Mapping[str, Any] | None:
    """Return the JSON schema of `response_format`; `None` for texts of any kind."""
    is_object = lambda each: isinstance(each, dict)  # noqa: E731
    value: dict[str, Any] = fields.optional("response_format", is_object, "an object", {"type": "text"})
    form = Fields(value, "response_format.")
    kind = form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise form.error("type", '"text", "json_object" or "json_schema"')
    definition: dict[str, Any] | None = form.optional("json_schema", is_object, "an object", None)
    form.check_unknown()
    if kind != "json_schema":
        return None if kind == "text" else {"type": "object"}
    inner = Fields(definition or {}, "response_format.json_schema.")
    for name in ("name", "description"):
        inner.optional(name, is_text, "a string", None)
    inner.flag("strict")  # texts follow the schema in any case
    schema: dict[str, Any] | None = inner.optional("schema", is_object, "an object", None)
    inner.check_unknown()
    if schema is None:
        raise inner.error("schema", "an object")
    return schema


def _logit_bias(fields: Fields) -> dict[int, float]:
    value: dict[str, Any] = fields.optional("logit_bias", lambda each: isinstance(each, dict), "an object", {})
    is_valid = len(value) <= MAX_LOGIT_BIASES and all(
        token.isascii() and token.isdigit() and len(token) < 12 and is_number(bias) for token, bias in value.items()
    )
    if not is_valid:
        raise fields.error("logit_bias", f"an object of up to {MAX_LOGIT_BIASES} tokens and numbers")
    return {int(token): float(bias) for token, bias in value.items()}


def _stream_options(fields: Fields) -> bool:
    value: dict[str, Any] = fields.optional("stream_options", lambda each: isinstance(each, dict), "an object", {})
    options = Fields(value, "stream_options.")
    has_usage = options.flag("include_usage")
    options.check_unknown()
    return has_usage


# --------------------------------------------------------------------------------------- responses


@frozen
class ResponseFormat:
    """Bodies of responses to one request.

    Attributes:
        model: The name of the model.
        is_chat: Whether choices are messages.
        id: The name of the response.
        created: The time in seconds.
    """

    model: str
    is_chat: bool
    id: str = field(init=False)
    created: int = field(factory=lambda: int(time.time()), init=False)

    @id.default
    def _make_id(self) -> str:
        return f"{'chatcmpl' if self.is_chat else 'cmpl'}-{secrets.token_hex(12)}"

    def _body(self, kind: str, choices: Sequence[Any], **others: Any) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices, **others}

    def result(self, choices: Sequence[tuple[str, str, Any]], usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the body of a response without a stream, of texts, reasons of their ends, and `logprobs_of` them or `None`."""
        if self.is_chat:
            bodies = [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": text},
                    "logprobs": logprobs,
                    "finish_reason": reason,
                }
                for index, (text, reason, logprobs) in enumerate(choices)
            ]
            return self._body("chat.completion", bodies, usage=usage)
        bodies = [
            {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
            for index, (text, reason, _) in enumerate(choices)
        ]
        return self._body("text_completion", bodies, usage=usage)

    def role(self, index: int) -> dict[str, Any]:
        """Return the first event of a choice of a chat."""
        return self._event({"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def delta(self, index: int, text: str, reason: str | None, logprobs: Any = None) -> dict[str, Any]:
        """Return the event of a new text."""
        if self.is_chat:
            choice = {"index": index, "delta": {"content": text} if text else {}, "finish_reason": reason}
            return self._event(choice if logprobs is None else {**choice, "logprobs": logprobs})
        return self._event({"index": index, "text": text, "logprobs": None, "finish_reason": reason})

    def _event(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self._body("chat.completion.chunk" if self.is_chat else "text_completion", [choice])

    def usage(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the last event, of the numbers of tokens."""
        return self._body("chat.completion.chunk" if self.is_chat else "text_completion", [], usage=usage)


def logprobs_of(tokens: Sequence[TokenLogprob], text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the field `logprobs` of a choice of a chat. A token that is part of a character has no bytes."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = text_of(token)
        is_part = REPLACEMENT in text
        # JSON has no infinity.
        finite = max(logprob, MIN_LOGPROB)
        return {"token": text, "logprob": finite, "bytes": None if is_part else list(text.encode())}

    content = [
        {**entry(each.token, each.logprob), "top_logprobs": [entry(*top) for top in each.top]} for each in tokens
    ]
    return {"content": content, "refusal": None}


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return the numbers of tokens; `cached_tokens` of the prompts were not processed."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
