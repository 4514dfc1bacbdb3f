"""Operations of ai.onnx.ml: models of classical machine learning, as scikit-learn's exporter writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import CycleError, FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.system.records import frozen
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows

DOMAIN = "ai.onnx.ml"

MOST_NUMBERS = 4096
"""Numbers in the dictionaries of a ZipMap, each of which is a result of the program by itself."""


@handles("Scaler", domain=DOMAIN)
def scaler(node: OnnxNode, x: Any) -> Any:
    """(x − offset) · scale of each feature, in f32."""
    offset, scale = _floats(node, "offset", [0.0]), _floats(node, "scale", [1.0])
    for name, values in (("offset", offset), ("scale", scale)):
        if values.size not in (1, x.shape[-1]):
            raise FormatError(f"{node}: {name} has {values.size} numbers for {x.shape[-1]} features")
    return (rlx.astype(x, rlx.f32) - offset) * scale


@handles("Normalizer", domain=DOMAIN)
def normalizer(node: OnnxNode, x: Any) -> Any:
    """Rows divided by their largest element, the sum of their moduli or their length; rows for which that is 0 stay."""
    norm = node.choice("norm", "MAX", "L1", "L2")
    x = rlx.astype(x, rlx.f32)
    axis = x.ndim - 1
    if norm == "MAX":
        size = rlx.max(x, axis=axis, keepdims=True)
    elif norm == "L1":
        size = rlx.sum(rlx.abs(x), axis=axis, keepdims=True)
    else:
        size = rlx.sqrt(rlx.sum(x * x, axis=axis, keepdims=True))
    return x / rlx.where(size == 0, np.float32(1), size)


rows({"Binarizer": lambda node, x: rlx.astype(x > float(node.get("threshold", 0.0)), dtype_of(x.dtype))}, domain=DOMAIN)


@handles("ArrayFeatureExtractor", domain=DOMAIN)
def features(node: OnnxNode, x: Any, places: Any) -> Any:
    """Elements of the last axis; of one axis they become a row."""
    result = rlx.take(x, rlx.reshape(places, (-1,)), axis=x.ndim - 1)
    return rlx.reshape(result, (1, -1)) if x.ndim == 1 else result


@handles("ZipMap", domain=DOMAIN)
def zip_map(node: OnnxNode, x: Any) -> Any:
    """For each row a dictionary from labels to numbers."""
    labels = _labels(node, "classlabels_int64s")
    rows, count = x.shape if x.ndim == 2 else (1, x.shape[0])
    if not isinstance(rows, int):
        node.walk.specialise(node, "how many dictionaries there are")
    if count != len(labels):
        raise FormatError(f"{node}: it has {len(labels)} labels for {count} numbers")
    if rows * count > MOST_NUMBERS:
        node.refuse(
            f"{rows * count} numbers in dictionaries", f"at most {MOST_NUMBERS}, or this node's operand as a result"
        )
    table = rlx.reshape(x, (rows, count))
    return [{label: table[row, k] for k, label in enumerate(labels)} for row in range(rows)]


# ------------------------------------------------------------------------------------------ linear models


@handles("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: OnnxNode, x: Any) -> Any:
    """Labels, and scores of the classes."""
    labels = _labels(node, "classlabels_ints")
    bias = _floats(node, "intercepts", [])
    if bias.size < 2:
        node.refuse("a classifier with one score for two classes", "a score for each class")
    scores = _linear(node, x, bias)
    return _best(labels, scores), _transformed(node, scores)


@handles("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: OnnxNode, x: Any) -> Any:
    targets = int(node.get("targets", 1))
    return _transformed(node, _linear(node, x, _floats(node, "intercepts", [0.0] * targets)))


def _linear(node: OnnxNode, x: Any, bias: np.ndarray) -> Any:
    weights = _floats(node, "coefficients", [])
    if bias.size == 0 or weights.size != bias.size * x.shape[-1]:
        raise FormatError(f"{node}: {weights.size} coefficients for {x.shape[-1]} features and {bias.size} results")
    return rlx.astype(x, rlx.f32) @ weights.reshape(bias.size, -1).T + bias


# ------------------------------------------------------------------------------------------ trees


@frozen(eq=False)
class Forest:
    """Decision trees as tables by the index of a node; a leaf is its own successor.

    Attributes:
        roots: Places of the roots.
        depth: Steps from a root to the farthest leaf.
        features: The feature that a node compares.
        values: The threshold of the comparison.
        modes: The comparison: a name of `COMPARISONS`, or `LEAF`.
        then, otherwise: Places of the next node.
        takes_nan: Whether NaN goes to `then`.
        places: Numbers of a tree and of a node in it → the node's place.
    """

    roots: np.ndarray
    depth: int
    features: np.ndarray
    values: np.ndarray
    modes: np.ndarray
    then: np.ndarray
    otherwise: np.ndarray
    takes_nan: np.ndarray
    places: dict[tuple[int, int], int]


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "BRANCH_LEQ": lambda a, b: a <= b,
    "BRANCH_LT": lambda a, b: a < b,
    "BRANCH_GTE": lambda a, b: a >= b,
    "BRANCH_GT": lambda a, b: a > b,
    "BRANCH_EQ": lambda a, b: a == b,
    "BRANCH_NEQ": lambda a, b: a != b,
}


def _forest(node: OnnxNode, columns: Any) -> Forest:
    trees, numbers = node.get("nodes_treeids", []), node.get("nodes_nodeids", [])
    count = len(numbers)
    parts = {name: node.get(f"nodes_{name}", []) for name in ("featureids", "modes", "truenodeids", "falsenodeids")}
    values = _floats(node, "nodes_values", [])
    missing = node.get("nodes_missing_value_tracks_true") or [0] * count
    if not count or {len(trees), values.size, len(missing), *map(len, parts.values())} != {count}:
        raise FormatError(f"{node}: what it says of its {count} nodes is of different lengths")
    places = {key: place for place, key in enumerate(zip(trees, numbers, strict=True))}
    if len(places) != count:
        raise FormatError(f"{node}: two nodes of a tree have one number")
    modes = np.array(parts["modes"])
    leaves = modes == "LEAF"
    for mode in set(parts["modes"]) - {"LEAF", *COMPARISONS}:
        node.refuse(f"the comparison {mode}", ", ".join(COMPARISONS))
    indices = np.arange(count)
    following = []
    for name in ("truenodeids", "falsenodeids"):
        result = [places.get(key, -1) for key in zip(trees, parts[name], strict=True)]
        following.append(np.where(leaves, indices, result))
    features = np.array(parts["featureids"])
    if any((each < 0).any() for each in following) or (~leaves & ((features < 0) | (features >= columns))).any():
        raise FormatError(f"{node}: a node goes to one, or reads a feature, that is not there")
    then, otherwise = following
    below = np.bincount(np.concatenate([each[~leaves] for each in following]), minlength=count)
    roots = indices[below == 0]
    return Forest(
        roots=roots,
        depth=_depth(node, roots, then, otherwise, leaves),
        features=np.where(leaves, 0, features),
        values=values,
        modes=modes,
        then=then,
        otherwise=otherwise,
        takes_nan=np.array(missing, bool),
        places=places,
    )


def _depth(node: OnnxNode, roots: np.ndarray, then: np.ndarray, otherwise: np.ndarray, leaves: np.ndarray) -> int:
    """Steps to the farthest leaf.

    Raises:
        CycleError: Nodes go round in a circle, or two go to one.
    """
    level, depth, seen = roots, 0, len(roots)
    while not leaves[level].all():
        inner = level[~leaves[level]]
        level, depth = np.concatenate([then[inner], otherwise[inner]]), depth + 1
        seen += len(level)
        if seen > len(leaves):
            break
    if seen != len(leaves):
        raise CycleError(f"{node}: its nodes are no trees: some are reached twice, or from no root")
    return depth


def _leaves_of(forest: Forest, x: Any) -> Any:
    """The place of each row's leaf in each tree: `[rows, trees]`."""
    inner = sorted(set(forest.modes.tolist()) - {"LEAF"})
    kinds = np.array([inner.index(each) if each in inner else 0 for each in forest.modes.tolist()])

    def step(number: Any, current: Any) -> Any:
        value, edge = (
            rlx.take_along_axis(x, rlx.take(forest.features, current), axis=1),
            rlx.take(forest.values, current),
        )
        goes = rlx.zeros(current.shape, dtype=rlx.bool_)
        for kind, mode in enumerate(inner):
            holds = COMPARISONS[mode](value, edge)
            goes = holds if len(inner) == 1 else rlx.where(rlx.take(kinds, current) == kind, holds, goes)
        if forest.takes_nan.any():
            goes = rlx.logical_or(goes, rlx.logical_and(rlx.take(forest.takes_nan, current), rlx.isnan(value)))
        return rlx.where(goes, rlx.take(forest.then, current), rlx.take(forest.otherwise, current))

    current = rlx.broadcast_to(rlx.asarray(forest.roots), (x.shape[0], len(forest.roots)))
    return rlx.fori_loop(0, forest.depth, step, current)


