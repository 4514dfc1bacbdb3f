"""The metadata of a GGUF file that describe the tokenizer of a checkpoint folder: `tokenizer.json` as `tokenizer.ggml.*`.

Byte-pair encoding of bytes is `gpt2`, with the expression that divides texts. Byte-pair encoding with a fallback to bytes is
`llama`: SentencePiece's scores, which `tokenizer.json` does not have, are the ranks of the merges.

Source:
    convert_hf_to_gguf.py of github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlx_core.errors import Fact, FormatError, RlxError, UnsupportedError
from rlx_models.chat import template_of_folder, token_text
from rlx_models.checkpoints.folder import read_json
from rlx_models.gguf.tokenizer import CONTROL, LLAMA3, PRE_TOKENIZERS, QWEN2, UNKNOWN, USER, merges_by_score

NORMAL, UNUSED, BYTE = 1, 5, 6
"""Types of tokens, in addition to those of `tokenizer`."""
BYTE_TOKEN: Final = re.compile("<0x[0-9A-F]{2}>")
LABELS: Final = {None: "gpt-2", LLAMA3: "llama-bpe", QWEN2: "qwen2"}
"""`tokenizer.ggml.pre` by expression."""
END_NAMES: Final = ("eos", "eot", "eom")


def tokenizer_metadata(folder: Path, vocab_size: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a folder's tokenizer and template of chats; empty without `tokenizer.json`.

    Up to three tokens that end texts are kept.

    Args:
        folder: The checkpoint.
        vocab_size: Rows of the embedding; numbers without a token get an unused one.
        options: `config.json` and `generation_config.json`, whose `eos_token_id` and `bos_token_id` are read.

    Raises:
        UnsupportedError: GGUF files cannot describe the tokenizer.
        FormatError: Its parts do not fit each other.
    """
    if not (folder / "tokenizer.json").is_file():
        return {}
    content = read_json(folder, "tokenizer.json")
    config = read_json(folder, "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    try:
        result = _metadata(content, config, vocab_size, options)
    except RlxError as error:
        raise error.with_fact(Fact("file", folder / "tokenizer.json")) from None
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise FormatError(
            f"tokenizer.json: is no tokenizer of the package tokenizers ({error!r:.100})", Fact("folder", folder)
        ) from error
    template = template_of_folder(folder)
    return result if template is None else {**result, "tokenizer.chat_template": template.source}


def _metadata(
    content: Mapping[str, Any], config: Mapping[str, Any], vocab_size: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    model = content["model"]
    if model.get("type") != "BPE":
        raise UnsupportedError(
            f"gguf: the tokenizer {model.get('type')!r:.40} has no form in GGUF files", hint="BPE has one"
        )
    added = {each["id"]: each for each in content.get("added_tokens", [])}
    tokens = tokens_by_id({**model["vocab"], **{each["content"]: index for index, each in added.items()}}, vocab_size)
    ids = {token: index for index, token in enumerate(tokens)}
    types = np.full(len(tokens), NORMAL, np.int32)
    known = {*model["vocab"].values(), *added}
    types[[index for index in range(len(tokens)) if index not in known]] = UNUSED
    pairs = [tuple(each.split(" ")) if isinstance(each, str) else tuple(each) for each in model["merges"]]
    if model.get("byte_fallback"):
        kind: dict[str, Any] = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
        kind["tokenizer.ggml.scores"] = scores_of(model["vocab"], pairs, len(tokens))
        kind["tokenizer.ggml.add_space_prefix"] = has_space_prefix(content)
        types[[ids[token] for token in model["vocab"] if BYTE_TOKEN.fullmatch(token)]] = BYTE
    else:
        kind = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": division_of(content)}
        kind["tokenizer.ggml.merges"] = [" ".join(pair) for pair in pairs]
    for index, each in added.items():
        types[index] = CONTROL if each.get("special") else USER
    if model.get("unk_token") in ids:
        types[ids[model["unk_token"]]] = UNKNOWN
        kind["tokenizer.ggml.unknown_token_id"] = ids[model["unk_token"]]
    return {
        **kind,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        **_ends(content, config, ids, options),
    }


def tokens_by_id(vocabulary: Mapping[str, int], vocab_size: int) -> list[str]:
    """Return the tokens in order; numbers without one are `[PAD7]`.

    Raises:
        FormatError: A number is used twice, or is not below the rows of the embedding.
    """
    by_id: dict[int, str] = {}
    for token, index in vocabulary.items():
        if not isinstance(index, int) or not 0 <= index < vocab_size:
            raise FormatError(f"gguf: the token {token!r:.40} is number {index!r:.20} of {vocab_size}")
        if index in by_id:
            raise FormatError(f"gguf: the tokens {by_id[index]!r:.40} and {token!r:.40} are both number {index}")
        by_id[index] = token
    return [by_id.get(index, f"[PAD{index}]") for index in range(vocab_size)]


def scores_of(vocabulary: Mapping[str, int], pairs: list[tuple[str, ...]], count: int) -> np.ndarray:
    """Return a score for each token, f32[count], in whose descending order pairs merge to pieces as the ranks of merges say.

    Raises:
        UnsupportedError: Merges are not in the order of the pieces that they make, so that there are no such scores.
    """
    ranks: dict[str, int] = {}
    for pair in pairs:
        ranks.setdefault("".join(pair), len(ranks))
    scores = np.zeros(count, np.float32)
    for token, index in vocabulary.items():
        scores[index] = -ranks.get(token, len(ranks) if not BYTE_TOKEN.fullmatch(token) else 0)
    expected = merges_by_score(vocabulary, scores)
    order = list(dict.fromkeys("".join(pair) for pair in expected))
    if order != list(ranks) or set(expected) != set(pairs):
        raise UnsupportedError(
            "gguf: the merges of the tokenizer are not those of pieces with scores, as SentencePiece has them"
        )
    return scores


def division_of(content: Mapping[str, Any]) -> str:
    """Return `tokenizer.ggml.pre` of a tokenizer of bytes.

    Raises:
        UnsupportedError: There is no name for its division of texts.
    """
    division = content.get("pre_tokenizer") or {}
    parts = division.get("pretokenizers", [division])
    splits = [part for part in parts if part.get("type") == "Split"]
    last = parts[-1] if parts else {}
    expression = splits[0]["pattern"].get("Regex") if splits else None
    is_known = (
        expression in LABELS
        and last.get("type") == "ByteLevel"
        and not last.get("add_prefix_space")
        and len(parts) == 1 + len(splits)
        and len(splits) <= 1
        and last.get("use_regex", True) == (expression is None)
    )
    normalizer = (content.get("normalizer") or {}).get("type")
    if (
        not is_known
        or normalizer != ("NFC" if expression == QWEN2 else None)
        or bool(content["model"].get("ignore_merges")) != (expression == LLAMA3)
    ):
        raise UnsupportedError(
            "gguf: the tokenizer's division of texts has no name in GGUF files",
            Fact("pre_tokenizer", f"{division!r:.200}"),
            Fact("normalizer", normalizer),
            hint=f"named are those of {', '.join(PRE_TOKENIZERS)}",
        )
    return LABELS[expression]


def parts_of(content: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects with a type within a part of a tokenizer."""
    if isinstance(content, dict):
        if "type" in content:
            yield content
        for each in content.values():
            yield from parts_of(each)
    elif isinstance(content, list):
        for each in content:
            yield from parts_of(each)


def has_space_prefix(content: Mapping[str, Any]) -> bool:
    """Return whether texts begin with a space that they do not have."""
    parts = [*parts_of(content.get("normalizer")), *parts_of(content.get("pre_tokenizer"))]
    spaces = [part for part in parts if part["type"] == "Metaspace"]
    return any(part["type"] == "Prepend" for part in parts) or any(
        part.get("prepend_scheme", "always") != "never" for part in spaces
    )


def _ends(
    content: Mapping[str, Any], config: Mapping[str, Any], ids: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the tokens that begin, end and pad texts, and whether the tokenizer adds them."""
    added = added_ends(content)
    named = {name: ids.get(str(token_text(config.get(f"{name}_token")))) for name in ("bos", "eos", "pad")}
    ends = options.get("eos_token_id")
    listed = [added["eos"], named["eos"], *(ends if isinstance(ends, list) else [ends])]
    numbers = list(dict.fromkeys(number for number in listed if isinstance(number, int)))
    begins = [added["bos"], named["bos"], options.get("bos_token_id")]
    begin = next((number for number in begins if isinstance(number, int)), None)
    result: dict[str, Any] = {
        f"tokenizer.ggml.{name}_token_id": number for name, number in zip(END_NAMES, numbers, strict=False)
    }
    result |= {} if begin is None else {"tokenizer.ggml.bos_token_id": begin}
    result |= {} if named["pad"] is None else {"tokenizer.ggml.padding_token_id": named["pad"]}
    return {
        **result,
        "tokenizer.ggml.add_bos_token": added["bos"] is not None,
        "tokenizer.ggml.add_eos_token": added["eos"] is not None,
    }


def added_ends(content: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the tokens that a tokenizer adds to the beginning and the end of a text, or `None`."""
    templates = [part for part in parts_of(content.get("post_processor")) if part["type"] == "TemplateProcessing"]
    if not templates:
        return {"bos": None, "eos": None}
    single, tokens = templates[0]["single"], templates[0]["special_tokens"]
    labels = {"bos": single[0].get("SpecialToken"), "eos": single[-1].get("SpecialToken")}
    return {name: None if label is None else tokens[label["id"]]["ids"][0] for name, label in labels.items()}
