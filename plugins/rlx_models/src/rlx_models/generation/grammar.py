"""Grammars: the tokens that may follow in a text, so that it is a prefix of a JSON document, by llguidance (the extra `grammar`).

Source:
    Willard and Louf 2023, "Efficient Guided Generation for Large Language Models", arXiv:2307.09702: a mask over the vocabulary
    for each state of an automaton. llguidance (github.com/guidance-ai/llguidance) computes it for regular lexemes and a
    context-free grammar, byte by byte, so that tokens may end within a lexeme or a character.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

import numpy as np
from attrs import field, frozen

from rlx_core.errors import ConfigError, Fact, FormatError, PluginError, UnsupportedError

SUBSCHEMAS: Final = frozenset({"items", "additionalProperties"})
"""Keywords whose value is a schema."""
SCHEMA_LISTS: Final = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
"""Keywords whose value is a list of schemas."""
SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keywords whose value is an object of schemas."""
ASSERTIONS: Final = frozenset(
    {
        *("type", "enum", "const", "$ref", "required", "minProperties", "maxProperties", "minItems", "maxItems"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
"""Other keywords that restrict values."""
ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"}
)
"""Keywords without an effect on values."""
KEYWORDS: Final = SUBSCHEMAS | SCHEMA_LISTS | SCHEMA_MAPS | ASSERTIONS | ANNOTATIONS

MAX_SCHEMA_DEPTH: Final = 64
"""Schemas within schemas."""
END: Final = "<|end of the grammar's text|>"
"""A token that is added to a copy of the tokenizer. It may follow when the text is complete; no model generates it."""
WHITESPACE: Final = r"[\x20\x0A\x0D\x09]{1,32}"
"""Whitespace between two lexemes: limited, because models may repeat it without end."""


class GrammarState(Protocol):
    """The state of one text."""

    def mask(self) -> np.ndarray:
        """Return the mask bool[vocab_size] of the tokens that may follow. Tokens that end a text are not among them.

        Raises:
            ConfigError: The grammar is too complex.
        """

    def advance(self, token: int) -> None:
        """Add a token of the mask to the text."""

    @property
    def is_complete(self) -> bool:
        """Whether the text is a text of the grammar, so that it may end."""


class Grammar(Protocol):
    """The texts that a model may generate."""

    def start(self, vocab_size: int) -> GrammarState:
        """Return the state of the empty text, for a model whose logits are f32[batch, vocab_size]."""


@frozen(eq=False)
class GrammarCompiler:
    """Compiler of JSON schemas for one tokenizer, whose tokens it reads once: about a second for 100,000 tokens.

    Attributes:
        tokenizer: A tokenizer of the package tokenizers, whose tokens are texts or bytes (`ByteLevel`, `ByteFallback`).

    Raises:
        PluginError: The package llguidance is not installed.
        ConfigError: The tokenizer is missing, or one of another package.
        UnsupportedError: The bytes of its tokens are not known.
    """

    tokenizer: Any = field(repr=False)
    _table: Any = field(init=False, repr=False)

    @_table.default
    def _read_tokens(self) -> Any:
        llguidance = import_llguidance()
        # A tokenizer of Transformers has the one of the package tokenizers.
        tokenizer = getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)
        if not hasattr(tokenizer, "to_str"):
            raise ConfigError(
                f"grammar: a grammar needs the model's tokenizer, not {type(self.tokenizer).__name__}",
                hint='tokenizers.Tokenizer.from_file("tokenizer.json")',
            )
        copy = type(tokenizer).from_str(tokenizer.to_str())
        copy.add_special_tokens([END])
        try:
            return llguidance.LLTokenizer(copy.to_str(), eos_token=copy.token_to_id(END))
        except ValueError as error:
            raise UnsupportedError(
                f"grammar: the bytes of the tokenizer's tokens are not known ({error!s:.200})"
            ) from None

    def json_grammar(self, schema: Mapping[str, Any] | None = None) -> Grammar:
        """Return the grammar of the JSON documents of a schema; see `json_grammar`.

        Raises:
            UnsupportedError: The schema has a keyword that is not supported, or too many schemas within each other.
            FormatError: It is not a JSON schema, or no document satisfies it.
        """
        schema = {"type": "object"} if schema is None else schema
        _check_keywords(schema, "")
        matcher = import_llguidance().LLMatcher
        options = {"whitespace_pattern": WHITESPACE, "lenient": False}
        try:
            text = matcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
        except (TypeError, ValueError, RecursionError) as error:
            raise FormatError(f"grammar: the schema is not JSON ({error!s:.200})") from None
        return JsonGrammar(text, self._table)


def json_grammar(tokenizer: Any, schema: Mapping[str, Any] | None = None) -> Grammar:
    """Return the grammar of JSON documents, for `generate(..., grammar=)`.

    A text of it is a prefix of a document at each token, and a whole one when the model ends it. Properties are in the order of
    the schema. Objects may have further properties, as in JSON Schema, unless `additionalProperties` is false.

    Args:
        tokenizer: The model's tokenizer, of the package tokenizers. `GrammarCompiler` reads it once for several grammars.
        schema: A JSON schema; by default the documents are all objects. Supported are `type`, `enum`, `const`, `properties`,
            `required`, `additionalProperties`, `patternProperties`, `minProperties`, `maxProperties`, `items`, `prefixItems`,
            `minItems`, `maxItems`, `anyOf`, `oneOf` (of disjoint schemas), `allOf`, `$ref` within the schema, `pattern`,
            `format`, and limits of lengths and numbers.

    Raises:
        PluginError: The package llguidance is not installed.
        ConfigError: The tokenizer is missing, or one of another package.
        UnsupportedError: The schema has a keyword that is not supported, or the tokenizer is of an unknown kind.
        FormatError: It is not a JSON schema, or no document satisfies it.

    >>> schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    >>> generate(model, [prompt], 50, grammar=json_grammar(tokenizer, schema))                      # doctest: +SKIP
    """
    return GrammarCompiler(tokenizer).json_grammar(schema)


def import_llguidance() -> Any:
    """Return the package llguidance.

    Raises:
        PluginError: It is not installed.
    """
    try:
        import llguidance
    except ImportError:
        raise PluginError(
            "grammar: the package llguidance is not installed", hint="python -m pip install 'rlx-models[grammar]'"
        ) from None
    return llguidance


def _check_keywords(schema: Any, path: str, depth: int = 0) -> None:
    """Raise an `UnsupportedError` for a keyword that is not supported: JSON Schema would ignore a misspelt one."""
    if depth > MAX_SCHEMA_DEPTH:
        raise UnsupportedError(f"grammar: more than {MAX_SCHEMA_DEPTH} schemas are within each other")
    if not isinstance(schema, Mapping):
        if isinstance(schema, bool) and depth:
            return
        raise FormatError(f"grammar: the schema{path and ' ' + path} must be an object, not {schema!r:.40}")
    for keyword, value in schema.items():
        if keyword not in KEYWORDS:
            hint = "see json_grammar for the supported ones"
            raise UnsupportedError(
                f"grammar: the keyword {keyword!r:.40} is not supported", Fact("schema", path or "/"), hint=hint
            )
        name = f"{path}/{keyword}"
        if keyword in SUBSCHEMAS:
            _check_keywords(value, name, depth + 1)
        elif keyword in SCHEMA_LISTS or keyword in SCHEMA_MAPS:
            kind = list if keyword in SCHEMA_LISTS else Mapping
            if not isinstance(value, kind):
                noun = "a list" if kind is list else "an object"
                raise FormatError(f"grammar: {name} must be {noun} of schemas, not {value!r:.40}")
            for key, each in enumerate(value) if isinstance(value, list) else value.items():
                _check_keywords(each, f"{name}/{key}", depth + 1)


class JsonGrammar:
    """A `Grammar` of llguidance."""

    def __init__(self, text: str, table: Any) -> None:
        self._table = table
        self._initial = import_llguidance().LLMatcher(table, text, log_level=0)
        if self._initial.is_error():
            message = f"grammar: the schema is not supported: {self._initial.get_error().splitlines()[0]:.200}"
            is_unsupported = "nimplemented" in message or "nknown" in message
            raise (UnsupportedError if is_unsupported else FormatError)(message)

    def start(self, vocab_size: int) -> GrammarState:
        return _JsonState(self._initial.deep_copy(), self._table.eos_token, vocab_size)


class _JsonState:
    def __init__(self, matcher: Any, end: int, vocab_size: int) -> None:
        self._matcher, self._end, self._vocab_size = matcher, end, vocab_size

    def mask(self) -> np.ndarray:
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little").astype(
            np.bool_
        )
        self._check()
        result = np.zeros(max(self._vocab_size, len(bits)), np.bool_)
        result[: len(bits)] = bits
        result[self._end] = False
        return result[: self._vocab_size]

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConfigError(f"grammar: {self._matcher.get_error().splitlines()[0]:.200}")

    @property
    def is_complete(self) -> bool:
        return bool(self._matcher.is_accepting())


