"""Calls of Python functions while a program runs: for a value (`PureCallback`), or for side effects (`DebugCallback`).

A function cannot be serialised: a program with one runs in the process that created it, and is not saved.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

import numpy as np
from attrs import evolve, field

from rlx_core.errors import CallbackError, DtypeError, Fact, ShapeError, WrongInputCountError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bool_, f32, i64
from rlx_core.ir.graph import Value, as_results
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.rules import CustomDerivative
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched
from rlx_core.system.records import frozen

_PROCESS: Final = secrets.token_hex(8)
_numbers = itertools.count()
_known: Final[WeakValueDictionary[str, HostFunction]] = WeakValueDictionary()


@frozen(slots=False)
class HostFunction:
    """A Python function of arrays in this process; compared by identity, and kept alive by programs that use it.

    Attributes:
        name: Its name in reports and errors.
        key: Identifies the function in a copy of the program as text.
    """

    name: str
    key: str = field(repr=False)  # differs between processes

    def __attrs_post_init__(self) -> None:
        known = _known.get(self.key)
        if known is not None:
            vars(self).update(vars(known))

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        """Return the function's result for copies of these arrays, which it may keep.

        Raises:
            CallbackError: The function raised an error, which is the cause of this one; or it belongs to another process.
        """
        if "call" not in vars(self):
            raise CallbackError(f"callback {self.name}: it is a function of the process that made the program")
        try:
            return vars(self)["call"](*[np.array(a) for a in arrays])
        except Exception as error:
            raise CallbackError(
                f"callback {self.name}: it raised {type(error).__name__}: {error}", *_raised_at(error)
            ) from error


def host_function(function: Callable[..., Any], name: str) -> HostFunction:
    """Return a Python function as an attribute of ops."""
    result = HostFunction(name, f"{_PROCESS}-{next(_numbers)}")
    object.__setattr__(result, "call", function)
    _known[result.key] = result
    return result


def _raised_at(error: Exception) -> list[Fact]:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return []
    return [Fact("raised at", f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}")]


def expect_given(op: PureCallback | DebugCallback, x: Sequence[TensorType]) -> None:
    """Require operands that the function of a callback accepts, one for each of its dtypes.

    Raises:
        WrongInputCountError, DtypeError: Their number or a kind differs: a pass may only change their width.
        ShapeError: An operand does not begin with the axes that the callback is mapped over.
    """
    if len(x) != len(op.dtypes):
        raise WrongInputCountError(f"{op.title}: {op.function.name} takes {len(op.dtypes)} operands, not {len(x)}")
    for k, (actual, expected) in enumerate(zip(x, op.dtypes, strict=True)):
        if actual.dtype.kind != expected.kind:
            raise DtypeError(f"operand {k} of {op.function.name} must be {expected}, not {actual.dtype}")
        if actual.shape[: len(op.batch_shape)] != op.batch_shape:
            axes = ", ".join(map(str, op.batch_shape))
            raise ShapeError(f"operand {k} of {op.function.name} must begin with [{axes}], and is {actual}")


def per_example(batch: Sequence[int], arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return the operands of each call: one for each element of the mapped axes."""
    return [[a[index] for a in arrays] for index in np.ndindex(*batch)]


