"""Symbolic sizes between two systems: rlx's specs as JAX's, and JAX's sizes in a program as rlx's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.export
import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core.errors import DtypeError, Fact
from rlx_core.importing.dtypes import DtypeMap
from rlx_core.importing.symbols import SymbolTable
from rlx_core.ir.dtypes import ALL

DTYPES: Final[DtypeMap[np.dtype]] = DtypeMap({dtype.numpy: dtype for dtype in ALL})
"""NumPy's dtypes, which JAX has, and rlx's."""


@frozen
class Sizes:
    """The symbols of one program.

    Attributes:
        scope: JAX's, in which they are compared.
        known: Name → rlx's symbol.
    """

    scope: Any = field(factory=jax.export.SymbolicScope)
    known: SymbolTable = field(factory=SymbolTable)

    def bound(self, specs: Sequence[rlx.TensorType], values: Sequence[Any]) -> Sizes:
        """The sizes for values that a program is walked with: a symbol that is an axis of an input is what that axis has."""
        known = SymbolTable()
        for spec, value in zip(specs, values, strict=True):
            for size, result in zip(spec.shape, value.shape, strict=False):
                if not isinstance(size, int) and str(size).isidentifier():
                    known.setdefault(str(size), result)
        return Sizes(self.scope, known)

    def struct(self, where: str, spec: rlx.TensorType) -> jax.ShapeDtypeStruct:
        """An input as JAX declares it.

        Raises:
            DtypeError: JAX would make its elements narrower.
        """
        stored = np.dtype(spec.dtype.numpy)
        if jax.dtypes.canonicalize_dtype(stored) != stored:
            raise DtypeError(
                f"from_jax: {where} is {spec}, and JAX computes with {jax.dtypes.canonicalize_dtype(stored)} instead",
                Fact("jax_enable_x64", "is off"),
                hint='jax.config.update("jax_enable_x64", True), or an input of 32 bits',
            )
        if all(isinstance(size, int) for size in spec.shape):
            return jax.ShapeDtypeStruct(spec.shape, stored)
        text = ", ".join(map(str, spec.shape))
        return jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=self.scope), stored)

    def size(self, size: Any) -> Any:
        """A size of a program as rlx has it."""
        return int(size) if isinstance(size, int | np.integer) else size._evaluate(self.known)

    def shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """A shape of a program as rlx has it."""
        return tuple(map(self.size, shape))


def as_spec(struct: Any, location: str) -> rlx.TensorType:
    """Return the type that JAX declares for an array as an rlx type.

    Raises:
        DtypeError: rlx has no such elements.
    """
    return rlx.spec(f"{DTYPES.dtype(np.dtype(struct.dtype), location)}[{', '.join(map(str, struct.shape))}]")
