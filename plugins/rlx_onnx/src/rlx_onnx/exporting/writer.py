"""The graph that is written: nodes, constants, and sizes as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
from onnx import helper, numpy_helper

from rlx_core.errors import UnsupportedError
from rlx_core.importing.table import Handler, HandlerTable, register_rows
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dims.atoms import SizeSymbol
from rlx_core.ir.dtypes import DType
from rlx_onnx.reading.tensors import DTYPES

OPSET: Final = 21
"""The version of ai.onnx that is written: the newest that the runtimes of two years ago read."""

TABLE: Final = HandlerTable(
    Handler,
    package="rlx_onnx.exporting",
    registration='@rlx_onnx.exporting.writer.emits("{}") registers a function of the writer, the node and names of operands',
)
"""Full name of an op → function that exports it and returns the name of the result."""

emits = TABLE.register

rows: Final = partial(register_rows, emits)
"""Registers functions of one expression each: full names of ops → function."""


class Writer:
    """Collects the parts of an ONNX graph.

    Attributes:
        nodes, initializers: The nodes and initializers written so far.
        symbols: A symbol → the input and the axis that have its size.
    """

    def __init__(self, symbols: dict[SizeSymbol, tuple[str, int]], numbers: Iterator[int] | None = None) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.symbols = symbols
        self.numbers = count(1) if numbers is None else numbers
        self._sizes: dict[SizeSymbol, str] = {}

    def fresh(self, hint: str = "v") -> str:
        """A name that nothing has yet."""
        return f"{hint}_{next(self.numbers)}"

    def __call__(self, op: str, *operands: str, results: int = 1, **attributes: Any) -> Any:
        """Write a node; the name of its result, or a tuple of several names."""
        names = [self.fresh(op.lower()) for _ in range(results)]
        self.nodes.append(helper.make_node(op, list(operands), names, name=names[0], **attributes))
        return names[0] if results == 1 else tuple(names)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A tensor of these numbers."""
        name = self.fresh("c")
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype, order="C"), name))
        return name

    def ints(self, values: Iterable[int]) -> str:
        """A list of integers, as axes and sizes are given."""
        return self.constant(np.array(list(values), np.int64))

    def cast(self, name: str, to: DType) -> str:
        """A value in another dtype."""
        result: str = self("Cast", name, to=DTYPES.element(to))
        return result

    def shape(self, dims: Sequence[Dim]) -> str:
        """Emit sizes as a tensor: a constant, or an expression of the inputs' sizes.

        Raises:
            UnsupportedError: A size is not a polynomial of sizes of inputs.
        """
        if all(isinstance(each, int) for each in dims):
            return self.ints(each.__index__() for each in dims)
        parts = [self.ints([each]) if isinstance(each, int) else self.size(each) for each in dims]
        return parts[0] if len(parts) == 1 else str(self("Concat", *parts, axis=0))

    def size(self, dim: Dim) -> str:
        """A size as a tensor of one element."""
        total = None
        for monomial, coefficient in Expr.of(dim).terms:
            term = self.ints([coefficient])
            for atom, power in monomial:
                if not isinstance(atom, SizeSymbol) or atom not in self.symbols:
                    raise UnsupportedError(
                        f"the size {dim} is not made of sizes of inputs", hint="a size that is known"
                    )
                for _ in range(power):
                    term = self("Mul", term, self._symbol(atom))
            total = term if total is None else self("Add", total, term)
        return total or self.ints([0])

    def count(self, dim: Dim) -> str:
        """A size as a scalar."""
        if isinstance(dim, int):
            return self.constant(dim, np.int64)
        result: str = self("Squeeze", self.size(dim), self.ints([0]))
        return result

    def _symbol(self, symbol: SizeSymbol) -> str:
        if symbol not in self._sizes:
            name, axis = self.symbols[symbol]
            self._sizes[symbol] = self("Shape", name, start=axis, end=axis + 1)
        return self._sizes[symbol]
