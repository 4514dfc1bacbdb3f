"""Models with bytes and fields changed: `python onnx_mutations.py COUNT [SEED]` reads so many, `make fuzz-onnx` 200,000.

Each must give a model or a typed error, within a time and a memory. Kept short on purpose: the seeds are models of all kinds of
operations, so that what follows from an attribute or a size that lies is reached.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from mutation_runs import count_faults, outcome
from onnx import helper
from onnx_graphs import model, node

from rlx_onnx import load

SLICED = {"s": [0], "e": [3], "a": [1], "p": [0, 1, 0, 1], "t": [1, 2], "u": [2, 1, 1], "r": [-1]}
NUMBERS = (0, 1, -1, 2, 3, 7, 64, 2**15, 2**20, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))


def seeds() -> list[bytes]:
    """Small models, serialized."""
    f = "f"
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["w"]), node("Identity", ["on"], ["on_"]), node("Identity", ["w"], ["row"])],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("on", 9, []), ("v", 1, [2]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("on_", 9, []), ("w", 1, [2]), ("row", 1, [2]))],
    )
    branch = helper.make_graph([node("Neg", ["x"], ["b"])], "b", [], [helper.make_tensor_value_info("b", 1, [2])])
    squeezed = helper.make_graph(
        [node("Squeeze", ["x"], ["q"])], "q", [], [helper.make_tensor_value_info("q", 1, None)]
    )
    forest = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 1],
        "target_weights": [0.5, 2.0],
    }
    models = [
        model(
            [node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["y"], axis=-1)],
            ["x: f32[n, 3]"],
            ["y: f32[n, 3]"],
            {"w": np.eye(3, dtype=f)},
        ),
        model(
            [
                node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1], strides=[2, 2], group=1),
                node("MaxPool", ["h"], ["y"], kernel_shape=[2, 2], ceil_mode=1),
            ],
            ["x: f32[1, 1, 8, 8]"],
            ["y: f32[a, b, c, d]"],
            {"w": np.ones((2, 1, 3, 3), f)},
        ),
        model(
            [
                node("Slice", ["x", "s", "e", "a"], ["h"]),
                node("Pad", ["h", "p"], ["g"]),
                node("Tile", ["g", "t"], ["k"]),
                node("Expand", ["k", "u"], ["l"]),
                node("Reshape", ["l", "r"], ["y"]),
            ],
            ["x: f32[4, 4]"],
            ["y: f32[q]"],
            {
                k: np.array(v)
                for k, v in {
                    "s": [0],
                    "e": [3],
                    "a": [1],
                    "p": [0, 1, 0, 1],
                    "t": [1, 2],
                    "u": [2, 1, 1],
                    "r": [-1],
                }.items()
            },
        ),
        model(
            [
                node("Loop", ["n", "c", "x"], ["last", "y"], body=body),
                node("If", ["c"], ["z"], then_branch=branch, else_branch=branch),
            ],
            ["c: bool[]", "x: f32[2]"],
            ["y: f32[k, 2]", "z: f32[2]"],
            {"n": np.array(3)},
        ),
        model(
            [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2, direction="forward")],
            ["x: f32[3, 1, 2]"],
            ["y: f32[a, b, c, d]"],
            {"w": np.ones((1, 8, 2), f), "r": np.ones((1, 8, 2), f)},
        ),
        model(
            [
                node("Resize", ["x", "", "s"], ["h"], mode="cubic", antialias=1),
                node("DepthToSpace", ["h"], ["y"], blocksize=2),
            ],
            ["x: f32[1, 4, 4, 4]"],
            ["y: f32[a, b, c, d]"],
            {"s": np.array([1, 1, 2, 0.5], f)},
        ),
        model(
            [
                node("Range", ["a", "b", "c"], ["k"]),
                node("OneHot", ["k", "d", "v"], ["h"]),
                node("SplitToSequence", ["h"], ["q"], axis=0),
                node("ConcatFromSequence", ["q"], ["g"], axis=0),
                node("TopK", ["g", "t"], ["y", "i"]),
            ],
            [],
            ["y: f32[m, n]"],
            {
                "a": np.array(0),
                "b": np.array(4),
                "c": np.array(1),
                "d": np.array(4),
                "v": np.array([0, 1], f),
                "t": np.array([2]),
            },
        ),
        model(
            [
                node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                node("DequantizeLinear", ["q", "s", "z"], ["h"]),
                node("CumSum", ["h", "a"], ["g"]),
                node("ReduceSum", ["g", "r"], ["y"], keepdims=0),
                node("HannWindow", ["n"], ["win"]),
                node("ConstantOfShape", ["o"], ["cs"]),
            ],
            ["x: f32[2, 3]"],
            ["y: f32[k]", "win: f32[l]", "cs: f32[u]"],
            {
                "s": np.float32(0.1),
                "z": np.uint8(3),
                "a": np.array(1),
                "r": np.array([1]),
                "n": np.array(8),
                "o": np.array([3]),
            },
        ),
        model(
            [node("Squeeze", ["x"], ["h"], axes=[0]), node("Upsample", ["h"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])],
            ["x: f32[1, 1, 1, 2, 2]"],
            ["y: f32[a, b, c, d]"],
            opset=7,
        ),
        model(
            [
                node("Neg", ["x"], ["h"]),
                node("NonZero", ["h"], ["at"]),
                node("Compress", ["x", "c"], ["k"], axis=0),
                node("Unique", ["k"], ["u", "", "i"], axis=1, sorted=0),
                node("NonMaxSuppression", ["b", "s", "most"], ["y"]),
                node("Gather", ["at", "column"], ["z"], axis=1),
            ],
            ["x: f32[n, 3]", "c: bool[n]", "b: f32[1, m, 4]", "s: f32[1, 2, m]"],
            ["y: i64[k, 3]", "u: f32[a, b]", "i: i64[e]", "z: i64[2]"],
            {"most": np.array([2]), "column": np.array(0)},
        ),
        model(
            [
                node(
                    "GroupQueryAttention",
                    ["x", "x", "x", "p", "p", "e", "t"],
                    ["y", "", "z"],
                    domain="com.microsoft",
                    num_heads=2,
                    kv_num_heads=2,
                    local_window_size=2,
                )
            ],
            ["x: f32[1, 1, 8]", "p: f32[1, 2, 3, 4]"],
            ["y: f32[1, 1, 8]", "z: f32[1, 2, k, 4]"],
            {"e": np.array([2], np.int32), "t": np.array(3, np.int32)},
            domains={"com.microsoft": 1},
        ),
        model(
            [
                node("ReduceMax", ["l"], ["most"], keepdims=0),
                node("Range", ["zero", "most", "one"], ["at"]),
                node("TopK", ["x", "k"], ["y", "i"], axis=0),
                node("OneHot", ["at", "most", "pair"], ["z"], axis=0),
            ],
            ["l: i64[n]", "x: f32[m, 2]", "k: i64[1]"],
            ["y: f32[a, 2]", "z: f32[b, c]"],
            {"zero": np.array(0), "one": np.array(1), "pair": np.array([0, 1], f)},
        ),
        model(
            [
                node("Squeeze", ["x", "last"], ["s"]),
                node("Slice", ["s", "zeros", "k", "last"], ["cut"]),
                node("Shape", ["x"], ["sizes"]),
                node("Gather", ["sizes", "last"], ["size"]),
                node("Equal", ["size", "k"], ["is"]),
                node("If", ["is"], ["y"], then_branch=squeezed, else_branch=branch),
            ],
            ["x: f32[n, m]", "k: i64[1]"],
            ["y: f32[a]", "cut: f32[b]"],
            {"last": np.array([-1]), "zeros": np.array([0])},
        ),
        model(
            [
                node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, **forest),
                node("Normalizer", ["y"], ["z"], domain="ai.onnx.ml", norm="L1"),
                node("ZipMap", ["z"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[3, 5]),
            ],
            ["x: f32[2, 3]"],
            ["y: f32[2, 2]", "z: f32[2, 2]"],
            domains={"ai.onnx.ml": 3},
        ),
    ]
    return [each.SerializeToString() for each in models]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with some of them changed, or the model with some of its fields."""
    return _bytes(data, rng) if rng.random() < 0.5 else _fields(data, rng)


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    found = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(found) + 1))
        kind = rng.integers(4)
        if kind == 0 and at < len(found):
            found[at] = int(rng.integers(256))
        elif kind == 1:
            found[at : at + int(rng.integers(8))] = b""
        elif kind == 2:
            found[at:at] = rng.bytes(int(rng.integers(1, 8)))
        else:
            start = int(rng.integers(len(found) + 1))
            found[at:at] = found[start : start + int(rng.integers(64))]
    return bytes(found)


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in value if isinstance(value, list) or hasattr(value, "__len__") else [value]:
                yield from _messages(each)


