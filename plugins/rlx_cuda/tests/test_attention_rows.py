"""Which rows compute attention: matrix units where they can, and what is said where they cannot."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rlx_core.cli.main import app
from rlx_core.plugins import PluginHost


@pytest.mark.parametrize("op", ["attention", "attention_backward"])
@pytest.mark.parametrize(
    ("queries", "dtype", "rejected"),
    [
        (64, "bf16", None),
        (8, "bf16", "needs at least 16 queries, not 8"),
        (64, "f32", "needs operands of one dtype among bf16 f16"),
    ],
)
def test_attention_runs_on_units_or_says_what_it_lacks(
    host: PluginHost, op: str, queries: int, dtype: str, rejected: str | None
) -> None:
    seeing, seen = f"{dtype}[1,{queries},128]", f"{dtype}[1,64,128]"
    types = [seeing, seen, seen] + [seeing] * (op == "attention_backward")
    words = ["why", "kernel", op, "--target", "cuda", "--attr", "num_heads=2", "--attr", "head_dim=64"]
    done = CliRunner().invoke(app, [*words, "--types", ", ".join(types)], obj=lambda policy: host)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())  # lines are wrapped
    if rejected is None:
        assert f"on cuda: {op}_units" in said
    else:
        assert f"on cuda: {op}_tiles" in said
        assert f"{op}_units: {rejected}" in said
