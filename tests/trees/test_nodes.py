"""Classes that are registered as pytrees by a pair of functions."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError


def make():
    class Line:
        def __init__(self, slope, offset, name="line"):
            self.slope, self.offset, self.name = slope, offset, name

    rlx.register_pytree_node(
        Line, lambda line: ((line.slope, line.offset), line.name), lambda name, both: Line(*both, name)
    )
    return Line


def test_a_registered_class_goes_through_transforms():
    Line = make()
    line = Line(np.float32(2), np.float32(1))
    gradient = rlx.grad(lambda line, x: line.slope * x + line.offset)(line, np.float32(3))
    assert (type(gradient), gradient.name) == (Line, "line")
    assert (gradient.slope, gradient.offset) == (3, 1)
    doubled = rlx.jit(lambda line: Line(line.slope * 2, line.offset, "doubled"))(line)
    assert (doubled.slope, doubled.name) == (4, "doubled")
    mapped = rlx.vmap(lambda line, x: line.slope * x, in_axes=(None, 0))(line, np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(mapped, [0, 2, 4])


def test_leaves_are_named_by_the_names_of_the_children_if_flatten_has_them():
    class Named:
        def __init__(self, first, second):
            self.first, self.second = first, second

    rlx.register_pytree_node(
        Named, lambda x: ((x.first, x.second), None, ("first", "second")), lambda _, both: Named(*both)
    )
    named, numbered = Named(np.float32(1), np.float32(2)), make()(np.float32(1), np.float32(2))
    of_named = rlx.trace(lambda x: x.first * x.second, named)
    of_numbered = rlx.trace(lambda x: x.slope * x.offset, numbered)
    assert list(of_named.input_types) == ["x.first", "x.second"]
    assert list(of_numbered.input_types) == ["x.0", "x.1"]


def test_what_is_no_array_is_part_of_the_program():
    Line = make()
    f = rlx.jit(lambda line: line.slope * len(line.name))
    assert [float(f(Line(np.float32(1), np.float32(0), name))) for name in ("a", "abc", "a")] == [1, 3, 1]
    assert len(f.executables) == 2


def test_mistakes_are_named():
    Line = make()
    with pytest.raises(ConfigError, match="Line is a pytree already"):
        rlx.register_pytree_node(Line, lambda x: ((), None), lambda aux, children: None)
    with pytest.raises(ConfigError, match="takes a class, not int"):
        rlx.register_pytree_node(3, lambda x: ((), None), lambda aux, children: None)
    with pytest.raises(ConfigError, match="unflatten is NoneType"):
        rlx.register_pytree_node(type("Other", (), {}), lambda x: ((), None), None)
    Wrong = rlx.register_pytree_node(type("Wrong", (), {}), lambda x: [], lambda aux, children: None)
    with pytest.raises(ConfigError, match="flatten of Wrong returned list, not a pair"):
        rlx.jit(lambda x: 1.0)(Wrong())
