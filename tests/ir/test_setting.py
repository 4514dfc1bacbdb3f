"""Attributes are converted and checked where they are written, and every refusal names the op."""

import attrs
import numpy as np
import pytest

from rlx_core.errors import ConfigError, RlxError, UnknownNameError, WrongInputCountError
from rlx_core.ir.dtypes import f16
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op, define_op, field
from rlx_core.ir.text import parse_graph, print_graph
from rlx_core.ir.types import spec
from rlx_core.ops.conversion import Cast
from rlx_core.ops.normalization import GroupNorm, LayerNorm
from rlx_core.ops.rope import Rope
from rlx_core.ops.structural import Sum


@define_op(domain="acme")
class Blur(Op):
    """A third party's op, with plain attributes and validators of attrs' own."""

    radius: int
    axes: tuple[int, ...] = (-1,)
    levels: int | None = None
    sigma: float = field(default=1.0, validator=attrs.validators.gt(0))
    name_of_edge: str = field(default="clamp", validator=attrs.validators.instance_of(str))

    def infer(self, x):
        return x

    def decompose(self, x):
        return x


@define_op(domain="acme")
class Named(Op):
    """An op whose attributes are held to what attrs' validators say."""

    kind: str = field(default="a", validator=attrs.validators.in_(["a", "b"]))
    tag: str = field(default="x1", validator=attrs.validators.matches_re("x[0-9]"))
    sizes: tuple[int, ...] = field(default=(1, 2), validator=attrs.validators.min_len(2))
    extent: object = field(default=1, validator=attrs.validators.instance_of(int))
    odd: int = field(default=1)

    @odd.validator
    def _check(self, attribute, value):
        if value % 2 == 0:
            raise ValueError("an even one has no middle")

    def infer(self, x):
        return x

    def decompose(self, x):
        return x


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"kind": "c"}, "acme.named: attribute kind must be 'a' or 'b', not 'c'"),
        ({"tag": "y"}, "acme.named: attribute tag must match 'x[0-9]', not 'y'"),
        ({"sizes": (1,)}, "acme.named: attribute sizes must have a length >= 2, not 1"),
        ({"extent": 1.5}, "acme.named: attribute extent must be of type int, not 1.5 (float)"),
        ({"odd": 4}, "acme.named: an even one has no middle"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_a_validator_refuses_is_said_in_the_words_of_rlx_or_of_its_author(attributes, says):
    with pytest.raises(ConfigError) as caught:
        Named(**attributes)
    assert caught.value.message == says


def test_a_word_that_is_none_of_those_listed_has_the_nearest_one():
    with pytest.raises(ConfigError, match="attribute layout must be 'bsd' or 'bshd' or 'bhsd', not 'bhsdd'") as caught:
        Rope(head_dim=4, layout="bhsdd")
    assert caught.value.hint == "did you mean `bhsd`?"


def test_numbers_of_numpy_become_python_s_and_lists_tuples():
    op = Blur(radius=np.int64(3), axes=[np.int8(1), 2], levels=np.uint8(4), sigma=np.float32(0.5))
    assert op == Blur(radius=3, axes=(1, 2), levels=4, sigma=0.5)
    assert [type(v) for v in op.attributes().values()] == [int, tuple, int, float, str]
    assert [type(a) for a in op.axes] == [int, int]


def test_a_dtype_may_be_given_by_its_name():
    assert Cast(to="f16") == Cast(to=np.float16) == Cast(to=f16)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"radius": "3"}, "attribute radius must be an integer, not '3' (str)"),
        ({"radius": 3.0}, "attribute radius must be an integer, not 3.0 (float)"),
        ({"radius": np.float64(3)}, "attribute radius must be an integer"),
        ({"radius": True}, "attribute radius must be an integer, not True (bool)"),
        ({"radius": np.True_}, "attribute radius must be an integer"),
        ({"radius": 1, "levels": True}, "attribute levels must be an integer or None, not True (bool)"),
        ({"radius": 1, "axes": 2}, "attribute axes must be a sequence, each item an integer, not 2 (int)"),
        ({"radius": 1, "axes": "12"}, "attribute axes must be"),
        ({"radius": 1, "axes": [True]}, "attribute axes must be"),
        ({"radius": 1, "sigma": None}, "attribute sigma must be a number, not None (NoneType)"),
        ({"radius": 1, "sigma": np.ones(2)}, "attribute sigma must be a number"),
        ({"radius": 1, "sigma": -1.0}, "attribute sigma must be > 0, not -1.0"),
        ({"radius": 1, "name_of_edge": 3}, "attribute name_of_edge must be a text"),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_with_the_op_s_name(attributes, says):
    with pytest.raises(ConfigError) as raised:
        Blur(**attributes)
    assert raised.value.message.startswith("acme.blur: ")
    assert says in raised.value.message
    assert "Attribute(" not in str(raised.value)


def test_names_and_numbers_of_attributes_are_checked():
    with pytest.raises(UnknownNameError, match=r"acme.blur: takes \(radius=.*not radios=") as raised:
        Blur(radios=3)
    assert raised.value.hint == "did you mean `radius`?"
    with pytest.raises(WrongInputCountError, match="groups= must be given"):
        GroupNorm()
    with pytest.raises(WrongInputCountError, match="do not match"):
        Sum((0,), False, 3, 4, 5, 6)


def test_an_attribute_with_a_converter_of_its_own_is_held_to_its_annotation_too():
    assert LayerNorm(axes=[1, np.int64(2)]).axes == (1, 2)
    for axes in ("ab", [1.5], [None], 3.5, object()):
        with pytest.raises(ConfigError, match=r"layer_norm: (attribute )?axes must be"):
            LayerNorm(axes=axes)


def test_no_op_of_rlx_lets_a_foreign_value_through(ops):
    """Each attribute of each op either refuses an object or says what it makes of it, in a typed error."""
    for op in (o for o in ops.values() if o.name.startswith("rlx.")):
        for attribute in attrs.fields(op):
            given = {a.name: object() for a in attrs.fields(op) if a.default is attrs.NOTHING}
            with pytest.raises(RlxError, match=f"^{op.title}: "):
                op(**{**given, attribute.name: object()})


def test_a_parsed_copy_compares_equal():
    b = Builder()
    x = b.input("x", spec("f32[2, 3]"))
    graph = b.finish([Blur(radius=np.int32(2), axes=[0], sigma=np.float32(0.1))(x)])
    copy = parse_graph(print_graph(graph), {"acme.blur": Blur})
    assert [n.op for n in copy.nodes] == [n.op for n in graph.nodes]
    assert print_graph(copy) == print_graph(graph)
