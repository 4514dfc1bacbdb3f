"""A function that is new to us, whose program is not: it has the code that was linked before, and a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_cpu.native import threads
from rlx_cpu.native.runtime import program
from rlx_cpu.native.runtime.steps import compile_steps

X = np.random.default_rng(0).standard_normal((40, 96)).astype("f4")
OLD, NEW = (np.random.default_rng(n).standard_normal((96, 64)).astype("f4") for n in (1, 2))
VECTOR = np.float32([1, 2, 3])

FRESH: dict[str, Callable[[], Any]] = {
    "jit": lambda: rlx.jit(lambda x: rlx.sum(x * x))(VECTOR),
    "grad": lambda: rlx.grad(lambda x: rlx.sum(x * x))(VECTOR),
    "value_and_grad": lambda: rlx.value_and_grad(lambda x: rlx.sum(x * x))(VECTOR)[1],
    "vmap": lambda: rlx.vmap(lambda x: x * x)(VECTOR),
    "jvp": lambda: rlx.jvp(lambda x: x * x, (VECTOR,), (VECTOR,))[1],
    "vjp": lambda: rlx.vjp(lambda x: x * x, VECTOR)[1](VECTOR)[0],
}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs whose code is made or read in the test."""
    found: list[Any] = []

    def counting(lir: Any, table: Any, settings: Any) -> Any:
        found.append(lir)
        return compile_steps(lir, table, settings)

    monkeypatch.setattr(program, "compile_steps", counting)
    return found


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_function_of_a_known_program_links_nothing(name: str, built: list[Any]) -> None:
    before = FRESH[name]()
    built.clear()
    after = FRESH[name]()

    assert built == []
    np.testing.assert_array_equal(before, after)


def multiplied(w: np.ndarray) -> Any:
    return rlx.compile(lambda w, x: x @ w, w, rlx.spec("f32[40, 96]"), target="cpu")


def test_programs_that_share_code_have_parameters_of_their_own(built: list[Any]) -> None:
    first, second = multiplied(OLD), multiplied(NEW)
    for _ in range(4):  # on the checked road, and by the entry
        np.testing.assert_allclose(first(X), X @ OLD, atol=1e-4)
        np.testing.assert_allclose(second(X), X @ NEW, atol=1e-4)
    first.rebind(w=NEW + NEW)

    np.testing.assert_allclose(first(X), X @ (NEW + NEW), atol=1e-4)
    np.testing.assert_allclose(second(X), X @ NEW, atol=1e-4)
    assert len(built) <= 1


def test_what_is_kept_is_code_and_no_constant_that_a_program_packed() -> None:
    def model(x: Any) -> Any:
        return x @ OLD

    made = [rlx.compile(model, rlx.spec("f32[40, 96]"), target="cpu") for _ in range(2)]
    packed = [f(X).shape and f.executable._shared.latest.program.compiled.native.packed_constants for f in made]
    (kept,) = made[0].executable._compiled.code

    assert all(packed)
    assert packed[0] is not packed[1]
    assert kept.packed_constants == {}


def test_programs_follow_the_number_of_usable_cpus(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that threads share is built again when there are others; one for a single thread does not even ask."""

    def used(count: int, function: Callable[[], Any]) -> list[int]:
        monkeypatch.setattr(threads, "usable_cpus", lambda: count)
        made = function()
        made(X)
        return [b.program.compiled.native.settings.threads for b in made.executable._shared.programs._values.values()]

    assert [used(count, lambda: multiplied(OLD)) for count in (1, 2, 2, 1)] == [[1], [2], [2], [1]]
    assert len(built) >= 3

    def serial() -> Any:
        return rlx.compile(lambda x: x[0, 0] + 1, rlx.spec("f32[40, 96]"), target="cpu")

    used(1, serial)
    built.clear()
    monkeypatch.setattr(threads, "usable_cpus", lambda: pytest.fail("CPUs were counted"))
    np.testing.assert_array_equal(serial()(X), X[0, 0] + 1)
    assert built == []


def test_later_sizes_follow_the_number_of_usable_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = rlx.compile(lambda x: x @ OLD, rlx.spec("f32[n, 96]"), target="cpu")
    used = []
    for count, size in ((1, 40), (2, 39), (1, 38)):
        monkeypatch.setattr(threads, "usable_cpus", lambda count=count: count)
        fast(X[:size])
        used.append(fast.executable._shared.latest.program.compiled.native.settings.threads)

    assert used == [1, 2, 1]


def test_in_poison_mode_every_function_has_a_guard_of_its_own(built: list[Any]) -> None:
    config = {"options": {"cpu.poison": True}}
    fresh = [rlx.jit(lambda x: rlx.sum(x * x), config=config) for _ in range(2)]

    assert [f(VECTOR) for f in fresh] == [14, 14]
    assert len(built) == 2
