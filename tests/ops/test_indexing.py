"""Gather and its transpose: what is read, what is refused, and that batches never mix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.errors import IndexRangeError
from rlx_core.functions.functional import grad, vmap
from rlx_core.ops.indexing import gather, scatter_add

RNG = np.random.default_rng(7)


def test_the_gradient_of_an_embedding_accumulates_every_row(calculus: Any) -> None:
    """All B·S rows count, duplicates included: the same as a product with one-hot rows."""
    table, ids = RNG.normal(size=(5, 3)), np.array([[1, 1, 4], [0, 1, 4]])
    weights = RNG.normal(size=(2, 3, 3))

    found = calculus.evaluate(calculus.gradient(lambda t, i, w: gather(t, i) * w), table, ids, weights)

    one_hot = np.eye(5)[ids.reshape(-1)]
    np.testing.assert_allclose(found, one_hot.T @ weights.reshape(-1, 3), rtol=1e-15)


@pytest.mark.parametrize("batched", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("batch_dims", [0, 1])
def test_batches_of_tables_and_indices_do_not_mix(batched: tuple[bool, bool], batch_dims: int, calculus: Any) -> None:
    """Each table has values of its own, so a row taken from a neighbour's table is seen."""
    tables = 1000.0 * np.arange(3)[:, None, None, None] + RNG.integers(0, 999, (3, 2, 4, 5))
    indices = RNG.integers(0, 4, (3, 2, 6))
    in_axes = tuple(0 if b else None for b in batched)
    given = [x if b else x[0] for x, b in zip((tables, indices), batched, strict=True)]

    found = calculus.evaluate(vmap(lambda t, i: gather(t, i, axis=1, batch_dims=batch_dims), in_axes), *given)

    for k in range(3):
        table, index = (x[k] if b else x for x, b in zip(given, batched, strict=True))
        wanted = np.take_along_axis(table, index[:, :, None], 1) if batch_dims else np.take(table, index, axis=1)
        np.testing.assert_array_equal(found[k], wanted)


@pytest.mark.parametrize("batched", [(True, False), (False, True), (True, True)], ids=str)
def test_batches_of_updates_stay_in_their_own_slot(batched: tuple[bool, bool], calculus: Any) -> None:
    """Updates of one element never reach the result of another, and the canary row 4 stays 0."""
    updates, indices = RNG.normal(size=(3, 6, 2)), RNG.integers(0, 4, (3, 6))
    in_axes = tuple(0 if b else None for b in batched)
    given = [x if b else x[0] for x, b in zip((updates, indices), batched, strict=True)]

    found = calculus.evaluate(vmap(lambda u, i: scatter_add(u, i, size=5), in_axes), *given)

    for k in range(3):
        update, index = (x[k] if b else x for x, b in zip(given, batched, strict=True))
        wanted = np.zeros((5, 2))
        np.add.at(wanted, index, update)
        np.testing.assert_array_equal(found[k], wanted)
        assert not found[k][4].any()


@pytest.mark.parametrize("index", [-1, 4, 2**40])
def test_an_index_outside_is_an_error_that_names_it(index: int) -> None:
    with pytest.raises(IndexRangeError, match=f"index {index} is outside an axis of 4 elements"):
        gather(np.arange(4.0), np.array([0, index]))
    with pytest.raises(IndexRangeError, match=f"index {index} is outside an axis of 4 elements"):
        scatter_add(np.ones(2), np.array([0, index]), size=4)


def test_clipped_and_filled_indices_send_their_gradient_where_they_read(calculus: Any) -> None:
    x, ids = np.array([1.0, 2.0, 3.0]), np.array([-5, 1, 9, 9])

    clipped = calculus.evaluate(calculus.gradient(lambda x, i: gather(x, i, oob="clip")), x, ids)
    filled = calculus.evaluate(calculus.gradient(lambda x, i: gather(x, i, oob="fill", fill=7.0)), x, ids)

    np.testing.assert_array_equal(gather(x, ids, oob="clip"), [1, 2, 3, 3])
    np.testing.assert_array_equal(gather(x, ids, oob="fill", fill=7.0), [7, 2, 7, 7])
    np.testing.assert_array_equal(clipped, [1, 1, 2])
    np.testing.assert_array_equal(filled, [0, 1, 0])


def test_an_unsigned_index_above_the_signed_range_is_large_and_not_negative() -> None:
    huge = np.array([2**64 - 1], np.uint64)

    np.testing.assert_array_equal(gather(np.array([1.0, 2.0]), huge, oob="clip"), [2.0])


def test_indices_above_two_to_the_24_are_exact() -> None:
    """As float32 they would be even."""
    table = np.zeros(2**24 + 2, np.int8)
    table[2**24 + 1] = 1

    assert gather(table, np.array([2**24 + 1]))[0] == 1


def test_values_above_two_to_the_53_are_exact() -> None:
    large = np.array([2**53 + 1, 2**53 + 3])

    np.testing.assert_array_equal(gather(large, np.array([1, 0, 1])), large[[1, 0, 1]])
    np.testing.assert_array_equal(scatter_add(large, np.array([0, 0]), size=1), [2**54 + 4])


def test_one_index_for_each_row_selects_the_last_token() -> None:
    hidden, lengths = RNG.normal(size=(3, 5, 2)), np.array([4, 0, 2])

    np.testing.assert_array_equal(gather(hidden, lengths, axis=1, batch_dims=1), hidden[np.arange(3), lengths])


def test_a_gradient_of_a_gradient_passes_through(calculus: Any) -> None:
    x, ids = RNG.normal(size=4), np.array([0, 2, 2])

    def cubes(x: Any) -> Any:
        y = gather(x, ids)
        return (y * y * y).sum()

    found = calculus.evaluate(grad(lambda x: grad(cubes)(x).sum()), x)

    np.testing.assert_allclose(found, 6 * x * np.array([1, 0, 2, 0]), rtol=1e-14)
