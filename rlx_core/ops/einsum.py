"""Einstein summation: labels name the axes of every operand, and labels missing in the result are summed.

The decomposition works on labelled operands: a label repeated in one operand becomes a diagonal, a label that no other operand
needs is summed immediately, and pairs are contracted, the pair with the smallest result first, until one operand is left.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rlx_core.errors import FormatError, ShapeError, WrongInputCountError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import dot_general, permuted, product_dtype, reshaped
from rlx_core.ops.movement import narrow
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import expand, sum_axes
from rlx_core.system.records import frozen

Labels = tuple[str, ...]
"""One label per axis: a letter, or `...k` for the k-th axis of the ellipsis counted from its end."""


@frozen(eq=False)
class Labelled:
    """An operand and the labels of its axes."""

    value: Value
    labels: Labels

    def size(self, label: str) -> Dim:
        return self.value.shape[self.labels.index(label)]


def split_spec(spec: str, count: int) -> tuple[list[str], str | None]:
    """Return the terms of a spec and its result, before expansion of the ellipsis.

    Raises:
        FormatError, WrongInputCountError: It is not a spec, or for another number of operands.
    """
    left, arrow, right = spec.replace(" ", "").partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        labels = term.replace("...", "", 1)
        if any(c not in string.ascii_letters for c in labels):
            raise FormatError(f"einsum: {term!r} in {spec!r} is not letters and at most one ellipsis")
    if len(terms) != count:
        raise WrongInputCountError(f"einsum: {spec!r} has {len(terms)} terms for {count} operands")
    return terms, right if arrow else None


def axis_labels(term: str, rank: int, spec: str) -> Labels:
    """Return a term as one label per axis.

    Raises:
        ShapeError: The operand has another rank than the term.
    """
    head, dots, tail = term.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"{term!r} in {spec!r} names {len(head) + len(tail)} axes of an operand with {rank}")
    return (*head, *(f"...{k}" for k in range(hidden, 0, -1)), *tail)


def result_labels(terms: Sequence[Labels], result: str | None, spec: str) -> Labels:
    """Return the labels of the result; without an arrow: the ellipsis, then every label that occurs once, sorted.

    Raises:
        FormatError: The result has a label twice, or one that no operand has.
    """
    every = [label for labels in terms for label in labels]
    hidden = max((int(label[3:]) for label in every if len(label) > 1), default=0)
    dots = tuple(f"...{k}" for k in range(hidden, 0, -1))
    if result is None:
        return (*dots, *sorted(label for label in set(every) if len(label) == 1 and every.count(label) == 1))
    head, has_dots, tail = result.partition("...")
    labels = (*head, *(dots if has_dots else ()), *tail)
    if hidden and not has_dots:
        raise FormatError(f"einsum: the result of {spec!r} lacks the ellipsis of its operands")
    for label in labels:
        if label not in every or labels.count(label) > 1:
            raise FormatError(f"einsum: {label!r} in the result of {spec!r} must occur once, and in an operand")
    return labels


@define_op
class Einsum(Op):
    """Sums of products over labelled axes, as in `"bij,bjk->bik"`.

    A label that occurs twice in one operand takes its diagonal; labels missing in the result are summed; axes under an ellipsis
    broadcast; without an arrow the result has the labels that occur once, in alphabetical order.

    Raises:
        FormatError: The spec is malformed.
        ShapeError: A label has two different sizes, or an operand has another rank than its term.
    """

    category: ClassVar = "compute"
    spec: str

    def prepare(self, *x: Value) -> tuple[Value | None, ...]:
        return promoted(*x) if x else ()

    def infer(self, *x: TensorType) -> TensorType:
        terms, result = self._labels([t.rank for t in x])
        sizes = self._sizes(terms, [t.shape for t in x])
        dtype = product_dtype(x[0], x[0], None)
        for other in x[1:]:
            product_dtype(x[0], other, None)
        return TensorType(dtype, [sizes[label] for label in result])

    def decompose(self, *x: Value) -> Value:
        terms, result = self._labels([v.ndim for v in x])
        sizes = self._sizes(terms, [v.shape for v in x])
        pending = [without_ones(diagonal(Labelled(v, t)), sizes) for v, t in zip(x, terms, strict=True)]
        while len(pending) > 1:
            i, j = cheapest_pair(pending, result)
            others = [p for k, p in enumerate(pending) if k not in (i, j)]
            needed = set(result).union(*(p.labels for p in others))
            pending = [*others, contract(pending[i], pending[j], needed)]
        last = summed(pending[0], set(result))
        return in_order(last, result, [sizes[label] for label in result])

    def cost(self, *x: TensorType) -> Dim:
        terms, _ = self._labels([t.rank for t in x])
        return len(x) * product(list(self._sizes(terms, [t.shape for t in x]).values()))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3]", "f32[3, 4]", spec="ij,jk->ik")
        yield Sample("f64[2, 3, 4]", "f64[2, 4, 5]", spec="bij,bjk->bik")
        yield Sample("f64[2, 3]", "f64[3, 4]", "f64[4, 2]", spec="ij,jk,kl->il")
        yield Sample("f64[3, 3]", spec="ii->i")
        yield Sample("f64[3, 3]", spec="ii")
        yield Sample("f64[2, 3, 3, 2]", "f64[3]", spec="aija,i->ja")
        yield Sample("f64[2, 3]", spec="ij->ji")
        yield Sample("f64[2, 3]", spec="ij")
        yield Sample("f64[2, 1, 3]", "f64[4, 3, 2]", spec="...i,...ij->...j")
        yield Sample("f64[5, 2, 3]", "f64[3]", spec="...ij,j->i...")
        yield Sample("f64[2]", "f64[3]", spec="i,j->ji")
        yield Sample("c64[2, 3]", "c64[2, 3]", spec="ij,ij->")
        yield Sample("i32[2, 3]", "i32[3, 4]", spec="ij,jk->ik")
        yield Rejected("f32[2, 3]", "f32[4, 2]", spec="ij,jk->ik", error=ShapeError, says="j is 3 and 4")
        yield Rejected("f32[2, 3]", spec="ij,jk->ik", error=WrongInputCountError, says="2 terms for 1 operands")
        yield Rejected("f32[2, 3]", spec="i->i", error=ShapeError, says="names 1 axes")
        yield Rejected("f32[2, 3]", spec="ij->k", error=FormatError, says="'k' in the result")
        yield Rejected("f32[2, 3]", spec="i1->i", error=FormatError, says="not letters")

    def _labels(self, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
        terms, result = split_spec(self.spec, len(ranks))
        labelled = [axis_labels(t, rank, self.spec) for t, rank in zip(terms, ranks, strict=True)]
        return labelled, result_labels(labelled, result, self.spec)

    @staticmethod
    def _sizes(terms: Sequence[Labels], shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
        sizes: dict[str, Dim] = {}
        for labels, shape in zip(terms, shapes, strict=True):
            for label, size in zip(labels, shape, strict=True):
                known = sizes.get(label, size)
                try:
                    (sizes[label],) = broadcast_shapes((known,), (size,))
                except ShapeError:
                    raise ShapeError(f"label {label} is {known} and {size}") from None
                if len(label) == 1 and sizes[label] != known:
                    raise ShapeError(f"label {label} is {known} and {size}; only an ellipsis broadcasts")
        return sizes


@checked_call
def einsum(subscripts: str, *operands: Any) -> Any:
    """Return `Einsum` with the subscripts first, as in NumPy."""
    return Einsum(subscripts)(*operands)


def diagonal(x: Labelled) -> Labelled:
    """Return `x` with every label once: for a repeated label, the elements at which both axes agree."""
    for label in dict.fromkeys(x.labels):
        while x.labels.count(label) > 1:
            i = x.labels.index(label)
            j = x.labels.index(label, i + 1)
            order = (*(k for k in range(len(x.labels)) if k not in (i, j)), i, j)
            moved = permuted(x.value, order)
            n = moved.shape[-1]
            if not isinstance(n, int):
                raise ShapeError(f"label {label} is repeated, and its size {n} is not known yet")
            flat = reshaped(moved, (*moved.shape[:-2], n * n))
            # Element (i, i) of an n by n matrix is at i·(n + 1).
            value = narrow(flat, axis=flat.ndim - 1, start=0, length=n, step=n + 1)
            x = Labelled(value, (*(x.labels[k] for k in order[:-2]), label))
    return x


def without_ones(x: Labelled, sizes: dict[str, Dim]) -> Labelled:
    """Return an operand without the axes that broadcast: those of size 1 if the label's size differs."""
    axes = [k for k, label in enumerate(x.labels) if x.value.shape[k] == sizes[label]]
    return Labelled(reshaped(x.value, tuple(x.value.shape[k] for k in axes)), tuple(x.labels[k] for k in axes))