@define_op
class PureCallback(CustomDerivative, Op):
    """The results of a Python function of the operands: it must have no side effects, and may be called any number of times.

    Shapes:
        operands: [batch.., ...]    ->    results: [batch.., ...]

    Attributes:
        function: The function.
        dtypes: The dtypes of the operands, as passed to the function.
        results: The types of its results.
        batch_shape: The sizes of the axes that it is mapped over: it is called once for each element.
    """

    category: ClassVar[Category] = "boundary"
    calls_host: ClassVar[bool] = True
    function: HostFunction
    dtypes: tuple[DType, ...]
    results: tuple[TensorType, ...]
    batch_shape: tuple[Dim, ...] = ()

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        expect_given(self, x)
        return tuple(t.with_shape((*self.batch_shape, *t.shape)) for t in self.results)

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        converted = [a.astype(d.numpy, copy=False) for a, d in zip(arrays, self.dtypes, strict=True)]
        shape = tuple(d.__index__() for d in self.batch_shape)
        calls = [self._called(each) for each in per_example(shape, converted)]
        columns = zip(*calls, strict=True) if calls else ([] for _ in self.results)
        return tuple(
            np.asarray(list(column), t.dtype.numpy).reshape((*shape, *t.static_shape))
            for column, t in zip(columns, self.results, strict=True)
        )

    def _called(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [np.asarray(a) for a in self.function(arrays)]
        for k, (array, expected) in enumerate(zip(outputs, self.results, strict=True)):
            if array.shape != expected.static_shape or array.dtype != expected.dtype.numpy:
                raise CallbackError(
                    f"callback {self.function.name}: result {k} must be {expected}, not {array.dtype}{list(array.shape)}"
                )
        return outputs

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value, ...]:
        mapped = evolve(self, batch_shape=(size, *self.batch_shape))
        return as_results(mapped(*all_batched(size, x, is_batched)))

    def why_unstated(self) -> tuple[str, str]:
        return (
            f"callback {self.function.name}: a Python function has no derivative that rlx could find",
            "state one with rlx.custom_vjp, or cut the arguments off with rlx.stop_gradient",
        )

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def largest(x: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
            return [np.sort(x)[-1], np.argmax(x) + n]

        ranked = host_function(lambda x: [np.sort(x)], "ranked")
        yield Sample("f32[3]", function=ranked, dtypes=(f32,), results=(spec("f32[3]"),))
        yield Sample(
            "f32[3]",
            "i64[]",
            function=host_function(largest, "largest"),
            dtypes=(f32, i64),
            results=(spec("f32[]"), spec("i64[]")),
        )
        yield Sample("f32[2, 3]", function=ranked, dtypes=(f32,), results=(spec("f32[3]"),), batch_shape=(2,))
        yield Rejected(
            "i64[3]",
            function=ranked,
            dtypes=(f32,),
            results=(),
            error=DtypeError,
            says="operand 0 of ranked must be f32, not i64",
        )
        yield Rejected(
            "f32[3]", function=ranked, dtypes=(), results=(), error=WrongInputCountError, says="takes 0 operands"
        )


@define_op
class DebugCallback(Op):
    """A call of a Python function for its side effects: it is kept, in order among the others, and returns false.

    Shapes:
        operands: [batch.., ...]    ->    bool[]
    """

    category: ClassVar[Category] = "boundary"
    is_pure: ClassVar[bool] = False
    calls_host: ClassVar[bool] = True
    function: HostFunction
    dtypes: tuple[DType, ...]
    batch_shape: tuple[Dim, ...] = ()

    def infer(self, *x: TensorType) -> TensorType:
        expect_given(self, x)
        return TensorType(bool_, self.batch_shape)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        converted = [a.astype(d.numpy, copy=False) for a, d in zip(arrays, self.dtypes, strict=True)]
        shape = tuple(d.__index__() for d in self.batch_shape)
        for each in per_example(shape, converted):
            self.function(each)
        return np.zeros(shape, np.bool_)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        return evolve(self, batch_shape=(size, *self.batch_shape))(*all_batched(size, x, is_batched))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        function = host_function(lambda *arrays: None, "nothing")
        yield Sample("f32[3]", "i64[]", function=function, dtypes=(f32, i64))
        yield Sample("f32[2, 3]", function=function, dtypes=(f32,), batch_shape=(2,))
        yield Rejected(
            "f32[3]",
            function=function,
            dtypes=(f32,),
            batch_shape=(2,),
            error=ShapeError,
            says="must begin with [2], and is f32[3]",
        )
