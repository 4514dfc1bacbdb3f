"""DeBERTa v2 and v3: an encoder whose scores add what contents say of places to what they say of one another."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.architectures.bert import BERT, UNUSED
from rlx_models.layers.transformer import Block
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Architecture, Parameters, layer_shapes, linear, norm, norm_shapes

__all__ = ["deberta"]

DEBERTA = {
    **BERT,
    "q": "attention.self.query_proj",
    "k": "attention.self.key_proj",
    "v": "attention.self.value_proj",
}
"""What the parts of a layer are called."""

PLACES = {"c2p": "attention.self.pos_key_proj", "p2c": "attention.self.pos_query_proj"}
"""What makes keys of distances for the contents of queries, and queries of distances for the contents of keys."""


def deberta(config: Config) -> Architecture:
    """ids i64[batch, length], mask i64[batch, length] (0 for padding) -> f32[batch, length, hidden_size].

    Source: He, Liu, Gao, Chen 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654.
    """
    d, heads, count = (config.size(name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    width, room = config.size("embedding_size", d), config.size("max_position_embeddings", 512)
    kinds_of_tokens = config.rows.get("type_vocab_size") or 0
    has_places = config.flag("position_biased_input", True)
    config.known("relative_attention", True, default=False)
    said = config.rows.get("pos_att_type") or []
    ways = said.split("|") if isinstance(said, str) else said
    for way in ways:
        Config({"pos_att_type": way}, config.faults).known("pos_att_type", *PLACES)
    is_shared = config.flag("share_att_key", False)
    farthest = config.rows.get("max_relative_positions", -1)
    farthest = room if not isinstance(farthest, int) or farthest < 1 else farthest
    buckets = config.rows.get("position_buckets", -1)
    has_buckets = isinstance(buckets, int) and buckets > 0
    span = config.size("position_buckets") if has_buckets else farthest
    if has_buckets and not 1 < span // 2 < farthest - 1:
        config.faults.append(Fact("position_buckets", f"{buckets}, and must be 4 to twice {farthest - 2}"))
        has_buckets, span = False, farthest
    is_normed = "layer_norm" in str(config.rows.get("norm_rel_ebd", "none")).lower()
    kernel = config.rows.get("conv_kernel_size") or 0
    block = Block(
        names=DEBERTA,
        d=d,
        inner=config.size("intermediate_size"),
        act=ACTIVATIONS[config.known("hidden_act", *ACTIVATIONS, default="gelu")],
        eps=config.number("layer_norm_eps", 1e-7),
        norms="behind",
    )
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.size("vocab_size"), width),
        **norm_shapes("embeddings.LayerNorm", d),
        **({"embeddings.position_embeddings.weight": (room, width)} if has_places else {}),
        **({"embeddings.token_type_embeddings.weight": (kinds_of_tokens, width)} if kinds_of_tokens else {}),
        **({} if width == d else {"embeddings.embed_proj.weight": (d, width)}),
        "encoder.rel_embeddings.weight": (2 * span, d),
        **(norm_shapes("encoder.LayerNorm", d) if is_normed else {}),
    }
    if kernel:
        config.known("conv_groups", 1, default=1)
        act_of_kernel = {"tanh": rlx.tanh, **ACTIVATIONS}
        between = act_of_kernel[config.known("conv_act", *act_of_kernel, default="tanh")]
        shapes |= {"encoder.conv.conv.weight": (d, d, config.size("conv_kernel_size")), "encoder.conv.conv.bias": (d,)}
        shapes |= norm_shapes("encoder.conv.LayerNorm", d)
    for n in range(count):
        shapes |= block.shapes(f"encoder.layer.{n}")
        for way in () if is_shared else ways:
            if way in PLACES:
                shapes |= layer_shapes(f"encoder.layer.{n}.{PLACES[way]}", d, d)
    kinds = kinds_of_distance(span, farthest, has_buckets=has_buckets)
    scale = ((1 + len(ways)) * (d // heads)) ** -0.5

    def by_heads(x: Any) -> Any:
        return rlx.moveaxis(rlx.reshape(x, (*x.shape[:-1], heads, -1)), -2, -3)

    def biases(parameters: Parameters, at: str, q: Any, k: Any, distances: Any, kind: Any) -> Any:
        """What contents say of places, f32[batch, heads, queries, keys]."""
        total: Any = 0.0
        for way in ways:
            of_places = DEBERTA["k" if way == "c2p" else "q"] if is_shared else PLACES[way]
            place = by_heads(linear(parameters, f"{at}.{of_places}", distances))
            contents = by_heads(q if way == "c2p" else k)
            by_kind = contents @ rlx.matrix_transpose(place)  # [batch, heads, length, kinds]
            # Of a key, distances to queries are those of queries to it, turned round.
            found = rlx.take_along_axis(
                by_kind, (kind if way == "c2p" else rlx.matrix_transpose(kind))[None, None], axis=-1
            )
            total = total + (found if way == "c2p" else rlx.matrix_transpose(found))
        return total * scale

    def function(parameters: Parameters, ids: Any, mask: Any) -> Any:
        real = rlx.not_equal(mask, 0)
        shown = rlx.astype(real, rlx.f32)[..., None]
        h = nn.embedding(ids, parameters["embeddings.word_embeddings.weight"])
        if has_places:
            h = h + parameters["embeddings.position_embeddings.weight"][: ids.shape[1]]
        if kinds_of_tokens:
            h = h + parameters["embeddings.token_type_embeddings.weight"][0]
        h = h if width == d else linear(parameters, "embeddings.embed_proj", h)
        first = h = norm(parameters, "embeddings.LayerNorm", h, block.eps) * shown
        distances = parameters["encoder.rel_embeddings.weight"]
        distances = norm(parameters, "encoder.LayerNorm", distances, block.eps) if is_normed else distances
        places = rlx.arange(ids.shape[1])
        kind = nn.embedding(rlx.clip(places[:, None] - places[None, :], -farthest, farthest) + farthest, kinds)
        for n in range(count):
            at = f"encoder.layer.{n}"

            def attend(q: Any, k: Any, v: Any, at: str = at) -> Any:
                bias = biases(parameters, at, q, k, distances, kind) if ways else None
                return nn.attention(q, k, v, num_heads=heads, mask=real, bias=bias, scale=scale)

            h = block(parameters, at, h, attend)
            if n == 0 and kernel:
                weight, shift = (parameters[f"encoder.conv.conv.{name}"] for name in ("weight", "bias"))
                near = nn.conv(rlx.matrix_transpose(first), weight, shift, padding=(kernel - 1) // 2)
                near = between(rlx.matrix_transpose(near) * shown)
                h = norm(parameters, "encoder.conv.LayerNorm", h + near, block.eps) * shown
        return h

    spec = rlx.spec("i64[batch, length]")
    unused = (*UNUSED, "lm_predictions.", "mask_predictions.", "embeddings.position_embeddings.")
    return Architecture(shapes, "deberta.", unused, {"ids": spec, "mask": spec}, function)


def kinds_of_distance(span: int, farthest: int, *, has_buckets: bool) -> np.ndarray:
    """The row i64[2 · farthest + 1] of the table of distances for each of a query from a key, from -farthest to farthest.

    Distances below half the span have a row each; those beyond share rows by their logarithm, where there are such.
    """
    distances = np.arange(-farthest, farthest + 1)
    if has_buckets:
        middle = span // 2
        far = np.maximum(np.abs(distances), middle).astype(np.float32)
        # In f32, as the checkpoints were trained: an ulp decides at the edges of a row.
        growth = np.log(far / np.float32(middle)) / np.log(np.float32((farthest - 1) / middle))
        grown = np.ceil(growth * np.float32(middle - 1)) + middle
        distances = np.where(np.abs(distances) <= middle, distances, grown * np.sign(distances)).astype(np.int64)
    return np.clip(distances + span, 0, 2 * span - 1)
