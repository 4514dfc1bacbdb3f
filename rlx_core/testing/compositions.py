"""Small programs of standard ops in which rewrites fire: single ops, pairs of ops, ops on constants, and generated programs.

A rewrite that is a class, or a function of a match, has no pattern that could be read. It is tried on all of these, and compared
where it changes something.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np

from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Graph, Value, as_results, building
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops import arithmetic, standard_ops
from rlx_core.system.records import frozen
from rlx_core.testing.cases import cases_of, programs
from rlx_core.testing.generate import generate
from rlx_core.testing.variants import bases

FIRST_TYPE: Final = spec("f32[2, 5]")
OTHER_TYPES: Final = tuple(map(spec, ("bf16[5]", "f16[1]", "f64[5, 1]", "i32[5]", "bool[5]")))
"""Further types in which a program is compared, where its ops take them: narrow dtypes, sizes 1 and 5."""

GENERATED: Final = 24
CONSTANTS: Final = (0, 1, 2, -1, 0.5)


@frozen(eq=False)
class Composition:
    """A program of a few standard ops, for any type of its operands.

    Attributes:
        name: The program as an expression.
        make: The results, from the operands.
        arity: Its number of operands.
    """

    name: str
    make: Callable[..., Any]
    arity: int = 1

    def graph(self, type: TensorType) -> Graph | None:
        """The program on operands of one type; `None` where an op does not take them."""
        builder = Builder("composition")
        try:
            with building(builder):
                operands = [builder.input(name, type) for name in ("x", "y", "z")[: self.arity]]
                return builder.finish(as_results(self.make(*operands)))
        except RlxError:
            return None


@cache
def compositions() -> tuple[Composition, ...]:
    """Pairs of unary ops, binary ops on constants, and chains of two binary ops."""
    return tuple(each for each in made() if each.graph(FIRST_TYPE) is not None)


def made() -> Iterator[Composition]:
    unary = unary_ops()
    binary = {
        name: getattr(arithmetic, name)
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "pow")
    }
    for f in unary:
        yield Composition(f"{f}(x)", unary[f])
        for g in unary:
            yield Composition(f"{g}({f}(x))", lambda x, f=unary[f], g=unary[g]: g(f(x)))
    for name, op in binary.items():
        yield Composition(f"{name}(x, y)", op, 2)
        yield Composition(f"{name}(x, x)", lambda x, op=op: op(x, x))
        for c in CONSTANTS:
            yield Composition(f"{name}(x, {c})", lambda x, op=op, c=c: op(x, c))
            yield Composition(f"{name}({c}, x)", lambda x, op=op, c=c: op(c, x))
        for f in unary:
            yield Composition(f"{name}({f}(x), {f}(y))", lambda x, y, op=op, f=unary[f]: op(f(x), f(y)), 2)
            yield Composition(f"{name}({f}(x), {f}(x))", lambda x, op=op, f=unary[f]: op(f(x), f(x)))
            yield Composition(f"{name}(x, {f}(y))", lambda x, y, op=op, f=unary[f]: op(x, f(y)), 2)
            yield Composition(f"{f}({name}(x, y))", lambda x, y, op=op, f=unary[f]: f(op(x, y)), 2)
    for (a, first), (b, second) in itertools.product(binary.items(), binary.items()):
        yield Composition(f"{b}({a}(x, y), z)", lambda x, y, z, p=first, q=second: q(p(x, y), z), 3)
        yield Composition(f"{b}(x, {a}(y, z))", lambda x, y, z, p=first, q=second: q(x, p(y, z)), 3)
        yield Composition(f"{b}({a}(x, y), {a}(x, z))", lambda x, y, z, p=first, q=second: q(p(x, y), p(x, z)), 3)


def unary_ops() -> dict[str, Callable[[Value], Any]]:
    """The element-wise ops of one operand that take f32 and need no attribute."""
    ops = [op for op in standard_ops() if op.category == "elementwise" and len(op.operands) == 1]
    plain = [c.op for c in cases_of(ops) if not c.sample.attributes and len(c.sample.types) == 1]
    return {op.name.removeprefix("rlx."): partial(applied, op) for op in plain}


def applied(op: type[Op], x: Value) -> Any:
    """An op with its default attributes on one operand."""
    return op()(x)


Example = tuple[str, Graph, Mapping[str, np.ndarray]]
"""A program in words, the program, and inputs that it takes."""


@cache
def single_ops() -> tuple[Example, ...]:
    """One program for each way to call a standard op."""
    tried = [p for p in bases(programs(tuple(standard_ops()))) if p.failure is None]
    return tuple((repr(p), p.graph, dict(zip(p.graph.input_types, p.draw(), strict=True))) for p in tried)


@cache
def generated() -> tuple[Example, ...]:
    """Programs grown from the samples of the standard ops, which are the same in every process."""
    programs = [generate(seed, max_steps=16) for seed in range(GENERATED)]
    return tuple((f"generated program {p.seed}", p.graph, p.fed) for p in programs)
