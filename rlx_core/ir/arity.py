"""How many operands an op takes, as types: what lets a checker see the signature of the function that `op_function` makes.

An op declares its operands by the parameters of `infer`, or of `decompose` where there is no `infer`. A protocol is a number of
them; where one may be left out, or any number is taken, Python's types have no way to put the attributes behind them.
"""

from __future__ import annotations

from typing import Any, Never, Protocol


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
