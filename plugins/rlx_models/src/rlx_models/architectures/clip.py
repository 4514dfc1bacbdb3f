"""CLIP: an encoder of pictures and one of texts, whose features say how well a text describes a picture."""

from __future__ import annotations

from functools import partial
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.layers.transformer import Block
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, linear, norm, norm_shapes

__all__ = ["clip"]

CLIP = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
    "norm_a": "layer_norm1",
    "norm_b": "layer_norm2",
}
"""What the parts of a layer are called."""

OLD_END = 2
"""What older configurations call the end of a text; it is the highest token."""


def clip(config: Config) -> Architecture:
    """ids i64[texts, length] and pixels f32[pictures, channels, side, side] -> `texts` f32[texts, features], `pictures`
    f32[pictures, features], both of length 1, and `logits` f32[pictures, texts].

    A text ends with its first end token; what is behind it is not seen. The parts `texts` and `pictures` are models of their own.
    """
    features = config.size("projection_dim", 512)
    of_text, of_picture = (part_of(config, name) for name in ("text_config", "vision_config"))
    shapes: dict[str, tuple[int, ...]] = {"logit_scale": ()}
    reading, words_of = texts(of_text, shapes)
    seeing, pixels_of = pictures(of_picture, shapes)
    shapes |= {
        "text_projection.weight": (features, of_text.size("hidden_size", 512)),
        "visual_projection.weight": (features, of_picture.size("hidden_size", 768)),
    }

    def read(parameters: Parameters, ids: Any) -> Any:
        return unit(linear(parameters, "text_projection", reading(parameters, ids)))

    def see(parameters: Parameters, pixels: Any) -> Any:
        return unit(linear(parameters, "visual_projection", seeing(parameters, pixels)))

    def function(parameters: Parameters, ids: Any, pixels: Any) -> dict[str, Any]:
        said, seen = read(parameters, ids), see(parameters, pixels)
        logits = seen @ rlx.matrix_transpose(said) * rlx.exp(parameters["logit_scale"])
        return {"logits": logits, "pictures": seen, "texts": said}

    unused = ("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids")
    parts = {"texts": (read, {"ids": words_of}), "pictures": (see, {"pixels": pixels_of})}
    return Architecture(shapes, "", unused, {"ids": words_of, "pixels": pixels_of}, function, parts=parts)


def part_of(config: Config, name: str) -> Config:
    """The configuration of a part."""
    found = config.rows.get(name) or {}
    if not isinstance(found, dict):
        config.faults.append(Fact(name, f"{found!r}, and must be a table"))
        found = {}
    return Config(found, config.faults)


def unit(x: Any) -> Any:
    """Rows of length 1."""
    return x / rlx.linalg.vector_norm(x, axis=-1, keepdims=True)


def block_of(config: Config, d: int) -> Block:
    return Block(
        names=CLIP,
        d=d,
        inner=config.size("intermediate_size", 4 * d),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="quick_gelu")],
        eps=config.number("layer_norm_eps", 1e-5),
    )


def texts(config: Config, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, rlx.TensorType]:
    """From parameters and ids to the features f32[texts, d] of their ends; the shapes of its tensors are added."""
    d, heads, count = (
        config.size(name, usual)
        for name, usual in (("hidden_size", 512), ("num_attention_heads", 8), ("num_hidden_layers", 12))
    )
    end = int(config.number("eos_token_id", OLD_END))
    block = block_of(config, d)
    shapes |= {
        "text_model.embeddings.token_embedding.weight": (config.size("vocab_size", 49408), d),
        "text_model.embeddings.position_embedding.weight": (config.size("max_position_embeddings", 77), d),
        **norm_shapes("text_model.final_layer_norm", d),
    }
    for n in range(count):
        shapes |= block.shapes(f"text_model.encoder.layers.{n}")

    def read(parameters: Parameters, ids: Any) -> Any:
        h = nn.embedding(ids, parameters["text_model.embeddings.token_embedding.weight"])
        h = h + parameters["text_model.embeddings.position_embedding.weight"][: ids.shape[1]]
        for n in range(count):
            attend = partial(nn.attention, num_heads=heads, causal=True)
            h = block(parameters, f"text_model.encoder.layers.{n}", h, attend)
        h = norm(parameters, "text_model.final_layer_norm", h, block.eps)
        ends = ids if end == OLD_END else rlx.astype(rlx.equal(ids, end), rlx.i64)
        last = rlx.argmax(ends, axis=1)
        return rlx.take_along_axis(h, last[:, None, None], axis=1)[:, 0]

    return read, rlx.spec("i64[texts, length]")


def pictures(config: Config, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, rlx.TensorType]:
    """From parameters and pixels to the features f32[pictures, d]; the shapes of its tensors are added."""
    d, heads, count = (
        config.size(name, usual)
        for name, usual in (("hidden_size", 768), ("num_attention_heads", 12), ("num_hidden_layers", 12))
    )
    channels, side, patch = (
        config.size("num_channels", 3),
        config.size("image_size", 224),
        config.size("patch_size", 32),
    )
    patches = (side // patch) ** 2
    block, at = block_of(config, d), "vision_model.embeddings"
    shapes |= {
        f"{at}.class_embedding": (d,),
        f"{at}.patch_embedding.weight": (d, channels, patch, patch),
        f"{at}.position_embedding.weight": (patches + 1, d),
        **norm_shapes("vision_model.pre_layrnorm", d),
        **norm_shapes("vision_model.post_layernorm", d),
    }
    for n in range(count):
        shapes |= block.shapes(f"vision_model.encoder.layers.{n}")

    def see(parameters: Parameters, pixels: Any) -> Any:
        seen = nn.conv(pixels, parameters[f"{at}.patch_embedding.weight"], stride=patch)
        seen = rlx.matrix_transpose(rlx.reshape(seen, (pixels.shape[0], d, patches)))
        first = rlx.broadcast_to(parameters[f"{at}.class_embedding"], (pixels.shape[0], 1, d))
        h = rlx.concat([first, seen], axis=1) + parameters[f"{at}.position_embedding.weight"]
        h = norm(parameters, "vision_model.pre_layrnorm", h, block.eps)
        for n in range(count):
            h = block(parameters, f"vision_model.encoder.layers.{n}", h, partial(nn.attention, num_heads=heads))
        return norm(parameters, "vision_model.post_layernorm", h[:, 0], block.eps)

    return see, rlx.spec(f"f32[pictures, {channels}, {side}, {side}]")