class ConstrainedText:
    """A text that is generated by a grammar.

    Args:
        end_tokens: Tokens that end the text; they may follow when it is complete, and at no other place.
    """

    def __init__(self, grammar: Grammar, vocab_size: int, end_tokens: Collection[int]) -> None:
        self.vocab_size = vocab_size
        self._state = grammar.start(vocab_size)
        self._end_tokens = [token for token in end_tokens if token < vocab_size]
        self._mask = self._state.mask()

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete, and no token may follow but one that ends it."""
        return self._state.is_complete and not self._mask.any()

    def excluded(self, suppressed: np.ndarray | None) -> np.ndarray:
        """Return the mask bool[vocab_size] of the tokens that must not follow: those of the grammar, and suppressed ones.

        Raises:
            ConfigError: No token may follow.
        """
        result = ~self._mask
        result[self._end_tokens] = not self._state.is_complete
        if suppressed is not None:
            result |= suppressed
        if result.all():
            raise ConfigError(
                "grammar: no token may follow, and the text is not complete",
                hint="the tokens that the grammar needs are suppressed, or not in the vocabulary",
            )
        return result

    def advance(self, token: int) -> None:
        """Add a token, unless it ends the text."""
        if token not in self._end_tokens:
            self._state.advance(token)
            self._mask = self._state.mask()
