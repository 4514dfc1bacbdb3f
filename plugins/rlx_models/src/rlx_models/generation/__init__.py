"""Autoregressive generation: `generate` with a cache that is updated in place, options of checkpoints, and sampling."""

from rlx_models.generation.generate import generate

__all__ = ["generate"]
