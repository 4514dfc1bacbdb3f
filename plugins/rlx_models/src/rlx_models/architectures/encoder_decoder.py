"""`encoder_decoder`: the programs of a model with an encoder and a decoder with cross-attention (T5, BART, Whisper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, Decoding
from rlx_models.checkpoints import Shapes
from rlx_models.layers.attention import CachedAttention, CausalAttention, CausalSelfAttention
from rlx_models.layers.linear import Parameters
from rlx_models.layers.transformer import CrossAttention

Encoded = tuple[Any, ...]
"""Keys and values of each decoder layer's cross-attention and, if the encoder's inputs have padding, their mask."""


@frozen
class DecoderSize:
    """The size of a decoder: layers, heads of attention, and features of its keys and values."""

    num_layers: int
    num_heads: int
    features: int


class EncoderDecoder(Protocol):
    """The functions of a model with an encoder and a decoder."""

    @property
    def decoder_size(self) -> DecoderSize: ...

    def shapes(self) -> Shapes: ...

    def encode(self, parameters: Parameters, *inputs: Any) -> Any:
        """Return the encoder's hidden states."""

    def encode_for_decoder(self, parameters: Parameters, *inputs: Any) -> Encoded:
        """Return what the decoder's cross-attention reads."""

    def decode(self, parameters: Parameters, input_ids: Any, attention: CausalSelfAttention, encoded: Encoded) -> Any:
        """Return the decoder's hidden states."""

    def logits(self, parameters: Parameters, h: Any) -> Any:
        """Return logits of hidden states."""


def cross_attention(encoded: Encoded, layer: int, **options: Any) -> CrossAttention:
    """Return the cross-attention of a decoder layer; `options` are those of `nn.attention`."""
    (k, v), *mask = encoded[0][layer], *encoded[1:]
    return partial(nn.attention, key=k, value=v, mask=mask[0] if mask else None, **options)


def encoder_decoder(
    model: EncoderDecoder,
    prefix: str,
    unused: tuple[str, ...],
    encoder_inputs: Mapping[str, rlx.TensorType],
    decoder_inputs: Mapping[str, rlx.TensorType],
    *,
    max_positions: int | None,
    start_token_id: int | None,
    optional: tuple[str, ...] = (),
) -> Architecture:
    """Return the architecture: the encoder's inputs and the decoder's tokens -> logits f32[batch, steps, vocab_size]."""
    size = model.decoder_size
    heads = size.num_heads

    def function(parameters: Parameters, *inputs: Any) -> Any:
        *encoder_values, input_ids = inputs
        encoded = model.encode_for_decoder(parameters, *encoder_values)
        attention = CausalAttention(input_ids.shape[1], heads, heads)
        return model.logits(parameters, model.decode(parameters, input_ids, attention, encoded))

    def step(
        parameters: Parameters,
        input_ids: Any,
        left_padding: Any,
        cache: Sequence[tuple[Any, ...]],
        cache_position: Any,
        encoded: Encoded,
    ) -> tuple[Any, list[tuple[Any, ...]]]:
        attention = CachedAttention(cache, cache_position, left_padding, input_ids.shape[1], heads, heads)
        h = model.decode(parameters, input_ids, attention, encoded)
        return model.logits(parameters, h[:, -1]), attention.updated

    entry = ((None, size.features), (None, size.features))
    cache = (entry,) * size.num_layers
    return Architecture(
        model.shapes(),
        prefix,
        unused,
        {**encoder_inputs, **decoder_inputs},
        function,
        Decoding(step, cache, max_positions, model.encode_for_decoder, start_token_id, cache_heads=heads),
        optional=optional,
        submodels={"encoder": (model.encode, encoder_inputs)},
    )
