"""Texts by a grammar: a text is a prefix of a text of the grammar at each token, and ends when it is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written

import rlx_core as rlx
from rlx_core.errors import ConfigError, FormatError, UnsupportedError
from rlx_models import PretrainedModel, from_pretrained, generate
from rlx_models.serving import RequestOptions, ServingEngine

SCHEMA = {
    "type": "object",
    "title": "A person",
    "properties": {
        "name": {"enum": ["Ada", "Émilie"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "is_known": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 1, "maxItems": 2},
        "kind": {"const": {"x": [1]}},
        "none": {"type": "null"},
    },
    "required": ["name", "age", "is_known", "tags", "kind", "none"],
    "additionalProperties": False,
}


class AlternatingGrammar:
    """Texts (3 | 4) 5 (3 | 4) 5 … of at most `maximum` pairs, complete after each pair."""

    def __init__(self, maximum: int = 3) -> None:
        self.maximum = maximum

    def start(self, vocab_size: int) -> AlternatingState:
        return AlternatingState(vocab_size, self.maximum)


class AlternatingState:
    def __init__(self, vocab_size: int, maximum: int) -> None:
        self.vocab_size, self.maximum, self.tokens = vocab_size, maximum, list[int]()

    def mask(self) -> np.ndarray:
        result = np.zeros(self.vocab_size, np.bool_)
        if len(self.tokens) < 2 * self.maximum:
            result[[5] if len(self.tokens) % 2 else [3, 4]] = True
        return result

    def advance(self, token: int) -> None:
        assert self.mask()[token]
        self.tokens.append(token)

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) > 0 and len(self.tokens) % 2 == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return from_pretrained(written(tmp_path_factory.mktemp("llama") / "m", CONFIGS["llama"]))


@pytest.mark.medium
def test_texts_follow_the_grammar_and_end_when_they_are_complete(model: PretrainedModel) -> None:
    """One grammar for prompts of different lengths, with and without sampling."""
    prompts = [[1], [2, 6, 3], [8] * 17]
    for sampling in ({}, {"key": rlx.random.key(3), "temperature": 5.0}):
        texts = generate(model, prompts, 20, eos_token_id=(), grammar=AlternatingGrammar(), **sampling)
        assert all(text[1::2] == [5] * 3 and set(text[::2]) <= {3, 4} and len(text) == 6 for text in texts)
    ended = generate(model, prompts, 20, eos_token_id=9, key=rlx.random.key(1), grammar=AlternatingGrammar(10))
    assert all(len(text) % 2 and text[-1] == 9 for text in ended if len(text) < 20), "after a pair only"
    assert any(len(text) < 20 for text in ended)
    (text,) = generate(model, prompts[:1], 3, eos_token_id=9, grammar=AlternatingGrammar(), suppress_tokens=[3, 9])
    assert text == [4, 5, 4], "suppressed tokens are excluded, too"


@pytest.mark.medium
def test_no_token_that_may_follow_is_an_error(model: PretrainedModel) -> None:
    with pytest.raises(ConfigError, match="no token may follow"):
        generate(model, [[1]], 4, grammar=AlternatingGrammar(), suppress_tokens=[5])


@pytest.mark.medium
def test_requests_of_the_engine_have_grammars(model: PretrainedModel) -> None:
    """Next to requests without one, whose tokens are unchanged; a request without a next token ends with an error."""
    engine = ServingEngine(model, max_batch=4)
    constrained = RequestOptions(max_new_tokens=9, eos_token_id=(), grammar=AlternatingGrammar())
    sampled = RequestOptions(max_new_tokens=9, eos_token_id=(), grammar=AlternatingGrammar(9), temperature=4.0, seed=5)
    free = RequestOptions(max_new_tokens=9, eos_token_id=())
    failing = RequestOptions(max_new_tokens=9, grammar=AlternatingGrammar(), eos_token_id=5)
    requests = [engine.submit([1, 2], each) for each in (constrained, free, sampled, failing)]
    while engine.step():
        pass
    (expected,) = generate(model, [[1, 2]], 9, eos_token_id=(), grammar=AlternatingGrammar())
    assert (requests[0].tokens, requests[0].finish_reason) == (expected, "stop")
    assert requests[1].tokens == generate(model, [[1, 2]], 9, eos_token_id=())[0]
    options: dict[str, Any] = {"key": rlx.random.key(5), "temperature": 4.0, "grammar": AlternatingGrammar(9)}
    assert [requests[2].tokens] == generate(model, [[1, 2]], 9, eos_token_id=(), **options)
    assert requests[3].finish_reason == "error"
    assert isinstance(requests[3].error, ConfigError)
    assert engine.status().active == 0


# -------------------------------------------------------------------------------------- JSON, by llguidance


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("llguidance", reason="python -m pip install 'rlx-models[grammar]'")
    from byte_letters import byte_tokenizer  # it needs tokenizers

    return byte_tokenizer()


@pytest.fixture(scope="module")
def byte_model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    from byte_letters import written_bytes

    return from_pretrained(written_bytes(tmp_path_factory.mktemp("bytes") / "m"))


@pytest.mark.medium
def test_json_documents_satisfy_their_schema(byte_model: PretrainedModel, tokenizer: Any) -> None:
    """A model with random weights, sampled at a high temperature, writes valid documents. Whitespace is suppressed."""
    from rlx_models import json_grammar

    prompts: Sequence[list[int]] = [tokenizer.encode(each).ids for each in ("a", "person: ", "{") * 3]
    whitespace = tokenizer.encode(" \n\r\t").ids
    texts = generate(
        byte_model, prompts, 200, key=rlx.random.key(0), temperature=3.0, suppress_tokens=whitespace,
        grammar=json_grammar(tokenizer, SCHEMA),
    )  # fmt: skip
    documents = [json.loads(tokenizer.decode(text)) for text in texts]
    for document in documents:
        assert list(document) == SCHEMA["required"]
        assert document["name"] in ("Ada", "Émilie")
        assert isinstance(document["age"], int)
        assert 0 <= document["age"] <= 150
        assert isinstance(document["is_known"], bool)
        assert 1 <= len(document["tags"]) <= 2
        assert all(each is None or isinstance(each, int | float) for each in document["tags"])
        assert (document["kind"], document["none"]) == ({"x": [1]}, None)
    assert len({json.dumps(document) for document in documents}) > 1


def test_any_object_is_the_grammar_without_a_schema(tokenizer: Any) -> None:
    """Every prefix of a document is accepted byte by byte; the text is complete at its end only, and nothing follows."""
    from rlx_models import json_grammar

    state = json_grammar(tokenizer).start(300)
    for token in tokenizer.encode('{"ä\\n": [1.5e3, {}, "x"], "b": true}').ids:
        mask = state.mask()
        assert mask.shape == (300,)
        assert mask[token]
        assert not state.is_complete
        assert not mask[256:].any(), "neither the token that ends texts nor the padding of the vocabulary"
        state.advance(token)
    assert state.is_complete
    assert not state.mask().any()
    other = json_grammar(tokenizer).start(300)
    assert not other.mask()[tokenizer.encode("[").ids].any()


def test_unsupported_schemas_are_errors_with_the_keyword(tokenizer: Any) -> None:
    from rlx_models import json_grammar

    nested: list[Any] = []
    for _ in range(2000):
        nested = [nested]
    cases: list[tuple[Any, type[Exception], str]] = [
        ({"requird": ["a"]}, UnsupportedError, "'requird'"),
        ({"properties": {"a": {"not": {}}}}, UnsupportedError, "'not'"),
        ({"items": {"uniqueItems": True}}, UnsupportedError, "'uniqueItems'"),
        ({"x-guidance": {"lenient": True}}, UnsupportedError, "'x-guidance'"),
        ({"type": "string", "format": "verse"}, UnsupportedError, "verse"),
        ({"type": "text"}, FormatError, "text"),
        ({"properties": []}, FormatError, "/properties must be an object"),
        ({"anyOf": {}}, FormatError, "/anyOf must be a list"),
        ({"items": 3}, FormatError, "/items must be an object"),
        ({"const": 1, "type": "string"}, FormatError, "Unsatisfiable"),
        ({"const": float("nan")}, FormatError, "JSON"),
        ({"const": nested}, FormatError, "JSON"),
        (True, FormatError, "must be an object"),
    ]
    for schema, kind, message in cases:
        with pytest.raises(kind, match=message):
            json_grammar(tokenizer, schema)
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"items": deep}
    with pytest.raises(UnsupportedError, match="within each other"):
        json_grammar(tokenizer, deep)


def test_the_tokenizer_must_be_one_whose_bytes_are_known(tokenizer: Any) -> None:
    from letters import letter_tokenizer

    from rlx_models import json_grammar

    with pytest.raises(ConfigError, match="needs the model's tokenizer, not NoneType"):
        json_grammar(None)
    with pytest.raises(UnsupportedError, match="bytes of the tokenizer's tokens"):
        json_grammar(letter_tokenizer())
