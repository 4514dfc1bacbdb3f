"""What is written is accepted by `onnx.checker`, and ONNX Runtime computes from it what rlx computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import optree
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import FormatError, UnsupportedError
from rlx_onnx import load
from rlx_onnx.exporting import to_proto

DRAW = np.random.default_rng(5)
P = {"w": DRAW.normal(size=(4, 4)).astype("f"), "b": DRAW.normal(size=4).astype("f")}
K = {"k": DRAW.normal(size=(4, 3, 3, 3)).astype("f"), "b": DRAW.normal(size=4).astype("f")}
U = {"w": DRAW.normal(size=(8, 8)).astype("f"), "u": DRAW.normal(size=(2, 8)).astype("f")}

PROGRAMS: dict[str, tuple[Callable[..., Any], Any, str, tuple[int, ...]]] = {
    "mlp": (lambda p, x: nn.softmax(nn.gelu(nn.linear(x, p["w"], p["b"]))), P, "f32[n, 4]", (3, 4)),
    "movement": (
        lambda p, x: (
            x[:, 1:3],
            rlx.concat([x, x], axis=0),
            rlx.flip(x, axis=0),
            x.T @ x,
            rlx.reshape(x, (-1, 2)),
            rlx.tril(x),
        ),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "choices": (
        lambda p, x: (
            rlx.where(x > 0, x, 0),
            rlx.clip(x, -1, p["b"]),
            rlx.take(x, np.array([2, 0]), axis=1),
            rlx.maximum(x, p["b"]),
        ),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "reductions": (
        lambda p, x: (
            rlx.sum(x, axis=-1),
            rlx.max(x),
            rlx.std(x),
            rlx.var(x, axis=1),
            rlx.any(x > 0),
            rlx.argmax(x, axis=1),
            ~(x > 0) | (x > 1) ^ (x < 2),
        ),
        P,
        "f32[3, 4]",
        (3, 4),
    ),
    "order": (
        lambda p, x: (rlx.sort(x, axis=1), rlx.top_k(x, 2), rlx.cumulative_sum(x, axis=1)),
        P,
        "f32[3, 4]",
        (3, 4),
    ),
    "functions": (
        lambda p, x: (
            rlx.softplus(x),
            rlx.expm1(x * 0.01),
            rlx.log1p(x * x),
            rlx.remainder(x, 0.7),
            nn.silu(x),
            rlx.trunc(x),
        ),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "norms": (
        lambda p, x: (nn.layer_norm(x, p["b"], p["b"]), nn.rms_norm(x, p["b"]), nn.log_softmax(x)),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "pictures": (
        lambda p, x: (nn.max_pool(nn.conv(x, p["k"], p["b"], padding=1), 2), nn.avg_pool(x, 2), nn.global_avg_pool(x)),
        K,
        "f32[n, 3, 8, 8]",
        (2, 3, 8, 8),
    ),
    "attention": (lambda p, x: nn.attention(x, x, x, num_heads=2, is_causal=True), P, "f32[b, t, 8]", (2, 5, 8)),
    "lstm": (lambda p, x: nn.lstm(x, p["w"], p["u"], reverse=True)[0], U, "f32[2, 5, 8]", (2, 5, 8)),
    "branches": (lambda p, x: rlx.cond(rlx.sum(x) > 0, lambda: x + p["b"], lambda: x - 1), P, "f32[n, 4]", (3, 4)),
    "steps while": (
        lambda p, x: rlx.while_loop(lambda c: rlx.max(c) < 9, lambda c: c * 2 + p["b"] ** 2, x**2),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "at most so many steps": (
        lambda p, x: rlx.while_loop(lambda c: c[0] < 99, lambda c: (c[0] + 1, c[1] + p["b"]), (0, x), max_steps=3),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "no step": (
        lambda p, x: rlx.while_loop(lambda c: rlx.any(c > 99), lambda c: c + p["b"], x),
        P,
        "f32[n, 4]",
        (3, 4),
    ),
    "gradient of gelu": (lambda p, x: rlx.grad(lambda x: rlx.sum(nn.gelu(x @ p["w"])))(x), P, "f32[n, 4]", (3, 4)),
    "spectra": (
        lambda p, x: (
            rlx.abs(rlx.fft.fft(x, axis=0)),
            rlx.real(rlx.fft.ifft(rlx.fft.fft(x) * (1 + 2j))),
            rlx.imag(rlx.fft.rfft2(x, norm="ortho")),
            rlx.fft.irfft(rlx.fft.rfft(x, norm="forward") * rlx.fft.rfft(x), n=5, axis=-1),
            rlx.fft.irfft(rlx.fft.rfft(x, axis=0), n=3, axis=0, norm="ortho"),
        ),
        P,
        "f32[3, 5]",
        (3, 5),
    ),
    "spectra of any batch": (lambda p, x: rlx.abs(rlx.fft.rfft(x, norm="ortho")), P, "f32[n, 6]", (2, 6)),
    "loop": (lambda p, x: rlx.fori_loop(0, 3, lambda i, c: c * p["b"] + i, x), P, "f32[n, 4]", (3, 4)),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_is_valid_and_reads_back(name: str) -> None:
    """ONNX's checker accepts it, shapes included, and this package reads it as the same function."""
    function, parameters, kind, size = PROGRAMS[name]
    compiled = rlx.compile(function, parameters, rlx.spec(kind))
    proto = to_proto(compiled)
    onnx.checker.check_model(proto, full_check=True)

    x = DRAW.normal(size=size).astype("f")
    for a, b in zip(optree.tree_leaves(compiled(x)), optree.tree_leaves(load(proto)(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)  # f32: products in another order


@pytest.mark.parametrize("name", PROGRAMS)
def test_onnx_runtime_agrees(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    function, parameters, kind, size = PROGRAMS[name]
    compiled = rlx.compile(function, parameters, rlx.spec(kind))
    session = runtime.InferenceSession(to_proto(compiled).SerializeToString(), providers=["CPUExecutionProvider"])

    x = DRAW.normal(size=size).astype("f")
    found = session.run(None, {each.name: x for each in session.get_inputs()})
    for a, b in zip(optree.tree_leaves(compiled(x)), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)  # as above


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    """`rlx.save` by suffix; parameters keep their names."""
    path = tmp_path / "m.onnx"
    rlx.save(path, rlx.compile(PROGRAMS["mlp"][0], P, rlx.spec("f32[n, 4]")))

    assert sorted(rlx.load(path).parameters) == ["p.b", "p.w"]


def test_ops_that_onnx_has_not_are_named_together() -> None:
    compiled = rlx.compile(lambda x: rlx.lgamma(x) + rlx.erfinv(x), rlx.spec("f32[3]"))

    with pytest.raises(UnsupportedError, match=r"2 operations are not supported: rlx\.lgamma, rlx\.erfinv"):
        to_proto(compiled)


def test_only_programs_are_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a dict"):
        rlx.save(tmp_path / "m.onnx", {"w": np.ones(3)})
