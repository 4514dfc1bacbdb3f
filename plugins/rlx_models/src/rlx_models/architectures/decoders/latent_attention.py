"""Multi-head latent attention: the cache has one latent vector and one rotated key a token, whatever the number of heads.

ScoreOptions of a head are `q·(K c)`, with the latent vector c and the head's matrix K, and are computed as `(Kᵀ q)·c`; likewise
values as `V (Σ p c)`. So all heads attend to the same keys and values, and nothing of a token is computed again in later steps.

Source:
    DeepSeek-AI 2024, "DeepSeek-V2", arXiv:2405.04434, section 2.1 and appendix C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.architectures.decoders.programs import DecoderAttention, HeadCounts
from rlx_models.architectures.decoders.spec import Latent
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import Parameters, layer_shapes, linear
from rlx_models.layers.rope import rope_config, rotary, yarn_factor, yarn_scale

__all__ = ["LatentAttention", "latent_attention"]


@frozen(kw_only=True)
class LatentAttention:
    """Queries, keys and values of a layer, and attention over them, up to the product `out`.

    Attributes:
        d: Features between layers.
        count: The number of heads.
        query_rank, rank: Features of the latent vectors of queries (`None`: queries are one product) and of keys and values.
        plain, rotated: Features of a key from the latent vector, and with positions.
        value_size: Features of a value.
        scale: Of scores.
        eps: Of the norms of latent vectors.
        has_bias: Whether the products that give latent vectors have biases.
        rope: The rotation.
    """

    d: int
    count: int
    query_rank: int | None
    rank: int
    plain: int
    rotated: int
    value_size: int
    scale: float
    eps: float
    has_bias: bool
    rope: Callable[[Any, Any], Any] = field(eq=False)

    @property
    def heads(self) -> HeadCounts:
        """The heads of queries, and the one of keys and values: the latent vector and the rotated key."""
        return HeadCounts(self.count, 1, self.rank + self.rotated, self.rank)

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the attention called `at`, without those of `out`."""
        queries = self.count * (self.plain + self.rotated)
        if self.query_rank is None:
            shapes = layer_shapes(f"{at}.q_proj", queries, self.d, has_bias=False)
        else:
            shapes = {
                **layer_shapes(f"{at}.q_a_proj", self.query_rank, self.d, has_bias=self.has_bias),
                f"{at}.q_a_layernorm.weight": (self.query_rank,),
                **layer_shapes(f"{at}.q_b_proj", queries, self.query_rank, has_bias=False),
            }
        outputs = self.count * (self.plain + self.value_size)
        return {
            **shapes,
            **layer_shapes(f"{at}.kv_a_proj_with_mqa", self.rank + self.rotated, self.d, has_bias=self.has_bias),
            f"{at}.kv_a_layernorm.weight": (self.rank,),
            **layer_shapes(f"{at}.kv_b_proj", outputs, self.rank, has_bias=False),
        }

    def __call__(
        self, parameters: Parameters, at: str, number: int, x: Any, positions: Any, attend: DecoderAttention
    ) -> Any:
        """f32[batch, steps, d] -> f32[batch, steps, heads · value_size]."""
        weights = rlx.reshape(
            parameters[f"{at}.kv_b_proj.weight"], (self.count, self.plain + self.value_size, self.rank)
        )
        q = rlx.reshape(self._queries(parameters, at, x), (*x.shape[:-1], self.count, self.plain + self.rotated))
        turned = rlx.reshape(q[..., self.plain :], (*x.shape[:-1], -1))
        turned = rlx.reshape(self.rope(turned, positions), (*x.shape[:-1], self.count, self.rotated))
        product = rlx.einsum("bshn,hnr->bshr", q[..., : self.plain], weights[:, : self.plain])
        queries = rlx.reshape(rlx.concat([product, turned], axis=-1), (*x.shape[:-1], -1))

        both = linear(parameters, f"{at}.kv_a_proj_with_mqa", x)
        latent = nn.rms_norm(both[..., : self.rank], parameters[f"{at}.kv_a_layernorm.weight"], eps=self.eps)
        keys = rlx.concat([latent, self.rope(both[..., self.rank :], positions)], axis=-1)

        seen = rlx.reshape(attend(number, queries, keys, latent), (*x.shape[:-1], self.count, self.rank))
        values = rlx.einsum("bshr,hvr->bshv", seen, weights[:, self.plain :])
        return rlx.reshape(values, (*x.shape[:-1], -1))

    def _queries(self, parameters: Parameters, at: str, x: Any) -> Any:
        if self.query_rank is None:
            return linear(parameters, f"{at}.q_proj", x)
        latent = linear(parameters, f"{at}.q_a_proj", x)
        latent = nn.rms_norm(latent, parameters[f"{at}.q_a_layernorm.weight"], eps=self.eps)
        return linear(parameters, f"{at}.q_b_proj", latent)


def latent_attention(kind: Latent, config: Config, d: int, heads: int) -> LatentAttention:
    """Return the attention that a configuration states."""
    plain, rotated = config.size("qk_nope_head_dim", 128), config.size("qk_rope_head_dim", 64)
    rank = config.rows.get("q_lora_rank", 1536)
    style: Literal["half", "interleaved"] = "interleaved" if config.flag("rope_interleave", True) else "half"
    room = config.size("max_position_embeddings", 4096)
    return LatentAttention(
        d=d,
        count=heads,
        query_rank=None if rank is None else config.size("q_lora_rank", 1536),
        rank=config.size("kv_lora_rank", 512),
        plain=plain,
        rotated=rotated,
        value_size=config.size("v_head_dim", 128),
        scale=(plain + rotated) ** -0.5 * _temperature(config),
        eps=kind.eps,
        has_bias=config.flag("attention_bias", False),
        rope=rotary(config, rotated, room, style=style),
    )


def _temperature(config: Config) -> float:
    """Return the multiplier of scores over texts that are longer than those of the first training."""
    options = rope_config(config)
    scale = options.number("mscale_all_dim", 0.0)
    if options.rows["rope_type"] == "default" or not scale:
        return 1.0
    return yarn_scale(yarn_factor(options), scale) ** 2
