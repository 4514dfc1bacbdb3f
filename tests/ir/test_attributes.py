"""The canonical form of attributes: exact both ways, and closed."""

import json

import numpy as np
import pytest
from attrs import evolve

from rlx_core.errors import FormatError, UnknownNameError
from rlx_core.ir.attributes import decode, encode, exact_float, read_float
from rlx_core.ir.declared_kinds import record_classes
from rlx_core.ir.dtypes import ALL
from rlx_core.ir.graph import literal
from rlx_core.ir.op import Op, define_op


def bits(value):
    return np.float64(value).tobytes()


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")])
def test_a_float_keeps_its_bits(value):
    assert bits(read_float(exact_float(value))) == bits(value)


def test_a_nan_keeps_its_payload():
    odd = float(np.frombuffer(bytes.fromhex("010000000000f8ff"), np.float64)[0])
    assert bits(read_float(exact_float(odd))) == bits(odd)


def test_every_kind_survives_the_canonical_form_as_json(attribute_rows, kinds, ops):
    for row in attribute_rows:
        op = kinds["Everything"](**row)
        form = json.loads(json.dumps(encode(op), allow_nan=False))
        assert decode(form, ops, type(op)) == op, row


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_constant_data_of_every_dtype_survives(dtype):
    value = literal(np.arange(6).reshape(2, 3) % 2, dtype)
    assert decode(json.loads(json.dumps(encode(value))), {}) == value


def test_numbers_that_compare_equal_but_differ_are_different_ops(kinds):
    op = kinds["Everything"]
    assert op(scale=0.0) != op(scale=-0.0)
    assert op(size=1) != op(size=True)
    assert op(size=1) != op(size=1.0)
    assert op(shape=(0.0,)) != op(shape=(-0.0,))
    window = kinds["Window"](0.0, 1.0)
    assert op(window=window) != op(window=evolve(window, low=-0.0))
    assert op(scale=float("nan")) == op(scale=float("nan"))
    assert hash(op(scale=float("nan"))) == hash(op(scale=float("nan")))


def test_blocks_with_other_attributes_are_different_ops(kinds):
    assert kinds["Scale"](is_exp=True) != kinds["Scale"](is_exp=False)


@define_op(domain="test")
class Loose(Op):
    what: object = None

    def infer(self, x):
        return x


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1, 2}, b"x", object(), np.zeros(2)], ids=lambda v: type(v).__name__)
def test_a_kind_outside_the_closed_set_is_refused_by_name(value):
    with pytest.raises(FormatError, match=rf"test.loose: .*{type(value).__name__}"):
        encode(Loose(value))


@pytest.mark.parametrize(
    "form",
    [
        {"float": "x"},
        {"float": 1},
        {"complex": ["0x0p+0"]},
        {"dtype": "f31"},
        {"dim": "2*"},
        {"dim": "n^99999999"},
        {"type": "f32[", "extra": 1},
        {"type": "f32"},
        {"literal": ["f32", [2], "AAAA"]},
        {"literal": ["f32", [-1], ""]},
        {"literal": ["f32", [10**30], ""]},
        {"literal": ["bool", [1], "Ag=="]},
        {"literal": ["f32", [1], "not base64"]},
        {"literal": ["f32", [1] * 100, "AAAAAA=="]},
        {"graph": {"nodes": [[1]]}},
        {"op": ["rlx.exp", 1]},
        {"op": ["rlx.exp", 2, {}]},
        {"op": ["rlx.exp", 1, {"axis": 1}]},
        {"op": ["rlx.sum", 1, {"axes": "x"}]},
        {"op": ["rlx.sum", 1, {}]},
        {"enum": ["Rounding", "UP"]},
        {"record": ["Window", {}]},
        {"unknown": 1},
        {},
        1.5,
    ],
    ids=str,
)
def test_a_form_that_nobody_wrote_is_a_format_error(form, ops):
    with pytest.raises(FormatError):
        decode(form, ops)


def test_deep_nesting_is_refused_before_the_stack_ends(ops):
    form = 1
    for _ in range(500):
        form = [form]
    with pytest.raises(FormatError, match="80 deep"):
        decode(form, ops)


def test_an_unknown_op_is_named_with_its_nearest(ops):
    with pytest.raises(UnknownNameError, match=r"rlx\.softmx") as error:
        decode({"op": ["rlx.softmx", 1, {}]}, ops)
    assert error.value.hint == "did you mean `rlx.softmax`?"


def test_what_graphs_are_made_of_is_no_record_that_a_file_can_name(kinds):
    known = record_classes(kinds["Everything"])
    assert "Window" in known
    assert not known.keys() & {"Graph", "Node", "Builder", "Origin", "Literal", "TensorType", "DType", "Expr"}
