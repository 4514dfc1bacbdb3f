"""Structures of pytrees as files hold them: the same structure back, and never anything but a typed error from another form."""

from __future__ import annotations

import json
import random
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import optree
import pytest

from rlx_core.errors import FormatError
from rlx_core.trees.form import class_name, named_tuples, tree_form, tree_from

Point = namedtuple("Point", "x y")
Other = namedtuple("Other", "x")
KNOWN = {class_name(Point): Point}

TREES: dict[str, Any] = {
    "leaf": 0,
    "nothing": None,
    "tuple": (1, (2,), ()),
    "list": [1, [2, 3], []],
    "dict": {"b": 1, "a": {"c": 2, "d": None}},
    "keys": {1: 0, "1": 1, (1, "x"): 2, None: 3, 2.5: 4, True + 1: 5},
    "ordered": OrderedDict([("z", 1), ("a", 2)]),
    "deque": deque([1, 2], maxlen=3),
    "endless deque": deque([1, 2]),
    "named": Point(1, {"p": Point(2, 3)}),
}


def stored(tree: Any) -> Any:
    return json.loads(json.dumps(tree_form(optree.tree_structure(tree))))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_structure_comes_back(tree):
    assert tree_from(stored(tree), KNOWN) == optree.tree_structure(tree)


def test_no_depth_recurses():
    tree: Any = 0
    for _ in range(900):
        tree = [tree]
    assert tree_from(stored(tree), {}) == optree.tree_structure(tree)
    with pytest.raises(FormatError, match="nested more than 1000 deep"):
        tree_from(["leaf", *[["list", 1]] * 100_000], {})


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (defaultdict(list, a=1), "a defaultdict cannot be stored"),
        ({frozenset([1]): 1}, "key frozenset.*cannot be stored"),
        ({b"a": 1}, "key b'a' of type bytes cannot be stored"),
    ],
    ids=["defaultdict", "set", "bytes"],
)
def test_what_a_file_cannot_hold_is_refused(tree, says):
    with pytest.raises(FormatError, match=says):
        tree_form(optree.tree_structure(tree))


def test_a_named_tuple_is_told_by_who_reads():
    assert named_tuples([optree.tree_structure([Point(1, 2), Other(Point(3, 4))])]) == (Other, Point)
    with pytest.raises(FormatError, match="named tuple Point, and a file holds no classes"):
        tree_from(stored(Point(1, 2)), {})
    with pytest.raises(FormatError, match="Point has the fields x, and in the file"):
        tree_from(stored(Point(1, 2)), {"Point": Other})


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        ["leaf", "leaf"],
        ["leaves"],
        [3],
        [["tuple", 1]],
        [["tuple", -1]],
        [["tuple", True]],
        ["leaf", ["tuple"]],
        ["leaf", ["set", 1]],
        ["leaf", ["dict", 1]],
        ["leaf", ["dict", [{"record": 1}]]],
        ["leaf", "leaf", ["dict", ["a", "a"]]],
        ["leaf", ["deque", 1, 0]],
        ["leaf", ["deque", 1, "x"]],
        ["leaf", ["namedtuple", "Point", ["x"]]],
        ["leaf", ["namedtuple", ["Point"], ["x"]]],
        ["leaf", ["namedtuple", 1, 1]],
        ["leaf", [["list"], 1]],
    ],
    ids=repr,
)
def test_another_form_is_refused(form):
    with pytest.raises(FormatError):
        tree_from(form, KNOWN)


def test_a_forged_form_gives_a_structure_or_a_typed_error():
    draw = random.Random(3)
    outcomes = set()
    pieces: list[Any] = ["leaf", "none", "dict", "tuple", "list", "deque", -1, 0, 1, 2, None, [], ["a"], {"float": "x"}]
    for _ in range(2000):
        form = stored(draw.choice(list(TREES.values())))
        at = draw.randrange(len(form))
        row = form[at]
        if isinstance(row, list) and draw.random() < 0.7:
            row[draw.randrange(len(row))] = draw.choice(pieces)
        else:
            form[at : at + draw.randrange(2)] = [draw.choice(pieces)]
        try:
            tree_from(form, KNOWN)
        except FormatError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert outcomes == {"refused", "read"}
