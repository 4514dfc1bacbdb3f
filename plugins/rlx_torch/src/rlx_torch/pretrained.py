"""The former location of pretrained models: every import of it raises an error that names the package rlx-models."""

from __future__ import annotations

from rlx_core.errors import PluginError


class MovedModuleError(PluginError, ImportError):
    """A module is now part of another package; the hint has the present import."""


MovedModuleError.page = PluginError.page  # `rlx explain` has pages for classes of rlx_core.errors only

raise MovedModuleError(
    "rlx_torch.pretrained is now the package rlx_models, which does not need torch",
    hint="python -m pip install rlx-models; from rlx_models import from_pretrained, generate",
)
