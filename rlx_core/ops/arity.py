"""`op_function` for packages: type checkers see the number of operands of the function, and its attributes.

An op declares its operands by the parameters of `infer`, or of `decompose` if there is no `infer`. Each protocol covers one
number of operands; with an optional operand or any number of them, Python's types cannot express the attributes after them. The
standard ops use the plain `op_function` of `apply.py`: mypy does not support their converters, and the user-facing functions
have their signatures in the stub.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, ParamSpec, Protocol, TypeVar, overload

from rlx_core.ir.apply import OpFunction
from rlx_core.ir.op import Op

if TYPE_CHECKING:
    from rlx_core.typing import ArrayLike

P = ParamSpec("P")
_OpT = TypeVar("_OpT", bound=Op)


class Infer1(Protocol):
    def infer(self, a: Any, /) -> Any: ...


class Infer2(Protocol):
    def infer(self, a: Any, b: Any, /) -> Any: ...


class Infer3(Protocol):
    def infer(self, a: Any, b: Any, c: Any, /) -> Any: ...


class Infer4(Protocol):
    def infer(self, a: Any, b: Any, c: Any, d: Any, /) -> Any: ...


class InferSome(Protocol):
    def infer(self, *operands: Never) -> Any: ...


class InferOptional2(Protocol):
    def infer(self, a: Any, b: Any = ..., /) -> Any: ...


class InferOptional3(Protocol):
    def infer(self, a: Any, b: Any, c: Any = ..., /) -> Any: ...


class InferOptional4(Protocol):
    def infer(self, a: Any, b: Any, c: Any, d: Any = ..., /) -> Any: ...


class Decompose1(Protocol):
    def decompose(self, a: Any, /) -> Any: ...


class Decompose2(Protocol):
    def decompose(self, a: Any, b: Any, /) -> Any: ...


class Decompose3(Protocol):
    def decompose(self, a: Any, b: Any, c: Any, /) -> Any: ...


class Decompose4(Protocol):
    def decompose(self, a: Any, b: Any, c: Any, d: Any, /) -> Any: ...


class DecomposeSome(Protocol):
    def decompose(self, *operands: Never) -> Any: ...


class DecomposeOptional2(Protocol):
    def decompose(self, a: Any, b: Any = ..., /) -> Any: ...


class DecomposeOptional3(Protocol):
    def decompose(self, a: Any, b: Any, c: Any = ..., /) -> Any: ...


class DecomposeOptional4(Protocol):
    def decompose(self, a: Any, b: Any, c: Any, d: Any = ..., /) -> Any: ...


InferOpen = InferSome | InferOptional2 | InferOptional3 | InferOptional4
DecomposeOpen = DecomposeSome | DecomposeOptional2 | DecomposeOptional3 | DecomposeOptional4


class CheckedFunction(OpFunction[Any], Generic[P]):
    """For type checkers, the function of an op with a fixed number of operands; at run time every function is an `OpFunction`."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
        @overload
        def __call__(self, *operands: Any, name: str | None, **attributes: Any) -> Any: ...
        def __call__(self, *operands: Any, **attributes: Any) -> Any: ...


@overload
def op_function(op: Callable[P, InferOpen]) -> OpFunction[Any]: ...  # type: ignore[overload-overlap]
@overload
def op_function(op: Callable[P, Infer1]) -> CheckedFunction[Concatenate[ArrayLike, P]]: ...
@overload
def op_function(op: Callable[P, Infer2]) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(op: Callable[P, Infer3]) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(
    op: Callable[P, Infer4],
) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(op: Callable[P, DecomposeOpen]) -> OpFunction[Any]: ...  # type: ignore[overload-overlap]
@overload
def op_function(op: Callable[P, Decompose1]) -> CheckedFunction[Concatenate[ArrayLike, P]]: ...
@overload
def op_function(op: Callable[P, Decompose2]) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(
    op: Callable[P, Decompose3],
) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(
    op: Callable[P, Decompose4],
) -> CheckedFunction[Concatenate[ArrayLike, ArrayLike, ArrayLike, ArrayLike, P]]: ...
@overload
def op_function(op: type[_OpT]) -> OpFunction[_OpT]: ...
def op_function(op: Any) -> Any:
    """Return the function form of an op: operands first, attributes after them or by keyword."""
    return OpFunction(op)
