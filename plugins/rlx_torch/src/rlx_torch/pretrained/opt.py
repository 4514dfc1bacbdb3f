"""OPT: a decoder with the layers of BART, their norms before their parts or, in the second smallest, behind them."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlx_core import nn
from rlx_torch.pretrained.blocks import PLAIN, Block
from rlx_torch.pretrained.decoders import Attend, decoder
from rlx_torch.pretrained.folder import Config
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Parameters, linear, norm, norm_shapes

__all__ = ["opt"]

EPS = 1e-5
FIRST = 2
"""The row of the table of positions that is for the first token."""


def opt(config: Config) -> Architecture:
    """ids i64[batch, length] -> logits f32[batch, length, words]."""
    d, inner, count = config.size("hidden_size"), config.size("ffn_dim"), config.size("num_hidden_layers")
    heads, room = config.size("num_attention_heads"), config.size("max_position_embeddings", 2048)
    words, width = config.size("vocab_size"), config.size("word_embed_proj_dim", d)
    is_before = config.flag("do_layer_norm_before", True)
    has_last = is_before and not config.flag("_remove_final_layer_norm", False)
    for name in ("enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings"):
        config.known(name, True, default=True)
    block = Block(
        names=PLAIN,
        d=d,
        inner=inner,
        act=ACTIVATIONS[config.known("activation_function", *ACTIVATIONS, default="relu")],
        eps=EPS,
        norms="before" if is_before else "behind",
    )
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (words, width),
        "embed_positions.weight": (room + FIRST, d),
        **(norm_shapes("final_layer_norm", d) if has_last else {}),
        **({} if width == d else {"project_in.weight": (d, width), "project_out.weight": (width, d)}),
    }
    for n in range(count):
        shapes |= block.shapes(f"layers.{n}")

    def layers(parameters: Parameters, ids: Any, positions: Any, attend: Attend) -> Any:
        h = nn.embedding(ids, parameters["embed_tokens.weight"])
        h = h if width == d else linear(parameters, "project_in", h)
        h = h + nn.embedding(positions + FIRST, parameters["embed_positions.weight"])
        for n in range(count):
            h = block(parameters, f"layers.{n}", h, partial(attend, n))
        h = norm(parameters, "final_layer_norm", h, EPS) if has_last else h
        return h if width == d else linear(parameters, "project_out", h)

    return decoder(
        shapes, "model.decoder.", layers, "embed_tokens.weight",
        heads=heads, kv_heads=heads, head=d // heads, count=count, positions=room,
    )  # fmt: skip
