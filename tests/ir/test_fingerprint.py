"""The fingerprint: different whenever results can be, equal in every process, blind to where a program came from."""

import os
import subprocess
import sys

import numpy as np
import pytest
from attrs import evolve

from rlx_core.errors import FormatError
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, negative, subtract
from rlx_core.ops.structural import sum_axes


@define_op(domain="test")
class Seeded(Op):
    seed: int = 0
    strides: tuple = (1, 1)

    def infer(self, x):
        return x


def program(*, data=(1.0, 2.0), seed=0, strides=(1, 1), body=exp, name="x", outputs=(0, 1), rule=add, kind="input"):
    nested = Builder("body")
    inner = nested.finish([body(nested.input("a", spec("f32[2]")))])
    b = Builder()
    x = getattr(b, kind)(name, spec("f32[2]"))
    with building(b):
        y = Seeded(seed, strides)(rule(x, b.constant(np.array(data, np.float32))))
        z = Holder(inner)(y)
    made = [y, z]
    return b.finish([made[i] for i in outputs])


@define_op(domain="test")
class Holder(Op):
    body: object

    def infer(self, x):
        return x


CHANGES = {
    "one constant byte": {"data": (1.0, 2.0000002)},
    "the sign of a zero": {"data": (-0.0, 2.0)},
    "a seed": {"seed": 1},
    "a stride": {"strides": (1, 2)},
    "an op in a nested graph": {"body": negative},
    "an attribute in a nested graph": {"body": lambda a: sum_axes(a, axes=(0,), keep_dim=True)},
    "the order of outputs": {"outputs": (1, 0)},
    "an output more": {"outputs": (0, 1, 1)},
    "the name of an input": {"name": "y"},
    "an input that is a param": {"kind": "param"},
    "an op": {"rule": subtract},
    "the order of operands": {"rule": lambda a, b: add(b, a)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_it_differs_with(change):
    assert fingerprint(program(**change)) != fingerprint(program())


def test_all_changes_differ_from_one_another():
    assert len({fingerprint(program(**change)) for change in CHANGES.values()}) == len(CHANGES)


def test_a_zero_and_a_negative_zero_differ():
    assert fingerprint(program(data=(0.0, 2.0))) != fingerprint(program(data=(-0.0, 2.0)))


def test_where_a_node_came_from_takes_no_part():
    with originating(Origin(block="b", label="l", created_by="p", plugin="q")):
        assert fingerprint(program()) == fingerprint(evolve(program(), name="other"))


def test_an_op_of_another_version_differs(monkeypatch):
    before = fingerprint(program())
    monkeypatch.setattr(Seeded, "version", 2)
    assert fingerprint(program()) != before


def test_a_guard_takes_part(rich):
    assert rich.guards
    assert fingerprint(evolve(rich, guards=())) != fingerprint(rich)


CONTEXTS = [
    {},
    {"target": "cpu"},
    {"target": "cuda"},
    {"passes": ["a", "b"]},
    {"passes": ["b", "a"]},
    {"n": 1},
    {"n": 1.0},
]


def test_every_context_differs():
    assert len({fingerprint(program(), context=c) for c in CONTEXTS}) == len(CONTEXTS)


def test_the_order_of_keys_and_of_sets_does_not_matter():
    a = {"kernels": {"x", "y", "z"}, "options": {"p": 1, "q": 2}}
    b = {"options": {"q": 2, "p": 1}, "kernels": {"z", "y", "x"}}
    assert fingerprint(program(), context=a) == fingerprint(program(), context=b)


def test_a_context_without_a_canonical_form_is_refused():
    with pytest.raises(FormatError, match="object cannot be printed"):
        fingerprint(program(), context={"x": object()})


SCRIPT = """
from rlx_core.ir.dims import symbol
{before}
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
b = Builder()
x = b.input("x", spec("f32[n, m*n, 3]"))
with building(b):
    y = add(exp(x), 2)
print(fingerprint(b.finish([y]), context={{"s": frozenset("abcdef")}}))
"""


@pytest.mark.medium
def test_it_is_the_same_in_every_process_whatever_symbols_were_made_before():
    found = set()
    for seed, before in (("0", ""), ("1", "symbol('z'); symbol('m')"), ("77", "symbol('n')")):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        code = SCRIPT.format(before=before)
        found.add(subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True).stdout)
    assert len(found) == 1
