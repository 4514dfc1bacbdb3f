"""Pytrees: leaves are named by their place, come back where they were, and differences are named."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, ShapeError, TraceError
from rlx_core.trees.flatten import bind_arguments, flatten, flatten_arguments, same_structure, single, spread


class Point(NamedTuple):
    x: Any
    y: Any


TREES = [
    (1, ["result"]),
    ({"b": 1, "a": 2}, ["result.a", "result.b"]),
    ([1, (2, [3])], ["result.0", "result.1.0", "result.1.1.0"]),
    (Point(1, {"k": 2}), ["result.0", "result.1.k"]),
    (OrderedDict(b=1, a=2), ["result.b", "result.a"]),
    (deque([1, 2]), ["result.0", "result.1"]),
    ({"a": None, "b": [None, 1]}, ["result.b.1"]),
    (None, []),
    ({}, []),
]


@pytest.mark.parametrize(("tree", "names"), TREES, ids=[str(t) for t, _ in TREES])
def test_leaves_are_named_by_their_place_and_come_back_there(tree, names):
    leaves, structure = flatten(tree, "result")

    assert list(structure.names) == names
    assert structure.unflatten(leaves) == tree
    assert hash(structure) == hash(flatten(tree, "result")[1])


def test_arguments_are_named_in_the_order_of_the_signature():
    leaves, tree = flatten_arguments({"z": {"k": 1}, "a": [2, 3], "none": None})

    assert leaves == [1, 2, 3]
    assert tree.names == ("z.k", "a.0", "a.1")
    assert tree.unflatten(leaves) == ({"k": 1}, [2, 3], None)
    assert single(flatten_arguments({"z": {"k": 1}})[1]) == flatten({"k": 1})[1].structure


def positional(a, /, b, *rest, c=0, **more):
    raise AssertionError("binding arguments calls nothing")


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((1, 2), {}, {"a": 1, "b": 2}),
        ((1,), {"b": 2}, {"a": 1, "b": 2}),
        ((1, 2, 3, 4), {"c": 5, "d": 6}, {"a": 1, "b": 2, "rest0": 3, "rest1": 4, "c": 5, "d": 6}),
    ],
    ids=["positions", "keyword", "all kinds"],
)
def test_arguments_are_bound_as_python_would(args, kwargs, named):
    assert bind_arguments(positional, args, kwargs) == named
    assert list(bind_arguments(positional, args, kwargs)) == list(named)


def test_a_call_that_does_not_fit_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        bind_arguments(positional, (1,), {})


def test_builtins_without_a_signature_number_their_arguments():
    assert bind_arguments(max, (1, 2), {"key": 3}) == {"arg0": 1, "arg1": 2, "key": 3}


def test_a_different_structure_names_what_is_missing_and_what_is_extra():
    wanted, found = flatten({"a": 1, "b": 2}, "p")[1], flatten({"a": 1, "c": 2, "d": 3}, "p")[1]
    same_structure("f", wanted, wanted)
    with pytest.raises(ShapeError, match=r"f: the arguments have another structure \(3 leaves, not 2\)") as caught:
        same_structure("f", wanted, found)
    assert [(f.label, f.value) for f in caught.value.facts] == [("missing", "p.b"), ("extra", "p.c, p.d")]


def test_leaves_of_the_same_names_in_other_containers_are_shown():
    with pytest.raises(ShapeError) as caught:
        same_structure("f", flatten([1, 2])[1], flatten((1, 2))[1])
    assert [f.label for f in caught.value.facts] == ["wanted", "found"]


@pytest.mark.parametrize(
    ("axes", "tree", "found"),
    [
        (0, {"a": 1, "b": 2}, [0, 0]),
        (None, [1, 2], [None, None]),
        ({"a": 0, "b": None}, {"a": 1, "b": 2}, [0, None]),
        ({"a": 1, "b": None}, {"a": [1, 2], "b": (3, 4)}, [1, 1, None, None]),
        ([0, -1], [1, {"k": 2}], [0, -1]),
        (0, {"a": None, "b": 1}, [0]),
        ({"a": None, "b": 1}, {"a": None, "b": 1}, [1]),
    ],
    ids=str,
)
def test_axes_are_spread_over_the_leaves(axes, tree, found):
    assert spread("vmap", axes, tree) == found


def test_axes_that_do_not_lie_over_the_tree_are_refused():
    with pytest.raises(ShapeError, match=r"vmap: .*does not lie over"):
        spread("vmap", {"a": 0}, {"b": 1})
    for axis in ("0", 0.0, True):
        with pytest.raises(AxisError, match="neither an axis nor None"):
            spread("vmap", axis, [1])


def nested(depth: int) -> list[Any]:
    tree: list[Any] = [1]
    for _ in range(depth - 1):
        tree = [tree]
    return tree


def test_containers_nest_as_deep_as_optree_goes():
    leaves, structure = flatten(nested(900))
    assert leaves == [1]
    assert structure.unflatten(leaves) == nested(900)


def test_containers_that_nest_deeper_are_refused():
    circle: list[Any] = []
    circle.append(circle)
    for tree in (nested(5000), circle):
        with pytest.raises(TraceError, match=r"nested more than 1000 deep, or one contains itself"):
            flatten(tree)
        with pytest.raises(TraceError, match="1000 deep"):
            flatten_arguments({"x": tree})
        with pytest.raises(TraceError, match="1000 deep"):
            spread("vmap in_axes", tree, 1)


def containers(depth: int, wrap: Callable[[Any], Any]) -> Any:
    found: Any = np.float32([1, 2])
    for _ in range(depth):
        found = wrap(found)
    return found


def innermost(tree: Any) -> Any:
    while isinstance(tree, dict | list | tuple):
        tree = tree["a"] if isinstance(tree, dict) else tree[0]
    return tree


DEEP_USES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda t: rlx.jit(lambda t: rlx.sum(innermost(t)))(t),
    "result": lambda t: rlx.jit(lambda x: containers(5000, lambda inner: [inner]))(np.float32(1)),
    "grad": lambda t: rlx.grad(lambda t: rlx.sum(innermost(t)))(t),
    "vmap": lambda t: rlx.vmap(lambda t: t)(t),
    "compile": lambda t: rlx.compile(lambda t: rlx.sum(innermost(t)), t),
    "scan": lambda t: rlx.scan(lambda carry, x: (carry, x), t, np.arange(3)),
    "cond": lambda t: rlx.cond(np.bool_(True), lambda: t, lambda: t),
    "while_loop": lambda t: rlx.while_loop(lambda carry: np.bool_(False), lambda carry: carry, t),
    "stop_gradient": rlx.stop_gradient,
    "optimiser": lambda t: rlx.optim.adam(1e-3).init(t),
    "train_step": lambda t: rlx.train_step(lambda p, b: rlx.sum(innermost(p)), rlx.optim.sgd(0.1))(t, (), ()),
    "static": lambda t: rlx.jit(lambda x, s: x, static_argnames="s")(
        np.ones(1), containers(5000, lambda inner: (1, inner))
    ),
    "save": lambda t: rlx.save("deep.safetensors", t),
}


@pytest.mark.parametrize("use", DEEP_USES)
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}], ids=["list", "tuple", "dict"])
def test_containers_five_thousand_deep_are_refused(use, wrap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TraceError, match=r"nested (more|deeper) than"):
        DEEP_USES[use](containers(5000, wrap))


def test_containers_a_few_hundred_deep_are_flattened():
    tree = containers(300, lambda x: [x])
    assert float(rlx.jit(lambda t: rlx.sum(innermost(t)))(tree)) == 3