def _fields(data: bytes, rng: np.random.Generator) -> bytes:
    proto = onnx.ModelProto.FromString(data)
    for _ in range(rng.integers(1, 4)):
        messages = [each for each in _messages(proto) if each.ListFields()]
        message = messages[rng.integers(len(messages))]
        fields = message.ListFields()
        field, value = fields[rng.integers(len(fields))]
        try:
            _change(message, field, value, rng, messages)
        except (TypeError, ValueError, AttributeError):  # a value that the field cannot hold
            continue
    return proto.SerializeToString()


def _change(message: Any, field: Any, value: Any, rng: np.random.Generator, messages: list[Any]) -> None:
    number = NUMBERS[rng.integers(len(NUMBERS))]
    names = [each.name for each in messages if "name" in each.DESCRIPTOR.fields_by_name]
    new: Any = names[rng.integers(len(names))] if field.type == field.TYPE_STRING else number
    if field.type == field.TYPE_BYTES:
        new = _bytes(value, rng) if isinstance(value, bytes) else b"x"
    if field.type == field.TYPE_FLOAT:
        new = float(rng.choice([0.0, -1.0, 1e30, np.nan, np.inf, 1e-30]))
    if hasattr(value, "append") or hasattr(value, "add"):
        at = int(rng.integers(len(value)))
        if rng.random() < 0.3:
            del value[at]
        elif field.type == field.TYPE_MESSAGE:
            value.append(value[int(rng.integers(len(value)))])
        elif rng.random() < 0.7:
            value[at] = new
        else:
            value.append(new)
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, new)


def outcome_of(data: bytes) -> str:
    """What becomes of a model: `read`, `refused`, or the fault."""
    return outcome(lambda: load(onnx.ModelProto.FromString(data)), DecodeError)


def main(count: int, seed: int) -> int:
    """Read so many in processes of their own; the number of faults, an end of a process among them."""
    given = seeds()
    load(onnx.ModelProto.FromString(given[0]))  # what is imported on first use is there in every child

    def changed(number: int) -> str:
        return outcome_of(mutated(given[number % len(given)], np.random.default_rng((seed, number))))

    return count_faults(changed, count, seed, memory=12 << 30)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), 1))
