"""Patterns: expressions with holes, written with the same functions that users call, and how they are matched.

A pattern variable is a `Value` of a builder without types, so `-(-x)` builds two untyped nodes. An op's attributes match bit for
bit; an attribute that is itself a variable binds; `some(Transpose, perm=p)` leaves unnamed attributes open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs
import numpy as np
from attrs import field

from rlx_core.errors import ConfigError, TraceError, nearest
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Builder, Constant, Input, Node, Value
from rlx_core.ir.op import Op, exact
from rlx_core.ir.types import TensorType
from rlx_core.ops.creation import Full
from rlx_core.ops.structural import Expand, Reshape
from rlx_core.system.records import frozen


class Unknown:
    """The type of a pattern variable: nothing is known of it, and an access raises an error with another way to write it."""

    __slots__ = ()

    def _refuse(self, action: str) -> NoReturn:
        raise TraceError(
            f"rule: a pattern variable has no {action}, because the pattern stands for all types",
            hint="build the pattern with the op itself, and make a right side that needs types a function of the match",
        )

    @property
    def dtype(self) -> NoReturn:
        self._refuse("dtype")

    @property
    def shape(self) -> NoReturn:
        self._refuse("shape")

    @property
    def rank(self) -> NoReturn:
        self._refuse("rank")

    @property
    def size(self) -> NoReturn:
        self._refuse("size")

    def __repr__(self) -> str:
        return "?"


class Anything:
    """A wildcard for an attribute."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "…"


ANY: Final = Anything()
_UNTYPED: Final[Any] = (Unknown(),)


def pattern_variables(names: Sequence[str]) -> dict[str, Value]:
    """Fresh variables, by name; operands and attributes alike."""
    builder = Builder("pattern", untyped=_UNTYPED)
    # The declared type of the leaf is never read: the type of the value is the one that refuses.
    leaves = {name: Input(name, TensorType(bool_, ())) for name in names}
    return {name: builder.emit(leaf, (), name=name, types=_UNTYPED)[0] for name, leaf in leaves.items()}


def some(op: type[Op], **attributes: Any) -> Op:
    """An op in a pattern, of which only the named attributes matter; each may be a value or a variable.

    Raises:
        ConfigError: The op has no such attribute.
    """
    known = [a.name for a in attrs.fields(op)]
    for name in attributes:
        if name not in known:
            raise ConfigError(f"rule: {op.name} has no attribute {name!r}", hint=nearest(name, known))
    pattern = object.__new__(op)  # validators check values, and a variable is not a value
    for name in known:
        object.__setattr__(pattern, name, attributes.get(name, ANY))
    return pattern


# ------------------------------------------------------------------------------------------- matching


@frozen(eq=False)
class PatternMatch:
    """The bindings of a pattern's variables, and the nodes it covers, root last."""

    values: Mapping[str, Value] = field(factory=dict)
    attributes: Mapping[str, Any] = field(factory=dict)
    nodes: tuple[Node, ...] = ()

    def with_value(self, name: str, value: Value) -> PatternMatch | None:
        known = self.values.get(name)
        if known is not None:
            return self if known is value else None
        return PatternMatch({**self.values, name: value}, self.attributes, self.nodes)

    def with_attribute(self, name: str, attribute: Any) -> PatternMatch | None:
        if name in self.attributes:
            return self if exact(self.attributes[name]) == exact(attribute) else None
        return PatternMatch(self.values, {**self.attributes, name: attribute}, self.nodes)

    def covering(self, node: Node) -> PatternMatch:
        return PatternMatch(self.values, self.attributes, (*self.nodes, node))


def matches(pattern: Value, value: Value, partial: PatternMatch | None = None) -> Iterator[PatternMatch]:
    """Yield every match of `pattern` at `value`; commutative operands are tried in both orders."""
    partial = partial or PatternMatch()
    pattern_node, node = pattern.node, value.node
    if isinstance(pattern_node.op, Input):
        bound = partial.with_value(pattern_node.op.label, value)
        if bound is not None:
            yield bound
    elif isinstance(pattern_node.op, Constant):
        if is_same_scalar(pattern_node.op.value.array, scalar_of(value)):
            yield partial
    elif value.index == 0 and len(pattern_node.operands) == len(node.operands):
        with_attributes = match_attributes(pattern_node.op, node.op, partial)
        if with_attributes is not None:
            for operands in orders(pattern_node):
                for all_found in match_all(operands, node.operands, with_attributes):
                    yield all_found.covering(node)


