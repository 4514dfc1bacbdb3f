"""Whisper: an encoder of log-mel spectrograms and a decoder of their transcripts.

Source:
    Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", arXiv:2212.04356, section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.encoder_decoder import DecoderSize, Encoded, cross_attention, encoder_decoder
from rlx_models.checkpoints import Config
from rlx_models.layers.attention import CausalSelfAttention
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes
from rlx_models.layers.transformer import BART_NAMES, TransformerLayer

EPS: Final = 1e-5


@frozen(kw_only=True)
class Whisper:
    """The stacks of Whisper.

    Attributes:
        vocab_size, d_model: The shape of the embedding.
        num_mel_bins: Channels of a spectrogram.
        max_positions, num_layers, num_heads, layers: Of `encoder` and `decoder`.
    """

    vocab_size: int
    d_model: int
    num_mel_bins: int
    max_positions: Mapping[str, int]
    num_layers: Mapping[str, int]
    num_heads: Mapping[str, int]
    layers: Mapping[str, TransformerLayer]

    @property
    def decoder_size(self) -> DecoderSize:
        return DecoderSize(self.num_layers["decoder"], self.num_heads["decoder"], self.d_model)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.d_model
        shapes: dict[str, tuple[int, ...]] = {
            "encoder.conv1.weight": (d, self.num_mel_bins, 3),
            "encoder.conv1.bias": (d,),
            "encoder.conv2.weight": (d, d, 3),
            "encoder.conv2.bias": (d,),
            "decoder.embed_tokens.weight": (self.vocab_size, d),
        }
        for stack, count in self.num_layers.items():
            shapes[f"{stack}.embed_positions.weight"] = (self.max_positions[stack], d)
            shapes |= layer_norm_shapes(f"{stack}.layer_norm", d)
            for n in range(count):
                shapes |= self.layers[stack].shapes(f"{stack}.layers.{n}", has_cross_attention=stack == "decoder")
        return shapes

    def encode(self, parameters: Parameters, input_features: Any) -> Any:
        h = nn.gelu(self._conv(parameters, "encoder.conv1", input_features, stride=1))
        h = nn.gelu(self._conv(parameters, "encoder.conv2", h, stride=2))
        h = rlx.matrix_transpose(h) + parameters["encoder.embed_positions.weight"]
        attention = partial(nn.attention, num_heads=self.num_heads["encoder"])
        for n in range(self.num_layers["encoder"]):
            h = self.layers["encoder"](parameters, f"encoder.layers.{n}", h, attention)
        return layer_norm(parameters, "encoder.layer_norm", h, EPS)

    def encode_for_decoder(self, parameters: Parameters, input_features: Any) -> Encoded:
        h, layer = self.encode(parameters, input_features), self.layers["decoder"]
        prefixes = (f"decoder.layers.{n}" for n in range(self.num_layers["decoder"]))
        return ([layer.cross_keys_values(parameters, prefix, h) for prefix in prefixes],)

    def decode(self, parameters: Parameters, input_ids: Any, attention: CausalSelfAttention, encoded: Encoded) -> Any:
        h = nn.embedding(input_ids, parameters["decoder.embed_tokens.weight"])
        h = h + nn.embedding(attention.positions, parameters["decoder.embed_positions.weight"])
        for n in range(self.num_layers["decoder"]):
            cross = cross_attention(encoded, n, num_heads=self.num_heads["decoder"])
            h = self.layers["decoder"](parameters, f"decoder.layers.{n}", h, partial(attention, n), cross)
        return layer_norm(parameters, "decoder.layer_norm", h, EPS)

    def logits(self, parameters: Parameters, h: Any) -> Any:
        return h @ rlx.matrix_transpose(parameters["decoder.embed_tokens.weight"])

    def _conv(self, parameters: Parameters, name: str, x: Any, *, stride: int) -> Any:
        return nn.conv(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], stride=stride, padding=1)


def whisper(config: Config) -> Architecture:
    """Return Whisper: input_features f32[batch, num_mel_bins, frames], decoder_input_ids i64[batch, length] -> logits
    f32[batch, length, vocab_size].

    The features are a log-mel spectrogram with the number of frames of the training (3000 for 30 s).
    """
    d_model, mels = config.size("d_model"), config.size("num_mel_bins", 80)
    stacks = ("encoder", "decoder")
    act = ACTIVATIONS[config.choice("activation_function", *ACTIVATIONS, default="gelu")]
    config.choice("scale_embedding", False, default=False)
    layers = {
        stack: TransformerLayer(
            names=BART_NAMES,
            hidden_size=d_model,
            intermediate_size=config.size(f"{stack}_ffn_dim"),
            act=act,
            eps=EPS,
            unbiased=frozenset(("k", "cross_k")),
        )
        for stack in stacks
    }
    frames, tokens = config.size("max_source_positions", 1500), config.size("max_target_positions", 448)
    model = Whisper(
        vocab_size=config.size("vocab_size"),
        d_model=d_model,
        num_mel_bins=mels,
        max_positions={"encoder": frames, "decoder": tokens},
        num_layers={stack: config.size(f"{stack}_layers") for stack in stacks},
        num_heads={stack: config.size(f"{stack}_attention_heads") for stack in stacks},
        layers=layers,
    )
    return encoder_decoder(
        model,
        "model.",
        ("proj_out.",),
        {"input_features": rlx.spec(f"f32[batch, {mels}, {2 * frames}]")},  # the second convolution halves the frames
        {"decoder_input_ids": token_spec()},
        max_positions=tokens,
        start_token_id=None,
    )
