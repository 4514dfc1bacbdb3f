"""Models of checkpoints: `from_pretrained(folder)`, and `generate` with those that continue a text. Neither needs torch."""

from rlx_torch.pretrained.generation import generate
from rlx_torch.pretrained.loading import from_pretrained

__all__ = ["from_pretrained", "generate"]
