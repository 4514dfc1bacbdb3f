"""Walking a jaxpr: each equation becomes calls of rlx's public functions, by a table from primitive to handler.

A value on the way is what rlx functions take: a traced value or a NumPy array. An array of random keys is one of u64 words, a
word a key, so that whatever JAX does with shapes of keys is done with shapes of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from attrs import frozen
from jax._src import source_info_util  # by what JAX's own errors name lines
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from rlx_core.errors import unsupported
from rlx_core.ir.dtypes import dtype
from rlx_jax.sizes import Sizes

__all__ = ["HANDLERS", "Equation", "Handler", "evaluate", "expect_handlers", "handles", "key_words"]

Handler = Callable[..., Any]
"""From an equation and its operands to its result, or to a list of results where the primitive has several."""

HANDLERS: dict[str, Handler] = {}
"""Name of a primitive → handler; `rlx_jax.handlers` fills it when it is imported."""

INSTEAD = {
    "pure_callback": "call what is outside of JAX beside the model, or rlx.pure_callback",
    "io_callback": "call what is outside of JAX beside the model",
    "debug_callback": "remove jax.debug.print",
    "rng_bit_generator": "keys of the implementation threefry2x32",
    "psum": "a function for one device",
    "all_gather": "a function for one device",
}
"""Primitive → what would serve."""


@frozen
class Equation:
    """The context of a handler, in addition to its operands.

    Attributes:
        name: The primitive.
        params: Its parameters.
        operands: JAX's types of the operands.
        results: JAX's types of the results.
        sizes: Symbolic sizes of JAX → dims of rlx.
    """

    name: str
    params: Mapping[str, Any]
    operands: Sequence[Any]
    results: Sequence[Any]
    sizes: Sizes

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first result, as rlx writes sizes."""
        return self.sizes.shape(self.results[0].shape)

    def run(self, program: ClosedJaxpr | Jaxpr, *args: Any) -> list[Any]:
        """The results of a program inside of the equation."""
        closed = program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())
        return evaluate(closed, args, self.sizes)

    def expand(self, function: Callable[..., Any], *args: Any) -> Any:
        """Apply a function of JAX, traced with the types of `args`, to these."""
        specs = [jax.ShapeDtypeStruct(each.shape, dtype(each.dtype).numpy) for each in args]
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
        expect_handlers(self.name, closed.jaxpr)
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), self.run(closed, *args))


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of some primitives."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def evaluate(closed: ClosedJaxpr, args: Sequence[Any], sizes: Sizes) -> list[Any]:
    """The results of a program; all its primitives have handlers."""
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(array_of, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return array_of(atom.val, atom.aval) if isinstance(atom, Literal) else known[atom]

    for each in jaxpr.eqns:
        types = [atom.aval for atom in each.invars], [atom.aval for atom in each.outvars]
        equation = Equation(each.primitive.name, each.params, *types, sizes)
        found = HANDLERS[each.primitive.name](equation, *map(read, each.invars))
        results = found if each.primitive.multiple_results else [found]
        known.update(zip(each.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


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


def expect_handlers(name: str, jaxpr: Any) -> None:
    """Require that there is something for every primitive.

    Raises:
        UnsupportedError: There is not.
    """
    uses: dict[str, list[str]] = {}
    for each in equations(jaxpr):
        if each.primitive.name not in HANDLERS:
            uses.setdefault(each.primitive.name, []).append(
                source_info_util.summarize(each.source_info) or "an equation"
            )
    if uses:
        raise unsupported(f"from_jax: {name}", uses, INSTEAD)
