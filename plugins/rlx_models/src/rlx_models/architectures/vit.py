"""ViT: pictures as sequences of patches."""

from __future__ import annotations

import math
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.transformer import Block
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, layer_shapes, linear, norm, norm_shapes

__all__ = ["vit"]

UNUSED = ("pooler.", "decoder.", "embeddings.mask_token")

VIT = {
    "q": "attention.attention.query",
    "k": "attention.attention.key",
    "v": "attention.attention.value",
    "out": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm_a": "layernorm_before",
    "norm_b": "layernorm_after",
}
"""What the parts of a layer are called."""


def vit(config: Config) -> Architecture:
    """pixels f32[batch, channels, height, width] -> f32[batch, 1 + patches, hidden_size]; the first row stands for the picture.

    A checkpoint of `ViTForImageClassification` gives logits f32[batch, labels]. Pictures have the size that it says.
    """
    d, inner, heads = (config.size(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    count, channels = config.size("num_hidden_layers"), config.size("num_channels", 3)
    picture, patch = config.sizes("image_size", 2), config.sizes("patch_size", 2)
    patches = math.prod(side // step for side, step in zip(picture, patch, strict=True))
    eps = config.number("layer_norm_eps", 1e-12)
    block = Block(
        names=VIT,
        d=d,
        inner=inner,
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=eps,
        unbiased=frozenset("" if config.flag("qkv_bias", True) else "qkv"),
    )
    is_classifier = config.rows.get("architectures") == ["ViTForImageClassification"]

    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.cls_token": (1, 1, d),
        "embeddings.position_embeddings": (1, patches + 1, d),
        "embeddings.patch_embeddings.projection.weight": (d, channels, *patch),
        "embeddings.patch_embeddings.projection.bias": (d,),
        **norm_shapes("layernorm", d),
    }
    if is_classifier:
        shapes |= layer_shapes("classifier", config.entries("id2label", 2), d)
    for n in range(count):
        shapes |= block.shapes(f"encoder.layer.{n}")

    def function(parameters: Parameters, pixels: Any) -> Any:
        kernel, shift = (parameters[f"embeddings.patch_embeddings.projection.{name}"] for name in ("weight", "bias"))
        seen = nn.conv(pixels, kernel, shift, stride=patch)
        seen = rlx.matrix_transpose(rlx.reshape(seen, (pixels.shape[0], d, patches)))
        first = rlx.broadcast_to(parameters["embeddings.cls_token"], (pixels.shape[0], 1, d))
        h = rlx.concat([first, seen], axis=1) + parameters["embeddings.position_embeddings"]
        for n in range(count):
            h = block(parameters, f"encoder.layer.{n}", h, lambda q, k, v: nn.attention(q, k, v, num_heads=heads))
        h = norm(parameters, "layernorm", h, eps)
        return linear(parameters, "classifier", h[:, 0]) if is_classifier else h

    spec = rlx.spec(f"f32[batch, {channels}, {picture[0]}, {picture[1]}]")
    unused = UNUSED if is_classifier else (*UNUSED, "classifier.")
    return Architecture(shapes, "vit.", unused, {"pixels": spec}, function)
