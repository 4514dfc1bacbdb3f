"""Nodes, and values that name their results.

`Value` carries the operators of Python, so that a rule, a decomposition and a traced program all read as mathematics; `==` is
element-wise like the others, and values are compared by identity (they are safe as dictionary keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from attrs import field

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph.array_methods import ArrayMethods, operator
from rlx_core.ir.graph.elements import needs_elements
from rlx_core.ir.graph.leaves import Constant, GraphArgument
from rlx_core.ir.op import Op
from rlx_core.ir.protocols import Stays
from rlx_core.ir.provenance import Origin
from rlx_core.ir.types import Shape, TensorType
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.ir.graph.builder import Builder

__all__ = ["Node", "Value"]


@frozen(eq=False, repr=False)
class Node(Stays):
    """One op applied to values. `index` is its place in the graph that `owner` builds."""

    op: Op
    operands: tuple[Value | None, ...]
    types: tuple[TensorType, ...]
    owner: Builder
    index: int
    name: str | None = None
    origin: Origin = field(factory=Origin)
    results: tuple[Value, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "results", tuple([Value(self, i) for i in range(len(self.types))]))

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.op.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def type(self) -> TensorType:
        return self.result.type

    @property
    def operand_types(self) -> tuple[TensorType | None, ...]:
        """The types of the operands, None where an optional one is absent: the arguments of rules on types."""
        return tuple(None if v is None else v.type for v in self.operands)

    @property
    def is_leaf(self) -> bool:
        return isinstance(self.op, GraphArgument | Constant)

    @property
    def label(self) -> str:
        """The node's name in errors and printers: its name, or its number."""
        return f"%{self.name or self.index}"

    def present(self) -> Iterator[Value]:
        """The operands that are present; optional ones may be absent."""
        return (v for v in self.operands if v is not None)

    def __repr__(self) -> str:
        names = ", ".join("_" if v is None else repr(v) for v in self.operands)
        return f"{self.label} = {self.op!r}({names}) : {', '.join(map(str, self.types))}"


_RETURN: Final = "return it from the traced function, and look at the array that comes back"


class Value(ArrayMethods, Stays):
    """One result of a node: operands refer to it, and traced functions compute with it.

    A value never changes. `x[key] = y` makes another one, which the Python object `x` refers to from then on (see
    `Builder.assign`). Operators and methods are those of all arrays (`ArrayMethods`).
    A value has a type but no elements: converting it to a number, a bool or an array raises TraceError.
    """

    __slots__ = ("index", "node")

    described = "a traced value"

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Dim:
        return self.type.size

    __hash__ = object.__hash__

    # NumPy must leave `array + value` to us instead of making an object array of values.
    __array_ufunc__ = None

    def __array_function__(self, function: Callable[..., Any], *arguments: object) -> NoReturn:
        self._refuse(f"{function.__module__}.{function.__name__}", function)

    def _refuse(self, action: str, function: Any = None, hint: str | None = None) -> NoReturn:
        raise needs_elements(self, action, function, hint)

    def __bool__(self) -> bool:
        self._refuse("a truth value")

    def __float__(self) -> float:
        self._refuse("float()")

    def __complex__(self) -> complex:
        self._refuse("complex()")

    def __round__(self, digits: int | None = None) -> NoReturn:
        self._refuse("round()")

    def __format__(self, how: str) -> str:
        return self._refuse(f"the format {how!r}", hint=_RETURN) if how else repr(self)

    def item(self) -> NoReturn:
        """Refused: a value has no elements."""
        self._refuse("item()", hint=_RETURN)

    def tolist(self) -> NoReturn:
        """Refused: a value has no elements."""
        self._refuse("tolist()", hint=_RETURN)

    def __int__(self) -> int:
        self._refuse("int()")

    def __index__(self) -> int:
        self._refuse("an index")

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        self._refuse("a NumPy array")

    def __dlpack__(self, **kwargs: object) -> NoReturn:
        self._refuse("DLPack")

    def __dlpack_device__(self) -> NoReturn:
        self._refuse("DLPack")

    def block_until_ready(self) -> Value:
        """This value: a program waits for nothing while it is traced."""
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        operator("setitem")(self, key, value)

    def __repr__(self) -> str:
        return self.node.label + (f".{self.index}" if len(self.node.types) > 1 else "")
