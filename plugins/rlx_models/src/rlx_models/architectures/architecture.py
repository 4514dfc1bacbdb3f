"""`Architecture`: the tensors, inputs and programs of a model type with the sizes of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

import rlx_core as rlx
from rlx_models.checkpoints import Shapes

CacheEntry = tuple[tuple[int | None, int], tuple[int | None, int]]
"""Rows and features of the two arrays f32[batch, rows, features] that a cache has for a layer; `None`: one row per token."""


@frozen
class Decoding:
    """The programs of autoregressive generation.

    Attributes:
        step: `step(parameters, input_ids, left_padding, cache, cache_position)`, with an encoder also `encoded`: from tokens
            i64[batch, length], whose indices in the cache begin at `cache_position`, to the logits f32[batch, vocab_size] of the
            last token and the updated cache. The position is i64[], and for decoders also i64[batch]. The first `left_padding`
            i64[batch] tokens of the cache are masked.
        cache: The cache's entries, zeros before the first token: keys and values of a layer, or its recurrent state. In a cache
            of int8 keys and values are codes, followed by the scales f32[batch, rows, cache_heads] of both.
        max_positions: The maximum length of a text, or `None`.
        encode: With an encoder: `encode(parameters, *inputs)` returns the argument `encoded` of `step`.
        step_selected: `step` with a further argument `selected` i64[batch, count], indices of tokens in `input_ids`: the logits
            f32[batch, count, vocab_size] are those of these tokens. `None` with a recurrent state, which has no earlier
            positions, and with an encoder.
        start_token_id: With an encoder of tokens: the token that the decoder's text begins with.
        cache_heads: Heads of keys and values.
    """

    step: Callable[..., tuple[Any, list[tuple[Any, ...]]]]
    cache: tuple[CacheEntry, ...]
    max_positions: int | None
    encode: Callable[..., tuple[Any, ...]] | None = None
    start_token_id: int | None = None
    step_selected: Callable[..., tuple[Any, list[tuple[Any, ...]]]] | None = None
    cache_heads: int = 1


@frozen
class Architecture:
    """A model type with the sizes of a configuration.

    Attributes:
        shapes: Its tensors.
        prefix: Prefix of tensor names in checkpoints, which may be absent.
        unused: Prefixes and suffixes of tensors in checkpoints that it does not read.
        inputs: The specs of its inputs by name.
        function: `function(parameters, *inputs)`.
        decoding: The programs of generation, for decoders.
        optional: Tensors that may be missing in checkpoints.
        submodels: Functions, with their inputs, that can be used as separate models: the `encoder` of an encoder-decoder.
    """

    shapes: Shapes
    prefix: str
    unused: tuple[str, ...]
    inputs: Mapping[str, rlx.TensorType]
    function: Callable[..., Any]
    decoding: Decoding | None = None
    optional: tuple[str, ...] = ()
    submodels: Mapping[str, tuple[Callable[..., Any], Mapping[str, rlx.TensorType]]] = field(factory=dict)


def token_spec(batch: str = "batch", length: str = "length") -> rlx.TensorType:
    """Return the spec of tokens, or of their mask."""
    return rlx.spec(f"i64[{batch}, {length}]")
