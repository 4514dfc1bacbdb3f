"""What notebooks show: escaped, self-contained, joined where there is much."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.draw.pages import drawable
from rlx_core.draw.svg import svg
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.module import Module
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.structural import transpose

X = np.ones((2, 3), np.float32)


class Tags(HTMLParser):
    """Which tags are open, and whether every one was closed by its own."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    parser = Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def graph(name="main", leaf="x"):
    b = Builder(name)
    x = b.input(leaf, spec("f32[2]"))
    with building(b):
        y = exp(x)
    return b.finish([y])


def chain(count):
    b = Builder("chain")
    h = b.input("x", spec("f32[2]"))
    with building(b):
        for _ in range(count):
            h = exp(h)
    return b.finish([h])


def shown():
    compiled = rlx.compile(lambda x: {"first": rlx.exp(x), "second": x + 1}, rlx.spec("f32[2, 3]"))
    jitted = rlx.jit(lambda x: rlx.exp(x))
    jitted(X)
    return {
        "graph": graph(),
        "module": Module.of_mir(graph()),
        "compiled": compiled,
        "executable": compiled.executable,
        "report": compiled.report,
        "jitted": jitted,
        "not called": rlx.jit(lambda x: x),
    }


def test_everything_has_a_page_of_closed_tags_that_loads_nothing():
    for what, value in shown().items():
        page = read(value._repr_html_())
        assert page.seen[0] == ("div", {"class": "rlx-page"}), what
        assert not any("src" in attrs or "href" in attrs for _, attrs in page.seen), what
        assert "script" not in {tag for tag, _ in page.seen}, what


def test_names_of_a_program_are_escaped():
    page = graph("<b>&", "<script>alert(1)</script>")._repr_html_()
    assert "<script" not in page
    assert "<script>alert(1)</script>" in "".join(read(page).text)
    ET.fromstring(graph("<b>&", '"><x>')._repr_svg_())


def test_a_module_at_every_stage_and_a_picture_of_each_program():
    values = shown()
    for what in ("graph", "module", "compiled", "executable"):
        ET.fromstring(values[what]._repr_svg_())
    assert "result.first" in values["compiled"]._repr_svg_(), "outputs carry their names"


def test_styles_hold_for_the_picture_alone():
    (rules,) = re.findall(r"<style>(.*?)</style>", svg(graph()), re.DOTALL)
    selectors = [s.strip() for s in re.findall(r"([^{}]+)\{", rules)]
    assert all(s.startswith((".rlx-graph", "@media")) for s in selectors)
    assert "prefers-color-scheme: dark" in svg(graph())


def test_two_pictures_on_a_page_do_not_share_an_arrow():
    ids = [re.search(r'<marker id="([^"]+)"', svg(g))[1] for g in (graph(), chain(3))]
    assert len(set(ids)) == 2


def test_constants_are_written_in_their_fewest_digits():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with building(b):
        y = add(add(x, np.float32(0.1)), 1.0)
    text = svg(b.finish([y]))
    assert "const 0.1<" in text
    assert "const 1.0<" in text


def test_the_transpose_of_a_weight_is_written_into_its_reader():
    b = Builder()
    x, w = b.input("x", spec("f32[2, 3]")), b.param("layer.weight", spec("f32[3, 2]"))
    with building(b):
        y = add(x, transpose(w, perm=(1, 0)))
    drawn = b.finish([y])
    assert "layer.weight.transpose f32[2, 3]" in svg(drawn, collapse=True)
    assert len(re.findall("<rect", svg(drawn, collapse=True))) + 1 == len(re.findall("<rect", svg(drawn)))


def test_chains_are_joined_and_forks_are_not():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with building(b):
        one = exp(exp(exp(x)))
        two = exp(exp(x))
        y = add(one, two)
    drawn = b.finish([y])
    assert len(re.findall("<rect", svg(drawn, chains=True))) == 5  # x, two chains, add, the output


@pytest.mark.parametrize(("count", "how"), [(20, ""), (300, ", a box a block or a chain of ops")])
def test_a_picture_joins_as_much_as_it_must(count, how):
    assert drawable(chain(count))[1] == how


def test_blocks_are_joined_before_chains():
    b = Builder()
    h = b.input("x", spec("f32[8]"))
    with building(b):
        for i in range(30):
            with originating(Origin(block=f"layer{i}", label="layer")):
                for _ in range(10):
                    h = exp(h)
    assert drawable(b.finish([h]))[1] == ", a box a block"


def test_what_is_too_much_to_draw_is_counted():
    b = Builder()
    x = b.input("x", spec("f32[8]"))
    with building(b):
        outputs = [exp(x) for _ in range(300)]
    page = b.finish(outputs)._repr_html_()
    assert "too many to draw" in page
    assert "<svg" not in page
    assert "more lines; print it" in page
