"""Operations of ai.onnx.ml on models written by hand, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_graphs import model, node

from rlx_core.errors import CycleError, FormatError, UnsupportedError
from rlx_onnx import load

ML = {"ai.onnx.ml": 3}
DRAW = np.random.default_rng(3)
X = np.round(DRAW.normal(size=(6, 4)) * 2, 1).astype("f")


def made(op: str, outputs: list[str], **attributes: Any) -> Any:
    names = [each.partition(":")[0] for each in outputs]
    return model(
        [node(op, ["x"], names, domain="ai.onnx.ml", **attributes)], ["x: f32[n, 4]"], outputs, domains=ML, opset=21
    )


def check(proto: Any, x: np.ndarray = X) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = load(proto)(x)
    found = list(found.values()) if len(wanted) > 1 else [found]
    for a, b in zip(wanted, found, strict=True):
        assert np.asarray(b).dtype == a.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-7)  # f32: sums in another order


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_normalised(norm: str) -> None:
    check(made("Normalizer", ["y: f32[n, 4]"], norm=norm), np.concatenate([np.abs(X), np.zeros((1, 4), "f")]))


@pytest.mark.parametrize("numbers", [1, 4])
def test_features_are_scaled(numbers: int) -> None:
    check(
        made("Scaler", ["y: f32[n, 4]"], offset=[0.5, 1.0, -2.0, 3.0][:numbers], scale=[2.0, 0.1, 1.0, 3.0][:numbers])
    )


def test_as_many_numbers_as_features_or_one_scale_them() -> None:
    with pytest.raises(FormatError, match="offset has 2 numbers for 4 features"):
        load(made("Scaler", ["y: f32[n, 4]"], offset=[0.5, 1.0], scale=[1.0]))


@pytest.mark.medium
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(transform: str) -> None:
    weights = {
        "coefficients": DRAW.normal(size=12).tolist(),
        "intercepts": [0.1, 0.2, -0.3],
        "post_transform": transform,
    }
    check(made("LinearClassifier", ["y: i64[n]", "p: f32[n, 3]"], classlabels_ints=[7, 3, 5], **weights))
    if transform == "NONE":
        check(made("LinearRegressor", ["y: f32[n, 3]"], targets=3, **weights))


def test_a_linear_model_for_other_features_is_broken() -> None:
    weights = {"coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2]}
    with pytest.raises(FormatError, match="6 coefficients for 4 features and 3 results"):
        load(made("LinearClassifier", ["y: i64[n]", "p: f32[n, 3]"], **weights))


def test_rows_become_dictionaries_from_labels_to_numbers() -> None:
    proto = made("ZipMap", ["y: f32[n]"], classlabels_int64s=[7, 3, 5, 9])
    row = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    proto.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(row))

    found = load(proto)(X)

    assert [{key: float(each) for key, each in row.items()} for row in found] == [
        dict(zip([7, 3, 5, 9], map(float, row), strict=True)) for row in X
    ]


def test_a_program_has_a_result_for_each_number_so_there_is_a_limit() -> None:
    found = load(made("ZipMap", ["y: f32[n]"], classlabels_int64s=[7, 3, 5, 9]))

    with pytest.raises(UnsupportedError, match="8000 numbers in dictionaries") as caught:
        found(np.zeros((2000, 4), "f"))
    assert "this node's operand as a result" in (caught.value.hint or "")


# ------------------------------------------------------------------------------------------ trees


def trees(modes: tuple[str, ...] = ("BRANCH_LEQ",), **others: Any) -> dict[str, Any]:
    """Two trees: one of depth 2, whose nodes are not in order, and one of depth 1."""
    leaf = "LEAF"
    inner = [modes[k % len(modes)] for k in range(3)]
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 4, 1, 2, 3, 0, 1, 2],
        "nodes_featureids": [1, 2, 0, 0, 0, 3, 0, 0],
        "nodes_modes": [inner[0], inner[1], leaf, leaf, leaf, inner[2], leaf, leaf],
        "nodes_values": [0.2, -0.4, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
    } | others


def leaves(kind: str, columns: list[int], weights: list[float]) -> dict[str, Any]:
    return {
        f"{kind}_treeids": [0, 0, 0, 1, 1],
        f"{kind}_nodeids": [1, 2, 3, 1, 2],
        f"{kind}_ids": columns,
        f"{kind}_weights": weights,
    }


MIXED = [0.3, -0.7, 0.9, 0.1, -0.45]


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
def test_a_regressor_adds_the_leaves_of_its_trees(mode: str) -> None:
    first, second = leaves("target", [0] * 5, MIXED), leaves("target", [1] * 5, MIXED[::-1])
    forest = trees((f"BRANCH_{mode}",)) | {name: first[name] + second[name] for name in first}
    check(made("TreeEnsembleRegressor", ["y: f32[n, 2]"], n_targets=2, base_values=[0.5, -0.5], **forest))


@pytest.mark.medium
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_it_may_take_other_aggregates_and_comparisons(how: str) -> None:
    forest = trees(("BRANCH_LT", "BRANCH_GT", "BRANCH_LEQ")) | leaves("target", [0] * 5, MIXED)
    check(made("TreeEnsembleRegressor", ["y: f32[n, 1]"], n_targets=1, aggregate_function=how, **forest))


@pytest.mark.medium
def test_nan_goes_where_the_node_says() -> None:
    forest = trees(nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 0, 0, 0]) | leaves("target", [0] * 5, MIXED)
    check(made("TreeEnsembleRegressor", ["y: f32[n, 1]"], n_targets=1, **forest), np.where(X > 1, np.nan, X))


@pytest.mark.medium
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [None, [0.1, 0.2, 0.3]])
@pytest.mark.parametrize("weights", [MIXED, [-abs(each) for each in MIXED]])
def test_a_classifier_chooses_the_class_with_the_largest_sum(transform: str, base: Any, weights: list[float]) -> None:
    forest = trees() | leaves("class", [0, 1, 2, 1, 0], weights) | ({"base_values": base} if base else {})
    outputs = ["y: i64[n]", "p: f32[n, 3]"]
    check(made("TreeEnsembleClassifier", outputs, classlabels_int64s=[7, 3, 5], post_transform=transform, **forest))


@pytest.mark.medium
@pytest.mark.parametrize("base", [None, [0.25]])
@pytest.mark.parametrize(
    ("weights", "transform"), [([0.3, 0.1, 0.5, 0.0, 0.4], "NONE"), (MIXED, "NONE"), (MIXED, "LOGISTIC")]
)
def test_of_two_classes_one_has_weights(base: Any, weights: list[float], transform: str) -> None:
    forest = trees() | leaves("class", [0] * 5, weights) | ({"base_values": base} if base else {})
    outputs = ["y: i64[n]", "p: f32[n, 2]"]
    check(made("TreeEnsembleClassifier", outputs, classlabels_int64s=[4, 6], post_transform=transform, **forest))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"nodes_truenodeids": [1, 2, 0, 0, 0, 9, 0, 0]}, FormatError, "goes to one"),
        ({"nodes_featureids": [1, 2, 0, 0, 0, 4, 0, 0]}, FormatError, "that is not there"),
        ({"nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}, CycleError, "no trees"),
        ({"nodes_falsenodeids": [4, 2, 0, 0, 0, 2, 0, 0]}, CycleError, "no trees"),
        ({"nodes_nodeids": [0, 4, 1, 2, 2, 0, 1, 2]}, FormatError, "one number"),
        ({"nodes_values": [0.0]}, FormatError, "different lengths"),
        ({"target_nodeids": [1, 2, 3, 1, 8]}, FormatError, "has no place"),
        ({"target_ids": [0, 1, 0, 2, 0]}, FormatError, "has no place"),
        ({"nodes_modes": ["BRANCH_MEMBER"] + ["LEAF"] * 7}, UnsupportedError, "the comparison BRANCH_MEMBER"),
    ],
)
def test_what_is_no_forest_is_refused(change: dict[str, Any], error: type[Exception], says: str) -> None:
    forest = trees() | leaves("target", [0, 1, 0, 1, 0], MIXED) | change
    with pytest.raises(error, match=says):
        load(made("TreeEnsembleRegressor", ["y: f32[n, 2]"], n_targets=2, **forest))


def test_what_is_not_clear_is_refused() -> None:
    forest = trees() | leaves("class", [0, 1, 0, 1, 0], MIXED)
    outputs = ["y: i64[n]", "p: f32[n, 2]"]
    with pytest.raises(UnsupportedError, match="values of both of two classes"):
        load(made("TreeEnsembleClassifier", outputs, classlabels_int64s=[0, 1], **forest))
    with pytest.raises(UnsupportedError, match="texts as labels"):
        load(made("TreeEnsembleClassifier", outputs, classlabels_strings=["a", "b"], **forest))
