"""The tokenizer that the metadata of a GGUF file describe, as one of the package `tokenizers`.

`gpt2` is byte-pair encoding of bytes with a list of merges. `llama` is SentencePiece's: pieces have scores, the adjacent pair
whose concatenation has the highest score is merged first, and characters without a piece are bytes.

Source:
    The converters of Transformers 5.24 (`convert_slow_tokenizer`), and llama-vocab.cpp of github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rlx_core.errors import FormatError, UnsupportedError
from rlx_models.tokenizers import Tokenizer, import_tokenizers

UNKNOWN, CONTROL, USER = 2, 3, 4
"""Types of tokens."""
MAX_TOKEN_LENGTH: Final = 1024
"""Characters of a piece with a score, whose divisions are all tried."""
SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"

LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2: Final = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PRE_TOKENIZERS: Final = {
    **dict.fromkeys(("gpt-2", "gpt2"), None),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), QWEN2),
}
"""The expression that divides texts, by `tokenizer.ggml.pre`; `None` for the one of GPT-2."""


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer.

    Raises:
        PluginError: The package tokenizers is not installed.
        UnsupportedError: It is of another kind.
        FormatError: Its tokens are missing, or the metadata do not fit each other.
    """
    library = import_tokenizers()
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(
            f"gguf: the tokenizer {kind!r:.40} is not supported", hint="supported are gpt2 and llama"
        )
    tokens, types = _tokens(metadata), metadata.get("tokenizer.ggml.token_type")
    if types is not None and not _is_array(types, len(tokens), "iu"):
        raise FormatError(f"gguf: `tokenizer.ggml.token_type` is no list of {len(tokens)} integers")
    numbers = [1] * len(tokens) if types is None else [int(each) for each in types]
    try:
        make = _byte_pairs if kind == "gpt2" else _pieces
        tokenizer = make(library, metadata, tokens, numbers)
        added = [
            library.AddedToken(token, special=number == CONTROL, normalized=False)
            for token, number in zip(tokens, numbers, strict=True)
            if number in (CONTROL, USER)
        ]
        tokenizer.add_tokens(added)
        _add_ends(library, tokenizer, metadata, tokens)
    except (FormatError, UnsupportedError):
        raise
    except Exception as error:  # noqa: BLE001 the package raises bare exceptions
        raise FormatError(f"gguf: the metadata do not describe a tokenizer ({error!s:.200})") from None
    result: Tokenizer = tokenizer
    return result


def _tokens(metadata: Mapping[str, Any]) -> list[str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(each, str) for each in tokens):
        raise FormatError("gguf: `tokenizer.ggml.tokens` is no list of texts")
    if len(set(tokens)) != len(tokens):
        raise FormatError("gguf: `tokenizer.ggml.tokens` has a token twice")
    return tokens


def _is_array(value: Any, length: int, kinds: str) -> bool:
    return isinstance(value, np.ndarray) and value.shape == (length,) and value.dtype.kind in kinds


def _byte_pairs(library: Any, metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> Any:
    merges = metadata.get("tokenizer.ggml.merges", [])
    pairs = [tuple(each.split(" ")) for each in merges if isinstance(each, str)] if isinstance(merges, list) else None
    if pairs is None or len(pairs) != len(merges) or any(len(pair) != 2 for pair in pairs):
        raise FormatError("gguf: `tokenizer.ggml.merges` is no list of two tokens with a space between them")
    label = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if label not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"gguf: the division of texts {label!r:.40} (`tokenizer.ggml.pre`) is not supported",
            hint=f"supported are {', '.join(PRE_TOKENIZERS)}",
        )
    expression = PRE_TOKENIZERS[label]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    model = library.models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=expression is LLAMA3)
    tokenizer = library.Tokenizer(model)
    division = library.pre_tokenizers
    if expression is None:
        tokenizer.pre_tokenizer = division.ByteLevel(add_prefix_space=False)
    else:
        split = division.Split(library.Regex(expression), behavior="isolated")
        tokenizer.pre_tokenizer = division.Sequence(
            [split, division.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    if expression is QWEN2:
        tokenizer.normalizer = library.normalizers.NFC()
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _pieces(library: Any, metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> Any:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or not _is_array(scores, len(tokens), "f"):
        raise FormatError(f"gguf: `tokenizer.ggml.scores` is no list of {len(tokens)} floats")
    if max(map(len, tokens)) > MAX_TOKEN_LENGTH:
        raise FormatError(f"gguf: a token has more than {MAX_TOKEN_LENGTH} characters")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = next((token for token, number in zip(tokens, types, strict=True) if number == UNKNOWN), None)
    model = library.models.BPE(
        vocab=vocabulary,
        merges=merges_by_score(vocabulary, scores),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = library.Tokenizer(model)
    has_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    normalizers, decoders = library.normalizers, library.decoders
    prefix = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def merges_by_score(vocabulary: Mapping[str, int], scores: np.ndarray) -> list[tuple[str, str]]:
    """Return the pairs whose concatenation is a piece, in descending order of its score."""
    pairs = []
    for token, index in vocabulary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                pairs.append((-float(scores[index]), index, vocabulary[left], left, right))
    return [(left, right) for *_, left, right in sorted(pairs)]


def _add_ends(library: Any, tokenizer: Any, metadata: Mapping[str, Any], tokens: list[str]) -> None:
    """Let the tokenizer add the tokens that begin and end texts, where the metadata say so."""
    kind, label = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre")
    begins = kind == "llama" or PRE_TOKENIZERS.get(str(label)) is LLAMA3
    ends = {}
    for name, default in (("bos", begins), ("eos", False)):
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if not metadata.get(f"tokenizer.ggml.add_{name}_token", default) or index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise FormatError(
                f"gguf: `tokenizer.ggml.{name}_token_id` is {index!r:.40}, and there are {len(tokens)} tokens"
            )
        ends[name] = (tokens[index], index)
    if ends:
        # By numbers instead of texts, in which `:` and `$` have a meaning.
        template = ["$0", *(name for name in ends if name == "eos")]
        single = [*(name for name in ends if name == "bos"), *template]
        special = [{"id": name, "ids": [index], "tokens": [token]} for name, (token, index) in ends.items()]
        tokenizer.post_processor = library.processors.TemplateProcessing(single=single, special_tokens=special)
