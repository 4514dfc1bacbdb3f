"""Layouts: chains are columns, boxes lie apart, and no edge runs through a box."""

import random
from itertools import pairwise

import pytest

from rlx_core.draw.layers import LayoutNode, lay_out


def generated(seed):
    """A program-like graph: mostly chains, with long edges, forks, joins and unread boxes."""
    rng = random.Random(seed)
    boxes = []
    for i in range(rng.randint(1, 40)):
        near = [s for s in (i - 1, i - 2) if s >= 0]
        sources = rng.sample(near, rng.randint(0, len(near))) + [
            rng.randrange(i) for _ in range(rng.choice([0, 0, 1, 2])) if i
        ]
        boxes.append(
            LayoutNode(rng.choice([40.0, 90.0, 300.0]), rng.choice([20.0, 50.0]), tuple(dict.fromkeys(sources)))
        )
    return boxes


def areas(boxes, layout):
    return [
        (c - b.width / 2, t, c + b.width / 2, t + b.height)
        for b, c, t in zip(boxes, layout.centres, layout.tops, strict=True)
    ]


def touches(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def faults(boxes):
    """Pairs of boxes that overlap, and edges with a piece inside a box."""
    layout = lay_out(boxes)
    placed = areas(boxes, layout)
    for i, a in enumerate(placed):
        for j, b in enumerate(placed[:i]):
            if touches(a, b):
                yield f"boxes {j} and {i}"
    for route in layout.routes:
        for (x, y), (u, v) in pairwise(route.points):
            piece = (min(x, u) - 0.1, min(y, v) + 0.01, max(x, u) + 0.1, max(y, v) - 0.01)
            for i, area in enumerate(placed):
                if piece[1] <= piece[3] and touches(piece, area):
                    yield f"edge {route.source}-{route.target} and box {i}"
                if piece[1] > piece[3] and area[1] < y < area[3] and piece[0] < area[2] and area[0] < piece[2]:
                    yield f"edge {route.source}-{route.target} and box {i}"


def test_the_check_sees_what_is_wrong():
    boxes = [LayoutNode(50, 20), LayoutNode(50, 20, (0,)), LayoutNode(50, 20, (1,))]
    layout = lay_out(boxes)
    middle = areas(boxes, layout)[1]
    assert touches((layout.centres[0], 0.0, layout.centres[0] + 1, layout.height), middle)


@pytest.mark.parametrize("seed", range(40))
def test_boxes_lie_apart_and_edges_run_between_them(seed):
    assert not list(faults(generated(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_boxes_lie_apart_and_edges_run_between_them_in_many_graphs(seed):
    assert not list(faults(generated(seed)))


def test_a_chain_is_a_column_whatever_its_widths():
    widths = [50.0, 300.0, 10.0, 120.0] * 20
    layout = lay_out([LayoutNode(w, 20, (i - 1,) if i else ()) for i, w in enumerate(widths)])
    assert len(set(layout.centres)) == 1
    assert layout.width == 300 + 40


def test_residual_layers_are_a_column_with_their_skips_beside_it():
    """What a transformer looks like: every fourth box is read by the next and by the one four further down."""
    boxes = [
        LayoutNode(100, 20, (0,) if i == 1 else (i - 1, i - 5) if i % 4 == 1 else (i - 1,) if i else ())
        for i in range(81)
    ]
    layout = lay_out(boxes)
    assert len({round(c) for c in layout.centres}) == 1
    assert layout.width < 200


def test_an_input_that_all_layers_read_has_one_trunk():
    boxes = [LayoutNode(60, 20)] + [LayoutNode(60, 20, (i - 1, 0) if i > 1 else (0,)) for i in range(1, 31)]
    layout = lay_out(boxes)
    assert layout.width < 200
    passing = {p[0] for r in layout.routes if r.source == 0 for p in r.points[2:-2]}
    assert len(passing) <= 1, "the edges of one source leave one line"


def test_a_layout_is_the_same_every_time():
    assert lay_out(generated(3)) == lay_out(generated(3))


def test_five_thousand_boxes_are_laid_out_without_recursion():
    layout = lay_out([LayoutNode(40, 20, (i - 1,) if i else ()) for i in range(5000)])
    assert len(layout.tops) == 5000
