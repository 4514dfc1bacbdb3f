"""Walking a jaxpr: each equation becomes calls of rlx's public functions, by a table from primitive to handler.

A value on the way is what rlx functions take: a traced value or a NumPy array. An array of random keys is one of u64 words, a
word a key, so that whatever JAX does with shapes of keys is done with shapes of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import jax
import numpy as np
from attrs import frozen
from jax._src import source_info_util  # by what JAX's own errors name lines
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

import rlx_core as rlx
from rlx_core.importing.report import expect_handlers
from rlx_core.importing.table import Handler, HandlerTable, register_rows
from rlx_core.importing.walk import GraphWalk
from rlx_core.ir.dtypes import dtype
from rlx_jax.sizes import DTYPES, Sizes

TABLE: Final = HandlerTable(
    Handler,
    package="rlx_jax.handlers",
    registration='@rlx_jax.walk.handles("{}") registers a function of the equation and its operands',
    alternatives={
        "pure_callback": "call what is outside of JAX beside the model, or rlx.pure_callback",
        "io_callback": "call what is outside of JAX beside the model",
        "debug_callback": "remove jax.debug.print",
        "rng_bit_generator": "keys of the implementation threefry2x32",
        "psum": "a function for one device",
        "all_gather": "a function for one device",
    },
)
"""Primitive → handler: from an equation and its operands to its result, or to a list if the primitive has several results."""

handles = TABLE.register

rows: Final = partial(register_rows, handles)
"""Registers handlers of one expression each: primitives → function of the equation and its operands."""


@frozen
class Equation:
    """The context of a handler, in addition to its operands.

    Attributes:
        name: The primitive.
        params: Its parameters.
        operands: JAX's types of the operands.
        results: JAX's types of the results.
        walk: The walk, which runs programs inside of the equation.
    """

    name: str
    params: Mapping[str, Any]
    operands: Sequence[Any]
    results: Sequence[Any]
    walk: JaxprWalk

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def sizes(self) -> Sizes:
        """Symbolic sizes of JAX → dims of rlx."""
        return self.walk.sizes

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first result, as rlx writes sizes."""
        return self.sizes.shape(self.results[0].shape)

    def run(self, program: ClosedJaxpr | Jaxpr, *args: Any) -> list[Any]:
        """The results of a program inside of the equation."""
        closed = program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())
        return self.walk.run(closed, args)

    def expand(self, function: Callable[..., Any], *args: Any) -> Any:
        """Apply a function of JAX, traced with the types of `args`, to these."""
        specs = [jax.ShapeDtypeStruct(each.shape, dtype(each.dtype).numpy) for each in args]
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
        expect_supported(self.name, closed.jaxpr)
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), self.run(closed, *args))


class JaxprWalk(GraphWalk[Any]):
    """One walk through a jaxpr and the programs inside of it.

    Attributes:
        sizes: Symbolic sizes of JAX → dims of rlx.
    """

    def __init__(self, program: str, sizes: Sizes) -> None:
        super().__init__(f"from_jax: {program}", TABLE)
        self.sizes = sizes

    def run(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """Return the results of a program; all its primitives have handlers."""
        jaxpr = closed.jaxpr
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(array_of, closed.consts), strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))
        self.nodes(jaxpr.eqns, values)
        return [_read(atom, values) for atom in jaxpr.outvars]

    def operation(self, node: Any) -> str:
        return str(node.primitive.name)

    def location(self, node: Any) -> str:
        return source_info_util.summarize(node.source_info) or "an equation"

    def step(self, node: Any, values: dict[Any, Any]) -> None:
        types = [atom.aval for atom in node.invars], [atom.aval for atom in node.outvars]
        equation = Equation(node.primitive.name, node.params, *types, self)
        results = TABLE[equation.name].function(equation, *(_read(atom, values) for atom in node.invars))
        values.update(zip(node.outvars, results if node.primitive.multiple_results else [results], strict=True))

    def skip(self, node: Any, values: dict[Any, Any]) -> None:
        for atom in node.outvars:
            is_word = jax.dtypes.issubdtype(atom.aval.dtype, jax.dtypes.prng_key)
            kind = rlx.u64 if is_word else DTYPES.dtype(np.dtype(atom.aval.dtype), self.location(node))
            values[atom] = rlx.zeros(self.sizes.shape(atom.aval.shape), dtype=kind)


def _read(atom: Any, values: Mapping[Any, Any]) -> Any:
    return array_of(atom.val, atom.aval) if isinstance(atom, Literal) else values[atom]


def array_of(value: Any, aval: Any = None) -> np.ndarray:
    """A constant of a program as a NumPy array; keys as words."""
    if is_key(value):
        return key_words(np.asarray(jax.random.key_data(value)))
    return np.asarray(value, None if aval is None else aval.dtype)


def is_key(value: Any) -> bool:
    """Return whether an array of JAX holds random keys."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def key_words(data: np.ndarray) -> np.ndarray:
    """Keys as words, from the pairs of u32 in the last axis that JAX has them in."""
    return (data[..., 0].astype(np.uint64) << np.uint64(32)) | data[..., 1].astype(np.uint64)


def equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """Every equation of a program and of the programs inside of it."""
    for each in jaxpr.eqns:
        yield each
        for inner in jax.extend.core.jaxprs_in_params(each.params):
            yield from equations(inner)


def expect_supported(name: str, jaxpr: Any) -> None:
    """Require that every primitive has a handler.

    Raises:
        UnsupportedError: Primitives have none; all are named.
    """
    walk = JaxprWalk(name, Sizes())
    expect_handlers(walk.program, TABLE, ((walk.operation(each), walk.location(each)) for each in equations(jaxpr)))
