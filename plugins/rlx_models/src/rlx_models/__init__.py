"""Models of checkpoints: `from_pretrained(folder)`, and `generate` with those that continue a text. Neither needs torch."""

from rlx_models.generation.generate import generate
from rlx_models.loading import from_pretrained

__all__ = ["from_pretrained", "generate"]