def _weights(node: OnnxNode, forest: Forest, kind: str, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the contribution of each leaf to each result, and whether it has one: `[nodes, results]`."""
    listed = [node.get(f"{kind}_{name}", []) for name in ("treeids", "nodeids", "ids")]
    weights = _floats(node, f"{kind}_weights", [])
    if {len(each) for each in listed} != {weights.size}:
        raise FormatError(f"{node}: what it says of its {weights.size} weights is of different lengths")
    node.counted(len(forest.features) * columns, "number of weights")
    table = np.zeros((len(forest.features), columns), np.float32)
    has = np.zeros(table.shape, bool)
    for tree, number, column, weight in zip(*listed, weights, strict=True):
        place = forest.places.get((tree, number), -1)
        if place < 0 or not 0 <= column < columns:
            raise FormatError(f"{node}: a weight of node {number} of tree {tree} for result {column} has no place")
        table[place, column] += weight
        has[place, column] = True
    return table, has


AGGREGATES: dict[str, Callable[..., Any]] = {"SUM": rlx.sum, "AVERAGE": rlx.mean, "MIN": rlx.min, "MAX": rlx.max}


@handles("TreeEnsembleRegressor", domain=DOMAIN)
def tree_regressor(node: OnnxNode, x: Any) -> Any:
    """Sums, means or extremes of the leaves' weights over all trees."""
    x, targets = _rows(node, x), int(node.get("n_targets", 1))
    forest = _forest(node, x.shape[1])
    table, _ = _weights(node, forest, "target", node.counted(targets, "number of results"))
    result = rlx.take(table, _leaves_of(forest, x), axis=0)
    how = node.choice("aggregate_function", "SUM", "AVERAGE", "MIN", "MAX")
    merged = AGGREGATES[how](result, axis=1)
    base = _floats(node, "base_values", [])
    return _transformed(node, merged + base if base.size else merged)


@handles("TreeEnsembleClassifier", domain=DOMAIN)
def tree_classifier(node: OnnxNode, x: Any) -> Any:
    """Labels, and scores of the classes; of two classes the leaves have weights of class 0 alone, and mean the second label."""
    labels, x = _labels(node, "classlabels_int64s"), _rows(node, x)
    forest = _forest(node, x.shape[1])
    table, has = _weights(node, forest, "class", len(labels))
    base = _floats(node, "base_values", [])
    leaf_indices = _leaves_of(forest, x)
    if len(labels) == 2:
        return _of_two(
            node, labels, rlx.sum(rlx.take(table, leaf_indices, axis=0), axis=1), np.asarray(has.any(axis=0)), base
        )
    if base.size not in (0, len(labels)):
        raise FormatError(f"{node}: it has {base.size} base values for {len(labels)} classes")
    scores = rlx.sum(rlx.take(table, leaf_indices, axis=0), axis=1)
    if base.size:
        scores = scores + base
        return _best(labels, scores), _transformed(node, scores)
    # A class without votes of any leaf is not chosen, even if the other scores are below 0.
    voted = rlx.any(rlx.take(has, leaf_indices, axis=0), axis=1)
    return _best(labels, rlx.where(voted, scores, np.float32(-np.inf))), _transformed(node, scores)


def _of_two(node: OnnxNode, labels: np.ndarray, scores: Any, used: np.ndarray, base: np.ndarray) -> tuple[Any, Any]:
    """The second label where the score is beyond a half, or beyond 0 where some weights are negative."""
    if used[1] or base.size > 1:
        node.refuse("a forest with weights or base values of both of two classes", "weights of class 0 alone")
    score = scores[:, 0] + (base[0] if base.size else np.float32(0))
    is_probability = bool((_floats(node, "class_weights", []) >= 0).all())
    transform = node.choice("post_transform", "NONE", "LOGISTIC")
    if is_probability:
        if transform != "NONE":
            node.refuse(f"post_transform {transform} of weights that are no logits", "NONE")
        first = 1 - score
    else:
        first = -score
    label = rlx.where(score > (0.5 if is_probability else 0), labels[1], labels[0])
    pair = rlx.stack([first, score], axis=1)
    return label, rlx.sigmoid(pair) if transform == "LOGISTIC" else pair


# ------------------------------------------------------------------------------------------ what they share


def _floats(node: OnnxNode, name: str, default: list[float]) -> np.ndarray:
    """Return an attribute that is a list of floats, or the tensor attribute that newer versions have in its place."""
    values = node.get(f"{name}_as_tensor")
    return np.asarray(node.get(name, default) if values is None else values, np.float32).reshape(-1)


def _labels(node: OnnxNode, name: str) -> np.ndarray:
    """The labels of the classes.

    Raises:
        UnsupportedError: They are texts.
    """
    result = node.get(name, [])
    if not result:
        node.refuse("texts as labels", "integers as labels")
    return np.array(result, np.int64)


def _rows(node: OnnxNode, x: Any) -> Any:
    """The operand as rows of floats."""
    if x.ndim != 2:
        raise FormatError(f"{node}: it takes rows of features, not {x.ndim} axes")
    return x if dtype_of(x.dtype).is_float else rlx.astype(x, rlx.f32)


def _best(labels: np.ndarray, scores: Any) -> Any:
    if scores.shape[-1] != len(labels):
        raise FormatError(f"{len(labels)} labels for {scores.shape[-1]} classes")
    return rlx.take(labels, rlx.argmax(scores, axis=1))


def _transformed(node: OnnxNode, scores: Any) -> Any:
    how = node.choice("post_transform", "NONE", "LOGISTIC", "SOFTMAX")
    return rlx.sigmoid(scores) if how == "LOGISTIC" else rlx.softmax(scores, axis=-1) if how == "SOFTMAX" else scores
