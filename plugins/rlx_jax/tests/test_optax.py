"""Optax's transformations as parts of programs of rlx, by `from_jax`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx

jax = pytest.importorskip("jax", reason="python -m pip install jax")
optax = pytest.importorskip("optax", reason="python -m pip install optax")

PARAMS = {"w": np.float32([[1, 2], [3, 4]]), "b": np.float32([0.5, -1])}
TARGETS = np.float32([[2, 0], [1, 3]])

OPTIMISERS = {
    "adamw": lambda: optax.adamw(1e-2),
    "clip, adamw, schedule": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 100))
    ),
    "sgd with momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "lion": lambda: optax.lion(1e-2),
}


class Imported:
    """An optimiser of Optax's with the interface of `rlx.optim`."""

    def __init__(self, optimiser: Any, params: Any) -> None:
        state = jax.tree.map(np.asarray, optimiser.init(params))
        types = [jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), t) for t in (params, state, params)]
        self.state = state
        self.update = rlx.from_jax(lambda grads, state, params: optimiser.update(grads, state, params), *types)

    def init(self, params: Any) -> Any:
        return self.state


def loss(params: Any, targets: Any) -> Any:
    return rlx.sum((params["w"] + params["b"] - targets) ** 2)


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_with_an_optimiser_of_optax_is_one_program(name: str) -> None:
    """The same numbers as Optax gives JAX, step by step."""
    optimiser = OPTIMISERS[name]()
    imported = Imported(optimiser, PARAMS)
    step = rlx.train_step(loss, imported)
    params, state = {n: p.copy() for n, p in PARAMS.items()}, imported.state
    theirs, its = {n: jax.numpy.asarray(p) for n, p in PARAMS.items()}, optimiser.init(PARAMS)
    for _ in range(4):
        value, gradients = jax.value_and_grad(lambda p: ((p["w"] + p["b"] - jax.numpy.asarray(TARGETS)) ** 2).sum())(
            theirs
        )
        updates, its = optimiser.update(gradients, its, theirs)
        theirs = optax.apply_updates(theirs, updates)
        params, state, found = step(params, state, TARGETS)
        np.testing.assert_allclose(found, value, rtol=1e-6)
        for each in PARAMS:
            np.testing.assert_allclose(params[each], theirs[each], rtol=1e-5, atol=1e-6)
    assert len(step.executables) == 1
