"""User-facing control flow: part of the program inside a traced function, compiled and run outside of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx_core.functions.control import associative, choices, loops
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.runtime.jit import run_compiled

C = TypeVar("C")  # the carry of a loop
R = TypeVar("R")


@checked_call
def cond(pred: Any, true_fun: Callable[..., R], false_fun: Callable[..., R], *operands: Any) -> R:
    """`true_fun(*operands)` if the predicate is true, else `false_fun(*operands)`; only the selected function runs.

    Args:
        pred: One bool, which may be a traced value.
        true_fun, false_fun: Return the same structure of the same types. They may use values of their environment.
        operands: Pytrees of arrays.

    Raises:
        ShapeError, DtypeError: The predicate is not one bool, or the functions return different types: the error names the
            result, with the line of each.

    Under `vmap` with a predicate for each example both run, and results are selected example by example.
    """
    result: R = run_compiled(lambda p, x: choices.cond(p, true_fun, false_fun, *x), pred, operands)
    return result


@checked_call
def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any) -> R:
    """`branches[index](*operands)`; only that branch runs. The index is clamped to the first and the last branch.

    Args:
        index: One integer, which may be a traced value.
        branches: Functions that return the same structure of the same types.
        operands: Pytrees of arrays.

    Raises:
        ShapeError, DtypeError: The index is not one integer, or branches return different types.
        WrongInputCountError: There is no branch.
    """
    result: R = run_compiled(lambda i, x: choices.switch(i, branches, *x), index, operands)
    return result


@checked_call
def while_loop(
    cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init_val: C, *, max_steps: int | None = None
) -> C:
    """`init_val`, replaced by `body_fun` of it while `cond_fun` of it is true.

    Args:
        cond_fun: Returns one bool.
        body_fun: Returns the next carry, with the structure and types of the current one.
        init_val: Any pytree of arrays; a Python number in it takes the dtype that the body returns for it.
        max_steps: The maximum number of steps. Reverse mode needs it, because it revisits all of them.

    Raises:
        ShapeError, DtypeError: The condition is not one bool, or a carry changes its type; the error names it.
        MissingRuleError: The loop is differentiated in reverse, and there is no `max_steps`.
    """
    result: C = run_compiled(lambda c: loops.while_loop(cond_fun, body_fun, c, max_steps=max_steps), init_val)
    return result


@checked_call
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, C], C], init_val: C) -> C:
    """`init_val`, replaced by `body_fun(i, carry)` for each `i` from `lower` up to but not including `upper`.

    Args:
        lower, upper: Integers. With Python ints (or sizes) the loop can be differentiated in reverse; with traced values it is
            a `while_loop`.
        body_fun: Takes the index and the carry, and returns the next carry. The index is an i32; it is an i64 if a bound needs
            it, and if all floats of the carry are f64 or c128, so that `0.1 * i` is an f64.
        init_val: Any pytree of arrays; a Python number in it takes the dtype that the body returns for it.

    Raises:
        ShapeError, DtypeError: A carry changes its type, or a bound is not an integer.
    """
    if all(type(each) is int for each in (lower, upper)):
        known: C = run_compiled(lambda c: loops.fori_loop(lower, upper, body_fun, c), init_val)
        return known
    result: C = run_compiled(lambda a, b, c: loops.fori_loop(a, b, body_fun, c), lower, upper, init_val)
    return result


@checked_call
def scan(
    f: Callable[[C, Any], tuple[C, Any]],
    init: C,
    xs: Any = None,
    length: Dim | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[C, Any]:
    """`f(carry, x) -> (carry, y)` step by step along the first axis of `xs`: the last carry, and the ys stacked.

    Args:
        f: Takes the carry and one element of each array of `xs`; returns the next carry and any pytree (`None` for nothing).
        init: Any pytree of arrays; a Python number in it takes the dtype that the body returns for it.
        xs: A pytree of arrays with equal first axes; `None` for none.
        length: The number of steps, if there are no arrays to determine it.
        reverse: Whether to start at the last element; each y is at the position of its x.
        checkpoints: The number of segments into which the steps are divided: a derivative then saves the carry at the start of
            each segment, and those inside a segment only while it processes the segment. For long loops with large carries;
            about the square root of the length.

    Raises:
        ShapeError: Lengths differ, are negative or unknown; or a carry changes its shape: the error names it, with both types.
        DtypeError: A carry changes its dtype.

    A loop of any length is one node of the program. Its derivative saves the carries of all steps, and recomputes each step in
    the backward pass.
    """
    result: tuple[C, Any] = run_compiled(lambda c, x: loops.scan(f, c, x, length, reverse, checkpoints), init, xs)
    return result


@checked_call
def map(f: Callable[[Any], R], xs: Any, *, batch_size: int | None = None) -> R:
    """`f` of each element along the first axis of `xs`, one after the other, the results stacked.

    `rlx.vmap` processes all elements at once, which is faster and needs the memory for all of them.

    Args:
        f: A function of one element.
        xs: A pytree of arrays of one size along the first axis.
        batch_size: The number of elements processed at once, as by `rlx.vmap`; the remainder is one smaller batch.

    Raises:
        ShapeError: Sizes along the first axis differ; or with a `batch_size`, they are unknown.
        ConfigError: The batch size is not an integer of at least 1.

    >>> rlx.map(lambda row: rlx.sum(row * row), np.float32([[1, 2], [3, 4], [5, 6]]), batch_size=2)
    Array([ 5., 25., 61.], dtype=float32)
    """
    result: R = run_compiled(lambda x: loops.mapped(f, x, batch_size), xs)
    return result


@checked_call
def associative_scan(fn: Callable[[C, C], C], elems: C, reverse: bool = False, axis: int = 0) -> C:
    """The running combination of elements along an axis, in about log₂ n rounds for n elements.

    Args:
        fn: Combines two pytrees of slices, all their elements at once; must be associative.
        elems: A pytree of arrays of one size along the axis, which is known when the function is traced.
        reverse: Whether to start at the end.
        axis: The axis of the combination.

    Raises:
        ShapeError: Sizes along the axis differ, the size is unknown (`rlx.scan` takes one), or combining two changes a type.
    """
    result: C = run_compiled(lambda x: associative.associative_scan(fn, x, axis, reverse), elems)
    return result
