"""ViT: an encoder of images as sequences of patches.

Source:
    Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", arXiv:2010.11929.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.architecture import Architecture
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes, linear, linear_shapes
from rlx_models.layers.transformer import TransformerLayer

UNUSED: Final = ("pooler.", "decoder.", "embeddings.mask_token")

VIT_NAMES: Final = {
    "q": "attention.attention.query",
    "k": "attention.attention.key",
    "v": "attention.attention.value",
    "out": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
    "attention_norm": "layernorm_before",
    "ffn_norm": "layernorm_after",
}

PROJECTION: Final = "embeddings.patch_embeddings.projection"


@frozen(kw_only=True)
class VitEncoder:
    """The encoder, with a classifier if `num_labels` is not 0.

    Attributes:
        num_channels, image_size, patch_size: Channels of images; height and width of images and patches.
        num_layers, num_heads, layer: The layers.
        num_labels: Outputs of the classifier.
    """

    num_channels: int
    image_size: tuple[int, ...]
    patch_size: tuple[int, ...]
    num_layers: int
    num_heads: int
    layer: TransformerLayer
    num_labels: int

    @property
    def num_patches(self) -> int:
        return math.prod(size // patch for size, patch in zip(self.image_size, self.patch_size, strict=True))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.layer.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.cls_token": (1, 1, d),
            "embeddings.position_embeddings": (1, self.num_patches + 1, d),
            f"{PROJECTION}.weight": (d, self.num_channels, *self.patch_size),
            f"{PROJECTION}.bias": (d,),
            **layer_norm_shapes("layernorm", d),
        }
        if self.num_labels:
            shapes |= linear_shapes("classifier", self.num_labels, d)
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"encoder.layer.{n}")
        return shapes

    def __call__(self, parameters: Parameters, pixel_values: Any) -> Any:
        """Return hidden states f32[batch, 1 + patches, hidden_size], or logits f32[batch, num_labels]."""
        weight, bias = (parameters[f"{PROJECTION}.{name}"] for name in ("weight", "bias"))
        patches = nn.conv(pixel_values, weight, bias, stride=self.patch_size)
        h = embed_patches(patches, parameters["embeddings.cls_token"], parameters["embeddings.position_embeddings"])
        attention = partial(nn.attention, num_heads=self.num_heads)
        for n in range(self.num_layers):
            h = self.layer(parameters, f"encoder.layer.{n}", h, attention)
        h = layer_norm(parameters, "layernorm", h, self.layer.eps)
        return linear(parameters, "classifier", h[:, 0]) if self.num_labels else h


def embed_patches(patches: Any, class_token: Any, position_table: Any) -> Any:
    """Return f32[batch, 1 + patches, d]: the class token and patches f32[batch, d, rows, columns], with their positions."""
    batch, d, rows, columns = patches.shape
    sequence = rlx.matrix_transpose(rlx.reshape(patches, (batch, d, rows * columns)))
    first = rlx.broadcast_to(class_token, (batch, 1, d))
    return rlx.concat([first, sequence], axis=1) + position_table


def vit(config: Config) -> Architecture:
    """Return ViT: pixel_values f32[batch, num_channels, height, width] -> f32[batch, 1 + patches, hidden_size].

    The first row is that of the class token. `ViTForImageClassification` returns logits f32[batch, num_labels]. Images have the
    size of the configuration.
    """
    is_classifier = config.values.get("architectures") == ["ViTForImageClassification"]
    layer = TransformerLayer(
        names=VIT_NAMES,
        hidden_size=config.size("hidden_size"),
        intermediate_size=config.size("intermediate_size"),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_eps", 1e-12),
        unbiased=frozenset("" if config.flag("qkv_bias", True) else "qkv"),
    )
    encoder = VitEncoder(
        num_channels=config.size("num_channels", 3),
        image_size=config.sizes("image_size", 2),
        patch_size=config.sizes("patch_size", 2),
        num_layers=config.size("num_hidden_layers"),
        num_heads=config.size("num_attention_heads"),
        layer=layer,
        num_labels=config.entries("id2label", 2) if is_classifier else 0,
    )
    height, width = encoder.image_size
    inputs = {"pixel_values": rlx.spec(f"f32[batch, {encoder.num_channels}, {height}, {width}]")}
    unused = UNUSED if is_classifier else (*UNUSED, "classifier.")
    return Architecture(encoder.shapes(), "vit.", unused, inputs, encoder)
