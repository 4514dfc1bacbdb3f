"""CLIP: an encoder of images and one of texts, whose embeddings are compared.

Source:
    Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision", arXiv:2103.00020, section 2.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.architecture import Architecture, token_spec
from rlx_models.architectures.vit import embed_patches
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, layer_norm, layer_norm_shapes, linear
from rlx_models.layers.transformer import TransformerLayer

CLIP_NAMES: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
    "attention_norm": "layer_norm1",
    "ffn_norm": "layer_norm2",
}

LEGACY_EOS: Final = 2
"""`eos_token_id` of older configurations, whose texts end with their highest token id instead."""

UNUSED: Final = ("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids")


@frozen(kw_only=True)
class TextTower:
    """The encoder of texts, with causal attention. A text ends with its first end token; later tokens are ignored."""

    vocab_size: int
    max_positions: int
    num_layers: int
    num_heads: int
    layer: TransformerLayer
    eos_token_id: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.layer.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "text_model.embeddings.token_embedding.weight": (self.vocab_size, d),
            "text_model.embeddings.position_embedding.weight": (self.max_positions, d),
            **layer_norm_shapes("text_model.final_layer_norm", d),
        }
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"text_model.encoder.layers.{n}")
        return shapes

    def __call__(self, parameters: Parameters, input_ids: Any) -> Any:
        """Return features of the end tokens, f32[texts, hidden_size]."""
        h = nn.embedding(input_ids, parameters["text_model.embeddings.token_embedding.weight"])
        h = h + parameters["text_model.embeddings.position_embedding.weight"][: input_ids.shape[1]]
        attention = partial(nn.attention, num_heads=self.num_heads, is_causal=True)
        for n in range(self.num_layers):
            h = self.layer(parameters, f"text_model.encoder.layers.{n}", h, attention)
        h = layer_norm(parameters, "text_model.final_layer_norm", h, self.layer.eps)
        is_legacy = self.eos_token_id == LEGACY_EOS
        scores = input_ids if is_legacy else rlx.astype(rlx.equal(input_ids, self.eos_token_id), rlx.i64)
        last = rlx.argmax(scores, axis=1)
        return rlx.take_along_axis(h, last[:, None, None], axis=1)[:, 0]


@frozen(kw_only=True)
class VisionTower:
    """The encoder of images of a fixed size."""

    num_channels: int
    image_size: int
    patch_size: int
    num_layers: int
    num_heads: int
    layer: TransformerLayer

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, patch, prefix = self.layer.hidden_size, self.patch_size, "vision_model.embeddings"
        shapes: dict[str, tuple[int, ...]] = {
            f"{prefix}.class_embedding": (d,),
            f"{prefix}.patch_embedding.weight": (d, self.num_channels, patch, patch),
            f"{prefix}.position_embedding.weight": ((self.image_size // patch) ** 2 + 1, d),
            **layer_norm_shapes("vision_model.pre_layrnorm", d),
            **layer_norm_shapes("vision_model.post_layernorm", d),
        }
        for n in range(self.num_layers):
            shapes |= self.layer.shapes(f"vision_model.encoder.layers.{n}")
        return shapes

    def __call__(self, parameters: Parameters, pixel_values: Any) -> Any:
        """Return features of the class token, f32[images, hidden_size]."""
        prefix, eps = "vision_model.embeddings", self.layer.eps
        patches = nn.conv(pixel_values, parameters[f"{prefix}.patch_embedding.weight"], stride=self.patch_size)
        table = parameters[f"{prefix}.position_embedding.weight"]
        h = embed_patches(patches, parameters[f"{prefix}.class_embedding"], table)
        h = layer_norm(parameters, "vision_model.pre_layrnorm", h, eps)
        attention = partial(nn.attention, num_heads=self.num_heads)
        for n in range(self.num_layers):
            h = self.layer(parameters, f"vision_model.encoder.layers.{n}", h, attention)
        return layer_norm(parameters, "vision_model.post_layernorm", h[:, 0], eps)


@frozen(kw_only=True)
class ClipModel:
    """Both encoders, each with a projection to a common space of `projection_size` dimensions."""

    text: TextTower
    vision: VisionTower
    projection_size: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "logit_scale": (),
            **self.text.shapes(),
            **self.vision.shapes(),
            "text_projection.weight": (self.projection_size, self.text.layer.hidden_size),
            "visual_projection.weight": (self.projection_size, self.vision.layer.hidden_size),
        }

    def text_embeds(self, parameters: Parameters, input_ids: Any) -> Any:
        return normalized(linear(parameters, "text_projection", self.text(parameters, input_ids)))

    def image_embeds(self, parameters: Parameters, pixel_values: Any) -> Any:
        return normalized(linear(parameters, "visual_projection", self.vision(parameters, pixel_values)))

    def __call__(self, parameters: Parameters, input_ids: Any, pixel_values: Any) -> dict[str, Any]:
        texts = self.text_embeds(parameters, input_ids)
        images = self.image_embeds(parameters, pixel_values)
        logits = images @ rlx.matrix_transpose(texts) * rlx.exp(parameters["logit_scale"])
        return {"logits_per_image": logits, "text_embeds": texts, "image_embeds": images}


def normalized(x: Any) -> Any:
    """Return rows divided by their Euclidean norms."""
    return x / rlx.linalg.vector_norm(x, axis=-1, keepdims=True)


def clip(config: Config) -> Architecture:
    """Return CLIP: input_ids i64[texts, length] and pixel_values f32[images, channels, size, size] -> `text_embeds`
    f32[texts, features], `image_embeds` f32[images, features], both normalised, and `logits_per_image` f32[images, texts].

    The submodels `text_encoder` and `image_encoder` return the embeddings of one side.
    """
    model = ClipModel(
        text=_text_tower(_nested(config, "text_config")),
        vision=_vision_tower(_nested(config, "vision_config")),
        projection_size=config.size("projection_dim", 512),
    )
    size = model.vision.image_size
    texts = {"input_ids": token_spec("texts")}
    images = {"pixel_values": rlx.spec(f"f32[images, {model.vision.num_channels}, {size}, {size}]")}
    submodels = {"text_encoder": (model.text_embeds, texts), "image_encoder": (model.image_embeds, images)}
    return Architecture(model.shapes(), "", UNUSED, {**texts, **images}, model, submodels=submodels)


def _nested(config: Config, name: str) -> Config:
    """Return the configuration of a tower."""
    values = config.values.get(name) or {}
    if not isinstance(values, dict):
        config.faults.append(Fact(name, f"{values!r}, and must be a table"))
        values = {}
    return Config(values, config.faults)


def _layer(config: Config, hidden_size: int) -> TransformerLayer:
    return TransformerLayer(
        names=CLIP_NAMES,
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size", 4 * hidden_size),
        act=ACTIVATIONS[config.choice("hidden_act", *ACTIVATIONS, default="quick_gelu")],
        eps=config.number("layer_norm_eps", 1e-5),
    )


def _text_tower(config: Config) -> TextTower:
    return TextTower(
        vocab_size=config.size("vocab_size", 49408),
        max_positions=config.size("max_position_embeddings", 77),
        num_layers=config.size("num_hidden_layers", 12),
        num_heads=config.size("num_attention_heads", 8),
        layer=_layer(config, config.size("hidden_size", 512)),
        eos_token_id=int(config.number("eos_token_id", LEGACY_EOS)),
    )


def _vision_tower(config: Config) -> VisionTower:
    return VisionTower(
        num_channels=config.size("num_channels", 3),
        image_size=config.size("image_size", 224),
        patch_size=config.size("patch_size", 32),
        num_layers=config.size("num_hidden_layers", 12),
        num_heads=config.size("num_attention_heads", 12),
        layer=_layer(config, config.size("hidden_size", 768)),
    )