def summed(x: Labelled, needed: set[str]) -> Labelled:
    """Return the operand summed over the labels that nothing else needs."""
    axes = tuple(k for k, label in enumerate(x.labels) if label not in needed)
    if not axes:
        return x
    return Labelled(sum_axes(x.value, axes=axes), tuple(label for label in x.labels if label in needed))


def contract(a: Labelled, b: Labelled, needed: set[str]) -> Labelled:
    """Return the product of two operands, summed over their shared labels that nothing else needs."""
    a, b = summed(a, needed | set(b.labels)), summed(b, needed | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch, over = [s for s in shared if s in needed], [s for s in shared if s not in needed]
    value = dot_general(
        a.value,
        b.value,
        lhs_contracting=[a.labels.index(s) for s in over],
        rhs_contracting=[b.labels.index(s) for s in over],
        lhs_batch=[a.labels.index(s) for s in batch],
        rhs_batch=[b.labels.index(s) for s in batch],
    )
    free = [label for x in (a, b) for label in x.labels if label not in shared]
    return Labelled(value, (*batch, *free))


def cheapest_pair(pending: Sequence[Labelled], result: Labels) -> tuple[int, int]:
    """Return the pair whose product is smallest; the first pair if a size is unknown."""
    best, smallest = (0, 1), None
    for i in range(len(pending)):
        for j in range(i + 1, len(pending)):
            remaining = set(result).union(*(p.labels for k, p in enumerate(pending) if k not in (i, j)))
            sizes = {label: p.size(label) for p in (pending[i], pending[j]) for label in p.labels if label in remaining}
            elements = product(list(sizes.values()))
            if not isinstance(elements, int):
                return 0, 1
            if smallest is None or elements < smallest:
                best, smallest = (i, j), elements
    return best


def in_order(x: Labelled, result: Labels, shape: Sequence[Dim]) -> Value:
    """Return the axes in the order of the result, repeated where only operands of size 1 had an axis of the ellipsis."""
    labels = [label for label in result if label in x.labels]
    value = permuted(x.value, [x.labels.index(label) for label in labels])
    if len(labels) == len(result):
        return value
    placed = reshaped(value, tuple(x.size(label) if label in x.labels else 1 for label in result))
    return expand(placed, tuple(shape))