def orders(pattern_node: Node) -> Iterator[tuple[Value | None, ...]]:
    yield pattern_node.operands
    if pattern_node.op.is_commutative and len(pattern_node.operands) == 2:
        yield pattern_node.operands[::-1]


def match_all(
    patterns: Sequence[Value | None], values: Sequence[Value | None], partial: PatternMatch
) -> Iterator[PatternMatch]:
    if not patterns:
        yield partial
        return
    first, value = patterns[0], values[0]
    if first is None or value is None:
        if first is None and value is None:
            yield from match_all(patterns[1:], values[1:], partial)
        return
    for some_found in matches(first, value, partial):
        yield from match_all(patterns[1:], values[1:], some_found)


def match_attributes(pattern_op: Op, op: Op, partial: PatternMatch) -> PatternMatch | None:
    """The bindings of attribute variables, or `None` if the ops differ."""
    if type(pattern_op) is not type(op):
        return None
    for name, attribute in op.attributes().items():
        pattern = getattr(pattern_op, name)
        if isinstance(pattern, Value) and isinstance(pattern.node.op, Input):
            bound = partial.with_attribute(pattern.node.op.label, attribute)
            if bound is None:
                return None
            partial = bound
        elif pattern is not ANY and exact(pattern) != exact(attribute):
            return None
    return partial


REPEATING: Final = (Expand, Reshape, Full)
"""Ops whose result is uniform if their first operand is, with the same value."""


def ops_wanted(pattern: Value | None) -> tuple[type[Op], ...] | None:
    """Return the ops that can produce a value that `pattern` matches; `None` for any."""
    if pattern is None or isinstance(pattern.node.op, Input):
        return None
    return (Constant, *REPEATING) if isinstance(pattern.node.op, Constant) else (type(pattern.node.op),)


def scalar_of(value: Value) -> np.ndarray | None:
    """The one element (as an array of rank 0) that a constant repeats, or `None` for anything else."""
    node = value.node
    while isinstance(node.op, REPEATING) and node.operands[0] is not None:
        node = node.operands[0].node
    if not isinstance(node.op, Constant) or node.op.value.array.size == 0:
        return None
    flat = node.op.value.array.reshape(-1)
    first = flat[:1]
    is_repeated = flat.size == 1 or (flat[1] == flat[0] and flat.tobytes() == first.tobytes() * flat.size)
    return first.reshape(()) if is_repeated else None


def is_same_scalar(expected: np.ndarray, actual: np.ndarray | None) -> bool:
    """Return whether a constant is the number in the pattern; `0` is not `-0.0`, because `x - 0` is not `x + 0`."""
    if actual is None or actual.dtype == np.bool_:
        return False
    as_complex, target = complex(actual), complex(expected)
    if as_complex != target:
        return False
    signs = [
        np.signbit(as_complex.real) == np.signbit(target.real),
        np.signbit(as_complex.imag) == np.signbit(target.imag),
    ]
    return all(signs)


def mismatch(pattern: Value, value: Value) -> str:
    """The first place, in reading order, where `value` is not an instance of `pattern`."""
    pattern_node, node = pattern.node, value.node
    if isinstance(pattern_node.op, Input):
        return f"{pattern_node.op.label} stands for one value in one place and for another elsewhere"
    if isinstance(pattern_node.op, Constant):
        return f"{value!r} is not the constant {pattern_node.op.value!r}"
    if type(pattern_node.op) is not type(node.op):
        return f"{value!r} is {node.op.name}, not {pattern_node.op.name}"
    if match_attributes(pattern_node.op, node.op, PatternMatch()) is None:
        return f"{value!r} is {node.op!r}, not {pattern_node.op!r}"
    for inner, operand in zip(pattern_node.operands, node.operands, strict=False):
        if inner is not None and operand is not None and next(matches(inner, operand), None) is None:
            return mismatch(inner, operand)
    return f"the operands of {value!r} do not fit together"
