"""`rlx onnx FILE` says what is in a model without running it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from onnx_graphs import model, node
from typer.testing import CliRunner

from rlx_core.cli.main import app


def test_operations_sizes_and_what_is_missing(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Bernoulli", ["h"], ["g"]),
        node("StringNormalizer", ["g"], ["y"], name="words"),
    ]
    path = tmp_path / "m.onnx"
    proto = model(nodes, ["x: f32[batch, 3]"], ["y: f32[batch, 3]"], {"w": np.eye(3, dtype="f")})
    path.write_bytes(proto.SerializeToString())

    said = CliRunner().invoke(app, ["onnx", str(path)]).output
    assert "float[batch, 3]" in said
    assert "1 of 9 elements, 36 bytes" in said
    assert "operations of version 21 brought to 28" in said
    assert "1 of 3 operations are missing" in said

    found = json.loads(CliRunner().invoke(app, ["onnx", "--json", str(path)]).output)
    assert found["missing"] == {"StringNormalizer": ["node words"]}
    assert found["operations"] == {"MatMul": 1, "Bernoulli": 1, "StringNormalizer": 1}


def test_what_runs_on_the_host_is_named(tmp_path: Path) -> None:
    """A model is more than one program where a size is found when it runs."""
    path = tmp_path / "m.onnx"
    proto = model([node("NonZero", ["x"], ["y"], name="where")], ["x: f32[batch, 3]"], ["y: i64[2, n]"])
    path.write_bytes(proto.SerializeToString())

    said = " ".join(CliRunner().invoke(app, ["onnx", str(path)]).output.split())
    assert "on the host, between two programs, unless what it takes is known node where (NonZero)" in said
    assert json.loads(CliRunner().invoke(app, ["onnx", "--json", str(path)]).output)["host"] == ["node where (NonZero)"]
