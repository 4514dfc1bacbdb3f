"""What a row of the comparison with PyTorch and JAX says, and what its cases are drawn with.

A row has one function of ours and the same function written with a peer's own; `cases` draws their arguments. Sizes and
attributes come from one generator and elements from another, so that examples of a batch have the sizes of the first.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import ml_dtypes
import numpy as np
import optree
from attrs import field, frozen

from .arguments import is_inexact

__all__ = [
    "COMPLEX",
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "PEERS",
    "WIDE",
    "Case",
    "Draw",
    "Family",
    "Peer",
    "Question",
    "Row",
    "case_of",
]

Peer = Literal["torch", "jax"]
PEERS: Final[tuple[Peer, ...]] = ("torch", "jax")

Question = Literal["dtype", "forward", "gradient", "jvp", "batch", "second"]
"""What is compared: `second` is the gradient of a gradient's product with a direction, of real arguments."""

SEED: Final = int(os.environ.get("ORACLE_SEED", "0"))

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
}
FLOATS: Final = ("f64", "f32", "f16", "bf16")
WIDE: Final = ("f64", "f32")
COMPLEX: Final = ("c128", "c64")
INTEGERS: Final = ("i64", "i32", "u8")

_T = TypeVar("_T")


@frozen(eq=False)
class Draw:
    """What a row's arguments are drawn with: sizes and attributes from one generator, elements from another."""

    sizes: np.random.Generator
    elements: np.random.Generator
    dtype: np.dtype[Any]

    def size(self, low: int, high: int) -> int:
        """A size from `low` to `high`, both among them."""
        return int(self.sizes.integers(low, high + 1))

    def shape(self, rank: int, low: int = 1, high: int = 6) -> tuple[int, ...]:
        return tuple(self.size(low, high) for _ in range(rank))

    def choice(self, values: Sequence[_T]) -> _T:
        return values[int(self.sizes.integers(len(values)))]

    def floats(self, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Evenly spread over an interval; of a complex dtype both parts are."""
        return self.rounded(self.elements.uniform(low, high, shape), lambda: self.elements.uniform(low, high, shape))

    def normal(self, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        return self.rounded(self.elements.normal(0, scale, shape), lambda: self.elements.normal(0, scale, shape))

    def apart(self, shape: Sequence[int], gap: float = 0.0625) -> np.ndarray:
        """Numbers no two of which are equal or nearly so, around 0: none is chosen before another by rounding."""
        count = int(np.prod(shape))
        return self.rounded(((self.elements.permutation(count) - count / 2 + 0.25) * gap).reshape(shape))

    def integers(self, high: int, shape: Sequence[int], dtype: str = "i64", low: int = 0) -> np.ndarray:
        """Integers from `low` to below `high`, such as indices."""
        return self.elements.integers(low, high, shape).astype(DTYPES[dtype])

    def bools(self, shape: Sequence[int]) -> np.ndarray:
        return self.elements.integers(0, 2, shape).astype(bool)

    def rounded(self, array: np.ndarray, imaginary: Callable[[], np.ndarray] | None = None) -> np.ndarray:
        """As the dtype holds it."""
        if self.dtype.kind == "c" and imaginary is not None:
            array = array + 1j * imaginary()
        return np.asarray(array, np.float64 if self.dtype.kind not in "c" else np.complex128).astype(self.dtype)


@frozen(eq=False)
class Case:
    """One case: arguments of the first example, and of two more with the same sizes.

    Attributes:
        examples: The arguments of each.
        attributes: What the function is called with by name, the same for all.
        in_axes: Along which axis arguments are batched; `None`: those of the first example serve all.
        dtype: Of the floating-point arguments.
        random: For what is drawn later: tangents and cotangents.
    """

    examples: Sequence[tuple[Any, ...]]
    attributes: Mapping[str, Any]
    in_axes: tuple[int | None, ...]
    dtype: str
    random: np.random.Generator

    def answerable(self, asks: frozenset[Question]) -> frozenset[Question]:
        """Those of the questions that make sense of these arguments."""
        leaves = [leaf.dtype for leaf in optree.tree_leaves(self.args)]
        if not any(is_inexact(dtype) for dtype in leaves):
            return asks - {"gradient", "jvp", "second"}
        return asks - {"second"} if any(dtype.kind == "c" for dtype in leaves) else asks

    @property
    def args(self) -> tuple[Any, ...]:
        return self.examples[0]

    @property
    def batch(self) -> list[tuple[Any, ...]]:
        """The arguments of each example of the batch: where an axis is `None`, those of the first."""
        return [
            tuple(
                first if axis is None else own for axis, first, own in zip(self.in_axes, self.args, each, strict=True)
            )
            for each in self.examples
        ]


@frozen(eq=False)
class Row:
    """One function here and at the peers.

    Attributes:
        name: What it is, in the words of our users.
        ours: With rlx, of arrays and of attributes by name.
        cases: Draws `(arguments, attributes)`.
        torch, jax: The same with a peer's own functions; `None` if it has none.
        dtypes: Which the floating-point arguments may have; the first is always tried.
        asks: What is compared.
        slack: In units of the last place of the largest element; more than usual needs a `why`.
        why: Why a row has more slack, or asks for less.
        note: How the same thing is called with the peer, where it is not by name.
        differs: (peer, question) → the reason for which they do not agree. That they do not is checked.
        inexact: Peer → how far its own float64 is from the true value, as a share of the largest element, and why.
        lacks: What a peer does not compute of this, and how it says so.
    """

    name: str
    ours: Callable[..., Any]
    cases: Callable[[Draw], tuple[tuple[Any, ...], dict[str, Any]]]
    torch: Callable[..., Any] | None = None
    jax: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = FLOATS
    asks: frozenset[Question] = field(
        default=frozenset({"dtype", "forward", "gradient", "jvp", "batch"}), converter=frozenset
    )
    slack: float = 32.0
    why: str = ""
    note: str = ""
    differs: Mapping[tuple[Peer, Question], str] = field(factory=dict)
    inexact: Mapping[Peer, tuple[float, str]] = field(factory=dict)
    lacks: Mapping[tuple[Peer, Question], str] = field(factory=dict)

    def peer(self, name: Peer) -> Callable[..., Any] | None:
        return self.torch if name == "torch" else self.jax

    def __str__(self) -> str:
        return self.name


@frozen(eq=False)
class Family:
    """Rows of one subject, as a section of the page has them."""

    name: str
    rows: Sequence[Row]


def case_of(row: Row, number: int) -> Case:
    """Case `number` of a row: the first has its first dtype, others one of the rest in turn."""
    identity = zlib.crc32(row.name.encode())
    rest = row.dtypes[1:] or row.dtypes
    dtype = row.dtypes[0] if number == 0 else rest[(identity + number + SEED) % len(rest)]
    seeds = (identity, number, SEED)

    def drawn(example: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return row.cases(
            Draw(np.random.default_rng([0, *seeds]), np.random.default_rng([1 + example, *seeds]), DTYPES[dtype])
        )

    examples = [drawn(i) for i in range(3)]
    random = np.random.default_rng([9, *seeds])
    args, attributes = examples[0]
    in_axes = [batch_axis(arg, random) for arg in args]
    if all(axis is None for axis in in_axes):
        in_axes[0] = 0
    return Case([args for args, _ in examples], attributes, tuple(in_axes), dtype, random)


def batch_axis(arg: Any, random: np.random.Generator) -> int | None:
    """Where an argument is batched, if it is: in front, or behind its first axis if all of its arrays have one."""
    least = min((leaf.ndim for leaf in optree.tree_leaves(arg)), default=0)
    return (None, 0, 0, min(1, least))[int(random.integers(4))]
