"""`GroupQueryAttention` beside ONNX Runtime, whose it is: prompts, caches, sequences of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_graphs import model, node

from rlx_onnx import load

DRAW = np.random.default_rng(5)
HEADS, SHARED, WIDTH = 4, 2, 16
ANGLES = np.outer(np.arange(16), 0.3 ** np.arange(WIDTH // 2)).astype("f")
NAMES = ("q", "k", "v", "past_k", "past_v", "ends", "total", "cos", "sin")


def drawn(*size: int) -> np.ndarray:
    return DRAW.normal(size=size).astype("f")


def operands(batch: int, length: int, past: int | None, ends: list[int], total: int) -> dict[str, np.ndarray]:
    found = {"q": drawn(batch, length, HEADS * WIDTH)}
    found |= {name: drawn(batch, length, SHARED * WIDTH) for name in "kv"}
    if past is not None:
        found |= {name: drawn(batch, SHARED, past, WIDTH) for name in ("past_k", "past_v")}
    return found | {"ends": np.array(ends, np.int32), "total": np.array(total, np.int32)}


TURNED = {"cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}
CASES: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {
    "a prompt": (operands(2, 5, None, [4, 4], 5), {}),
    "prompts of different lengths": (operands(2, 5, None, [4, 2], 5), {}),
    "a prompt with an empty cache": (operands(1, 5, 0, [4], 5), {}),
    "one more": (operands(2, 1, 6, [6, 6], 7), {}),
    "one more in a cache with room": (operands(2, 1, 12, [6, 6], 7), {}),
    "one more behind pasts of different lengths": (operands(2, 1, 12, [6, 3], 7), {}),
    "some more": (operands(1, 3, 4, [6], 7), {}),
    "turned": (operands(2, 1, 6, [6, 4], 7) | TURNED, {"do_rotary": 1}),
    "turned in pairs": (operands(1, 4, None, [3], 4) | TURNED, {"do_rotary": 1, "rotary_interleaved": 1}),
    "a window": (operands(1, 6, None, [5], 6), {"local_window_size": 2}),
    "a window over a cache": (operands(1, 1, 6, [6], 7), {"local_window_size": 3}),
    "a cap and a scale": (operands(1, 4, None, [3], 4), {"softcap": 2.0, "scale": 0.5}),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_its_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    given, how = CASES[name]
    proto = graph(given, how, {key: str(list(each.shape)) for key, each in given.items()})
    wanted = runtime.InferenceSession(proto.SerializeToString()).run(None, given)

    total = {"total": given["total"]}
    found = load(proto, known=total)(*(each for key, each in given.items() if key != "total"))

    for batch, end in enumerate(given["ends"]):
        rows = min(int(end) + 1, given["q"].shape[1])  # those behind the end of a prompt are anything
        np.testing.assert_allclose(found["y"][batch, :rows], wanted[0][batch, :rows], rtol=1e-4, atol=1e-5)
        for key, own in (("present_k", wanted[1]), ("present_v", wanted[2])):
            assert found[key].shape == own.shape
            np.testing.assert_allclose(found[key][batch, :, : end + 1], own[batch, :, : end + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize(("past", "total"), [(3, 4), (12, 7)])
def test_sizes_are_free(past: int, total: int) -> None:
    """As decoders are exported: the length in all is a size of the mask, the cache grows by what comes or has room for it."""
    runtime = pytest.importorskip("onnxruntime")
    given = operands(2, 1, past, [total - 1, total - 1], total)
    mask = np.ones((2, total), np.int64)
    shapes = {"q": f"[b, s, {HEADS * WIDTH}]"} | dict.fromkeys("kv", f"[b, s, {SHARED * WIDTH}]")
    shapes |= dict.fromkeys(("past_k", "past_v"), f"[b, {SHARED}, p, {WIDTH}]")
    proto = graph(given, {}, shapes | {"ends": "[b]"}, mask=True)
    del given["total"]

    y, *caches = load(proto)(*given.values(), mask).values()

    wanted = runtime.InferenceSession(proto.SerializeToString()).run(None, given | {"mask": mask})
    np.testing.assert_allclose(y, wanted[0], rtol=1e-4, atol=1e-5)
    for own, each in zip(caches, wanted[1:], strict=True):
        assert own.shape == each.shape
        np.testing.assert_array_equal(own[:, :, :total], each[:, :, :total])


def graph(given: dict[str, np.ndarray], how: dict[str, Any], shapes: dict[str, str], *, mask: bool = False) -> Any:
    names = [key if key in given else "" for key in NAMES]
    nodes = [
        node(
            "GroupQueryAttention",
            names,
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=SHARED,
            **how,
        )
    ]
    kinds = {key: "i32" if key in ("ends", "total") else "f32" for key in given}
    inputs = [f"{key}: {kinds[key]}{shapes[key]}" for key in given if key != "total" or not mask]
    tensors = {}
    if mask:
        inputs.append("mask: i64[b, t]")
        nodes[:0] = [
            node("Shape", ["mask"], ["sizes"]),
            node("Gather", ["sizes", "one"], ["size"]),
            node("Cast", ["size"], ["total"], to=6),
        ]
        tensors = {"one": np.array(1)}
    outputs = ["y: f32[a, c, d]", "present_k: f32[a, e, f, g]", "present_v: f32[a, e, f, g]"]
    return model(nodes, inputs, outputs, tensors, opset=17, domains={"com.microsoft": 1})
