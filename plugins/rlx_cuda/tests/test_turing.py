"""Compute capability 7.5: the language without matrix units."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import ConfigError
from rlx_core.plugins import PluginHost


def test_the_oldest_architecture_has_no_matrix_instructions(known: PluginHost) -> None:
    words = ["compile", "--op", "matmul f16[256,256] f16[256,256]", "--target", "cuda:absent", "--emit", "cuda"]
    newer = CliRunner().invoke(app, words, obj=lambda policy: known)
    oldest = CliRunner().invoke(app, [*words, "--arch", "sm_75"], obj=lambda policy: known)
    assert oldest.exit_code == newer.exit_code == 0, oldest.output
    assert "mma.sync" in newer.output
    assert "mma.sync" not in oldest.output
    assert "cp.async" not in oldest.output


def test_tf32_is_refused_for_the_oldest_architecture(known: PluginHost) -> None:
    options = {"cuda.arch": "sm_75", "cuda.tf32": True}
    with pytest.raises(ConfigError, match="no matrix units for TF32"):
        rlx.compile(
            lambda x: x @ x, rlx.spec("f32[8,8]"), target="cuda:absent", config={"options": options}, host=known
        )
