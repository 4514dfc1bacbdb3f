"""Cases of functions with an unknown size, each compared with code for the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.types import TensorType
from rlx_cpu.native.runtime.compiled import CompiledSteps

__all__ = ["Case", "agree", "check", "code_of", "joined", "weights", "words_of"]

RNG = np.random.default_rng(7)

EPSILON = float(np.finfo(np.float32).eps)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


@frozen
class Case:
    """A function of arrays with an unknown size `n`.

    Attributes:
        adds_up: Whether code for some sizes adds up in another order: along the unknown size, say.
        may_be_none: Whether a size of 0 is served too.
        ways: In how many ways its operands lie, or are read, for some of the sizes: each is compiled once.
        few: Up to which size code for it adds up in another order: of one element, or two keys, it makes sums without vectors.
    """

    function: Callable[..., Any]
    types: tuple[str, ...] = field(converter=tuple)
    adds_up: bool = False
    may_be_none: bool = True
    ways: int = 1
    few: int = 1

    def of_size(self, n: int) -> list[TensorType]:
        return [rlx.spec(text).bind(DimBinding.of(n=n)) for text in self.types]

    def arrays(self, n: int) -> list[np.ndarray]:
        return [array(type) for type in self.of_size(n)]

    def for_all(self, **options: Any) -> Any:
        return rlx.compile(self.function, *map(rlx.spec, self.types), target="cpu", **options)

    def for_size(self, n: int) -> Any:
        return rlx.compile(self.function, *self.of_size(n), target="cpu")


def array(type: TensorType) -> np.ndarray:
    if type.dtype.kind == "bool":
        return RNG.random(type.static_shape) < 0.7
    if type.dtype.is_integer:
        return RNG.integers(0, 9, type.static_shape).astype(type.dtype.numpy)
    return RNG.standard_normal(type.static_shape).astype(type.dtype.numpy)


def joined(found: Any) -> np.ndarray:
    """A copy of one result, or the elements of several."""
    return np.concatenate([np.ravel(x) for x in found]) if isinstance(found, tuple) else np.array(found)


def agree(case: Case, found: np.ndarray, wanted: np.ndarray, n: int) -> None:
    """The same bits, or sums in another order: along what is unknown, or of few elements."""
    if case.adds_up or n <= case.few:
        np.testing.assert_allclose(found, wanted, rtol=8 * EPSILON, atol=(n + 8) * EPSILON)
    else:
        np.testing.assert_array_equal(found, wanted)


def words_of(function: Any) -> list[int]:
    """How many numbers each step of the latest program is told."""
    return [len(each.words) for each in code_of(function).steps.values()]


def code_of(function: Any) -> CompiledSteps:
    """The code of the latest program."""
    found: CompiledSteps = function.executable._shared.latest.program.compiled.native
    return found


def check(case: Case, sizes: tuple[int, ...], compiled: list[int]) -> None:
    function, ways = case.for_all(), 0
    for n in sizes:
        if n == 0 and not case.may_be_none:
            continue
        inputs = case.arrays(n)
        compiled.clear()
        found = [joined(function(*inputs)) for _ in range(4)]  # checked, and by the entry
        ways += bool(compiled)
        assert ways <= case.ways, f"{n} compiles {compiled}"
        code = code_of(function)
        assert code.for_all == frozenset(code.steps), f"of the steps for {n}, {code.for_all} are for all sizes"
        wanted = joined(case.for_size(n)(*inputs))
        for each in found:
            agree(case, each, wanted, n)
