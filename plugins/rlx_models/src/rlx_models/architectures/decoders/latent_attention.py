"""Multi-head latent attention: the cache has one latent vector and one rotated key per token, for any number of heads.

Scores of a head are `q·(K c)`, with the latent vector c and the head's matrix K, and are computed as `(Kᵀ q)·c`; likewise
values as `V (Σ p c)`. So all heads attend to the same keys and values, and steps recompute nothing of earlier tokens.

Source:
    DeepSeek-AI 2024, "DeepSeek-V2", arXiv:2405.04434, section 2.1 and appendix C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.decoders.attention import AttentionHeads, DecoderAttention
from rlx_models.architectures.decoders.spec import LatentAttentionSpec
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import Parameters, linear, linear_shapes
from rlx_models.layers.rope import rope_config, rotary, yarn_factor, yarn_scale


@frozen(kw_only=True)
class LatentAttention:
    """Queries, keys and values of a layer, and attention over them, up to the output projection.

    Attributes:
        hidden_size: Features of the layer.
        num_heads: Heads.
        q_rank, kv_rank: Features of the latent vectors of queries (`None`: queries are one projection) and of keys and values.
        nope_size, rope_size: Features of a key from the latent vector, and with rotated positions.
        value_size: Features of a value.
        scale: Of scores.
        eps: Of the norms of latent vectors.
        has_bias: Whether the projections to latent vectors have biases.
        rope: The rotation.
    """

    hidden_size: int
    num_heads: int
    q_rank: int | None
    kv_rank: int
    nope_size: int
    rope_size: int
    value_size: int
    scale: float
    eps: float
    has_bias: bool
    rope: Callable[[Any, Any], Any] = field(eq=False)

    @property
    def heads(self) -> AttentionHeads:
        """The heads of queries, and one of keys and values: the latent vector and the rotated key."""
        return AttentionHeads(self.num_heads, 1, self.kv_rank + self.rope_size, self.kv_rank)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the attention `prefix`, without the output projection."""
        d, queries = self.hidden_size, self.num_heads * (self.nope_size + self.rope_size)
        if self.q_rank is None:
            shapes = linear_shapes(f"{prefix}.q_proj", queries, d, has_bias=False)
        else:
            shapes = {
                **linear_shapes(f"{prefix}.q_a_proj", self.q_rank, d, has_bias=self.has_bias),
                f"{prefix}.q_a_layernorm.weight": (self.q_rank,),
                **linear_shapes(f"{prefix}.q_b_proj", queries, self.q_rank, has_bias=False),
            }
        outputs, latent = self.num_heads * (self.nope_size + self.value_size), self.kv_rank + self.rope_size
        return {
            **shapes,
            **linear_shapes(f"{prefix}.kv_a_proj_with_mqa", latent, d, has_bias=self.has_bias),
            f"{prefix}.kv_a_layernorm.weight": (self.kv_rank,),
            **linear_shapes(f"{prefix}.kv_b_proj", outputs, self.kv_rank, has_bias=False),
        }

    def __call__(self, parameters: Parameters, prefix: str, layer: int, x: Any, attention: DecoderAttention) -> Any:
        """f32[batch, length, hidden_size] -> f32[batch, length, num_heads · value_size]."""
        leading, positions = x.shape[:-1], attention.positions
        weights = parameters[f"{prefix}.kv_b_proj.weight"]
        weights = rlx.reshape(weights, (self.num_heads, self.nope_size + self.value_size, self.kv_rank))
        q = self._queries(parameters, prefix, x)
        q = rlx.reshape(q, (*leading, self.num_heads, self.nope_size + self.rope_size))
        rotated = rlx.reshape(q[..., self.nope_size :], (*leading, -1))
        rotated = rlx.reshape(self.rope(rotated, positions), (*leading, self.num_heads, self.rope_size))
        product = rlx.einsum("bshn,hnr->bshr", q[..., : self.nope_size], weights[:, : self.nope_size])
        queries = rlx.reshape(rlx.concat([product, rotated], axis=-1), (*leading, -1))

        projected = linear(parameters, f"{prefix}.kv_a_proj_with_mqa", x)
        latent = nn.rms_norm(
            projected[..., : self.kv_rank], parameters[f"{prefix}.kv_a_layernorm.weight"], eps=self.eps
        )
        keys = rlx.concat([latent, self.rope(projected[..., self.kv_rank :], positions)], axis=-1)

        y = rlx.reshape(attention(layer, queries, keys, latent), (*leading, self.num_heads, self.kv_rank))
        values = rlx.einsum("bshr,hvr->bshv", y, weights[:, self.nope_size :])
        return rlx.reshape(values, (*leading, -1))

    def _queries(self, parameters: Parameters, prefix: str, x: Any) -> Any:
        if self.q_rank is None:
            return linear(parameters, f"{prefix}.q_proj", x)
        latent = linear(parameters, f"{prefix}.q_a_proj", x)
        latent = nn.rms_norm(latent, parameters[f"{prefix}.q_a_layernorm.weight"], eps=self.eps)
        return linear(parameters, f"{prefix}.q_b_proj", latent)


def latent_attention(spec: LatentAttentionSpec, config: Config, hidden_size: int, num_heads: int) -> LatentAttention:
    """Return the attention of a configuration."""
    nope_size, rope_size = config.size("qk_nope_head_dim", 128), config.size("qk_rope_head_dim", 64)
    q_rank = config.values.get("q_lora_rank", 1536)
    style: Literal["half", "interleaved"] = "interleaved" if config.flag("rope_interleave", True) else "half"
    return LatentAttention(
        hidden_size=hidden_size,
        num_heads=num_heads,
        q_rank=None if q_rank is None else config.size("q_lora_rank", 1536),
        kv_rank=config.size("kv_lora_rank", 512),
        nope_size=nope_size,
        rope_size=rope_size,
        value_size=config.size("v_head_dim", 128),
        scale=(nope_size + rope_size) ** -0.5 * _temperature(config),
        eps=spec.eps,
        has_bias=config.flag("attention_bias", False),
        rope=rotary(config, rope_size, config.size("max_position_embeddings", 4096), style=style),
    )


def _temperature(config: Config) -> float:
    """Return the multiplier of scores for texts that are longer than those of pretraining."""
    options = rope_config(config)
    scale = options.number("mscale_all_dim", 0.0)
    if options.values["rope_type"] == "default" or not scale:
        return 1.0
    return yarn_scale(yarn_factor(options), scale) ** 2
