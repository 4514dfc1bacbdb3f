"""The derivatives of a Scan, which are Scans over the trajectory of its carries.

The trajectory of a carry is a y that returns the carry at the start of each step. `saving` adds the missing ones, once it is
known that a derivative follows; the rules recognise them in the body, so that the program itself is the only link between the
two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from rlx_core.ir.graph import Graph, Value, as_results, graph_of
from rlx_core.ir.op import ZERO, Zero
from rlx_core.ir.rules import nested
from rlx_core.ir.types import TensorType
from rlx_core.ops.arithmetic import add
from rlx_core.ops.call import results_of, zeros
from rlx_core.ops.control.bodies import carry_flags, differentiable, is_zero, names, part, reached
from rlx_core.ops.control.scan_products import products_of, summed

if TYPE_CHECKING:
    from rlx_core.ops.control.scan import Scan


def kept(op: Scan) -> dict[int, int]:
    """Return carry → the y that is its trajectory."""
    inputs = op.body.inputs[: op.carries]
    places: dict[int, int] = {}
    for place, value in enumerate(op.body.outputs[op.carries :]):
        for carry, before in enumerate(inputs):
            if value is before:
                places.setdefault(carry, place)
    return places


def with_trajectories(op: Scan) -> Scan:
    """Return the Scan that returns the trajectory of every carry, the missing ones after its own results."""
    has = kept(op)
    missing = [v for carry, v in enumerate(op.body.inputs[: op.carries]) if carry not in has]
    body = Graph(op.body.name, op.body.nodes, (*op.body.outputs, *missing), op.body.guards)
    return evolve(op, body=body) if missing else op


def saving(op: Scan, x: Sequence[Value]) -> tuple[Value, ...]:
    """Return the results of a Scan with all trajectories among them."""
    return as_results(with_trajectories(op)(*x))


def with_kept(op: Scan, x: Sequence[Value], y: Sequence[Value]) -> tuple[Scan, Sequence[Value], list[Value]]:
    """Return a Scan with all trajectories, its results, and the trajectories; it is run again if `op` does not have all."""
    full = with_trajectories(op)
    results = y if full is op else as_results(full(*x))
    has = kept(full)
    return full, results, [results[op.carries + has[carry]] for carry in range(op.carries)]


def pulled(op: Scan, g: Sequence[Value | Zero], x: Sequence[Value], y: Sequence[Value]) -> tuple[Any, ...]:
    """Return the cotangents of all operands by one Scan in the other direction.

    Those of constants are summed in carries, or after the loop if they are products of a few rows (`scan_products`).
    """
    _, _, states = with_kept(op, x, y)
    _, consts, xs = op.split(x)
    body, count = op.body, op.carries
    wrt = differentiable(x)
    of_carries = [i for i in wrt if i < count]
    of_consts = [i for i in wrt if count <= i < count + op.consts]
    of_xs = [i for i in wrt if i >= count + op.consts]
    ys = [i for i in range(count, len(body.outputs)) if not is_zero(g[i])]
    if not of_carries and not ys:
        return tuple(ZERO for _ in x)
    # Only outputs with a nonzero cotangent: the others' cotangents are zero at every step.
    step = nested().vjp_of(
        part(body, range(len(x)), [*of_carries, *ys]), [names(body)[i] for i in (*of_carries, *of_consts, *of_xs)]
    )
    stacked = [*states, *xs, *(g[i] for i in ys)]
    sizes = [len(of_carries), len(consts), len(states), len(xs)]

    def once(*values: Value) -> tuple[Value, ...]:
        dc, k, c, now, dy = _cut(values, sizes)
        return results_of(step, (*c, *k, *now, *dc, *dy))

    begin = [zeros(x[i].type) if isinstance(g[i], Zero) else g[i] for i in of_carries]
    back = graph_of(f"{body.name}_back", _types_inside(begin, consts, stacked), once)
    results = dict(
        zip((*of_carries, *of_consts, *of_xs), _run_back(op, back, begin, len(of_consts), consts, stacked), strict=True)
    )
    return tuple(results.get(i, ZERO) for i in range(len(x)))


def _run_back(
    op: Scan, back: Graph, begin: Sequence[Any], count: int, consts: Sequence[Value], xs: Sequence[Value]
) -> tuple[Value, ...]:
    """Return the outputs of `back` after all steps: carries, sums of the next `count`, the others stacked by step."""
    carries, terms, others = _cut(back.outputs, [len(begin), count])
    products = {term: matches for term in terms if (matches := products_of(term))}
    sums = [term for term in dict.fromkeys(terms) if term not in products]
    stacks = dict(zip(back.inputs[len(begin) + len(consts) :], xs, strict=True))
    factors = [v for matches in products.values() for each in matches for v in (each.left, each.right)]
    ys = [v for v in dict.fromkeys((*others, *factors)) if v not in stacks]
    step = Graph(back.name, back.nodes, (*carries, *sums, *ys), back.guards)
    sizes = [len(begin), len(sums)]

    def summing(*values: Value) -> tuple[Value, ...]:
        dc, totals, remaining = _cut(values, sizes)
        dc, additions, each = _cut(results_of(step, (*dc, *remaining)), sizes)
        return (*dc, *(add(total, term) for total, term in zip(totals, additions, strict=True)), *each)

    start = [*begin, *(zeros(term.type) for term in sums)]
    ends, totals, made_ys = _cut(_scan(op, back.name, summing, start, consts, xs, reverse=not op.reverse), sizes)
    stacks |= zip(ys, made_ys, strict=True)
    totals_by_term = dict(zip(sums, totals, strict=True))
    totals_by_term |= {term: summed(matches, stacks) for term, matches in products.items()}
    return (*ends, *(totals_by_term[term] for term in terms), *(stacks[v] for v in others))


def pushed(op: Scan, t: Sequence[Value | Zero], x: Sequence[Value], y: Sequence[Value]) -> tuple[Any, ...]:
    """Return the tangents of all results by one Scan in the same direction, linear in the tangents."""
    _, _, states = with_kept(op, x, y)
    _, consts, xs = op.split(x)
    body, count = op.body, op.carries
    has_tangent = [not isinstance(c, Zero) for c in t]
    flags = carry_flags(has_tangent[:count], lambda carried: reached(body, (*carried, *has_tangent[count:]))[:count])
    active = [i for i, flag in enumerate((*flags, *has_tangent[count:])) if flag]
    of_carries = [i for i in active if i < count]
    of_consts = [i for i in active if count <= i < count + op.consts]
    of_xs = [i for i in active if i >= count + op.consts]
    moving = reached(body, (*flags, *has_tangent[count:]))
    ys = [i for i in range(count, len(body.outputs)) if moving[i]]
    step = nested().jvp_of(body, [names(body)[i] for i in active])
    tangent_of = {i: place for place, i in enumerate(differentiable(body.outputs))}
    sizes = [len(of_carries), len(consts), len(of_consts), len(states), len(xs)]

    def along(*values: Value) -> tuple[Value, ...]:
        tc, k, tk, c, now, tx = _cut(values, sizes)
        outputs = results_of(step, (*c, *k, *now, *tc, *tk, *tx))
        return tuple(outputs[tangent_of[i]] for i in (*of_carries, *ys))

    tangents = [zeros(v.type) if isinstance(c, Zero) else c for v, c in zip(x, t, strict=True)]
    begin = [tangents[i] for i in of_carries]
    steady = (*consts, *(tangents[i] for i in of_consts))
    stacked = [*states, *xs, *(tangents[i] for i in of_xs)]
    outputs = _scan(op, f"{body.name}_along", along, begin, steady, stacked, reverse=op.reverse)
    results = dict(zip((*of_carries, *ys), outputs, strict=True))
    return tuple(results.get(i, ZERO) for i in range(len(y)))


def _scan(
    op: Scan, name: str, step: Any, carries: Sequence[Any], consts: Sequence[Any], xs: Sequence[Any], *, reverse: bool
) -> tuple[Value, ...]:
    """Return a Scan with the same number of steps as `op` and another body."""
    made_op = evolve(
        op,
        body=graph_of(name, _types_inside(carries, consts, xs), step),
        carries=len(carries),
        consts=len(consts),
        reverse=reverse,
    )
    return as_results(made_op(*carries, *consts, *xs))


def _types_inside(carries: Sequence[Any], consts: Sequence[Any], xs: Sequence[Any]) -> list[TensorType]:
    """Return the types of the operands of a step."""
    return [*(v.type for v in (*carries, *consts)), *(v.type.with_shape(v.shape[1:]) for v in xs)]


def _cut(values: Sequence[Any], sizes: Sequence[int]) -> list[tuple[Any, ...]]:
    """Split values into groups of these sizes, and the remainder."""
    groups, first = [], 0
    for size in sizes:
        groups.append(tuple(values[first : first + size]))
        first += size
    return [*groups, tuple(values[first:])]
