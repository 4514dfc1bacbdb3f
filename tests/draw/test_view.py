"""Summaries, differences and pictures."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from rlx_core.draw.layers import LayoutNode, lay_out
from rlx_core.draw.view import diff, human_bytes, summary, svg
from rlx_core.ir.dims import symbol
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.hir import lower_hir
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, multiply, negative

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (87_400_000, "83.4 MiB"),
        (2**62, "4.0 EiB"),
        (symbol("n") * 4, "(4*n) B"),
    ],
)
def test_bytes_are_said_as_people_say_them(nbytes, text):
    assert human_bytes(nbytes) == text


def small():
    b = Builder("small")
    x, w = b.input("x", spec("f32[256]")), b.param("w", spec("f32[256]"))
    with building(b):
        h = add(x, w, name="h")
        y = exp(h)
    return b.finish([y, h, y])


def test_a_summary_counts_ops_and_bytes_and_marks_outputs():
    text = summary(small())
    assert "graph small: 4 nodes, 3 outputs" in text
    assert "params         1  1.0 KiB" in text
    assert "computed       2  2.0 KiB" in text
    assert "ops        add 1, exp 1" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  %")}
    assert rows["%3"].endswith("-> out0, out2")
    assert rows["%h"].endswith("-> out1")


def test_a_summary_enters_nested_graphs(make_everything):
    assert "%1 = add(%0" not in summary(small())
    assert "%h = add(%x, %w)" in summary(make_everything(body=small()))


def test_equal_graphs_have_no_difference(rich):
    assert diff(rich, rich) == ""
    assert diff(small(), small()) == ""


def changed(first=add, extra=False, swapped=False, outputs=1):
    b = Builder()
    x, w = b.input("x", spec("f32[2]")), b.param("w", spec("f32[2]"))
    with building(b):
        h = first(w, x) if swapped else first(x, w)
        h = negative(h) if extra else h
        y = exp(exp(exp(h)))
    return b.finish([y, h][:outputs])


def test_a_replaced_op_is_one_line_out_and_one_in():
    lines = diff(changed(), changed(first=multiply)).splitlines()
    assert [line[0] for line in lines] == ["-", "+", "~"]
    assert "add(%x, %w)" in lines[0]
    assert "mul(%x, %w)" in lines[1]


def test_an_inserted_op_does_not_mark_what_follows():
    lines = diff(changed(), changed(extra=True)).splitlines()
    assert [line[0] for line in lines] == ["+", "~"]
    assert "neg(%2)" in lines[0]


def test_exchanged_operands_and_other_outputs_are_shown():
    assert diff(changed(), changed(swapped=True)).startswith("~ %2 = add(%x, %w)")
    assert diff(changed(), changed(outputs=2)).splitlines() == ["- return %5", "+ return %5, %2"]


# ------------------------------------------------------------------------------------------ pictures


def rects(text):
    found = []
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        lines = [t.text for t in group.findall(f"{SVG}text")]
        found.append((title.text, lines, {k: rect.get(k) for k in ("x", "y", "width", "height", "fill")}))
    return found


def test_every_computed_node_input_and_output_has_a_box_with_type_and_line():
    found = rects(svg(small()))
    assert [lines[0] for _, lines, _ in found] == ["x", "add  %h", "exp", "out0", "out1  %h", "out2"]
    tooltip, lines, _ = found[1]
    assert lines == ["add  %h", "f32[256]", "w f32[256]"]
    assert "test_view.py" in tooltip


def overlap(a, b):
    (ax, ay, aw, ah), (bx, by, bw, bh) = ([float(r[k]) for k in ("x", "y", "width", "height")] for r in (a, b))
    return ax < bx + bw and bx < ax + aw and ay < by + bh and by < ay + ah


def test_no_two_boxes_overlap_and_all_are_on_the_page(rich):
    text = svg(rich)
    page = ET.fromstring(text)
    placed = [r for _, _, r in rects(text)]
    assert not any(overlap(a, b) for i, a in enumerate(placed) for b in placed[:i])
    for r in placed:
        assert float(r["x"]) >= 0
        assert float(r["x"]) + float(r["width"]) <= float(page.get("width"))
        assert float(r["y"]) + float(r["height"]) <= float(page.get("height"))


@pytest.mark.medium
def test_one_op_has_one_colour_in_every_process():
    code = "import sys; sys.path.insert(0, {!r}); from rlx_core.draw.svg import _colour; print(_colour('linalg', 0.5, 0.5))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code.format(os.getcwd())],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "5")
    }
    assert len(found) == 1
    adds = {r["fill"] for _, lines, r in rects(svg(changed())) if lines[0].startswith("add")}
    assert adds == {r["fill"] for _, lines, r in rects(svg(small())) if lines[0].startswith("add")}


def test_collapsing_shows_one_box_a_block(hir):
    mir, _ = lower_hir(hir)
    titles = [lines[0] for _, lines, _ in rects(svg(mir, collapse=True))]
    assert titles == ["x", "add  %first", "exp", "scale", "scale", "out0"]


def test_a_collapsed_model_of_300_ops_has_a_box_for_each_block():
    b = Builder()
    h = b.input("x", spec("f32[8]"))
    with building(b):
        for i in range(30):
            with originating(Origin(block=f"layer{i}", label="layer")):
                for _ in range(10):
                    h = exp(h)
    assert len(rects(svg(b.finish([h]), collapse=True))) == 32


def test_edges_run_from_their_source_down_to_their_target():
    boxes = [
        LayoutNode(50, 20),
        LayoutNode(60, 30, (0,)),
        LayoutNode(40, 20, (0,)),
        LayoutNode(50, 20, (1, 2, 0)),
        LayoutNode(10, 10, (3,)),
    ]
    layout = lay_out(boxes)
    assert {(r.source, r.target) for r in layout.routes} == {(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4)}
    for route in layout.routes:
        (x, y), (last_x, last_y) = route.points[0], route.points[-1]
        assert (x, y) == (layout.centres[route.source], layout.tops[route.source] + boxes[route.source].height)
        assert (last_x, last_y) == (layout.centres[route.target], layout.tops[route.target])
        steps = list(zip(route.points, route.points[1:], strict=False))
        assert all(a[0] == b[0] or a[1] == b[1] or abs(a[0] - b[0]) <= 0.5 for a, b in steps)
        assert all(b[1] >= a[1] for a, b in steps)


def test_an_empty_graph_is_a_picture_too():
    assert rects(svg(Builder().finish([]))) == []
