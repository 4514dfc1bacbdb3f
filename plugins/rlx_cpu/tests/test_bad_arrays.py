"""Arrays that are not plain: misaligned, strided, read-only, of another byte order, overlapping; through every door.

Each gives the right result or a typed error that names the input; none reaches native code as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.errors import RlxError
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable

pytestmark = pytest.mark.every_case

HOST = PluginHost([rlx_cpu.plugin])
PLAIN = np.arange(48, dtype="f4").reshape(6, 8) / 8
OTHER = np.flip(PLAIN).copy()


def misaligned() -> np.ndarray:
    raw = np.zeros(PLAIN.nbytes + 1, np.uint8)
    found = raw[1:].view("f4").reshape(PLAIN.shape)
    found[...] = PLAIN
    return found


def read_only() -> np.ndarray:
    found = PLAIN.copy()
    found.flags.writeable = False
    return found


ARRAYS: dict[str, Callable[[], np.ndarray]] = {
    "plain": PLAIN.copy,
    "misaligned": misaligned,
    "columns first": lambda: np.asfortranarray(PLAIN),
    "every other element": lambda: np.repeat(PLAIN, 2, axis=1)[:, ::2],
    "backwards": lambda: np.flip(np.flip(PLAIN).copy()),
    "read-only": read_only,
    "big-endian": lambda: PLAIN.astype(">f4"),
    "big-endian and misaligned": lambda: misaligned().astype(">f4"),
    "broadcast": lambda: np.broadcast_to(PLAIN, (3, 6, 8))[1],
    "a subclass": lambda: PLAIN.copy().view(np.matrix) if hasattr(np, "matrix") else PLAIN.copy(),
}


def function(state: Any, x: Any) -> Any:
    """Enough to run natively, with a result that can take over `state`."""
    return state * 0.5 + rlx.tanh(x), rlx.sum(x, axis=1)


def executable(is_donated: bool, tier: str) -> Executable:
    graph = rlx.trace(function, rlx.spec("f32[6, 8]"), rlx.spec("f32[6, 8]"))
    config = {"options": {"cpu.tier": tier, "cpu.threads": 2}}
    donations = {"state": 0} if is_donated else {}
    return Executable(compile_graph(graph, target="cpu", host=HOST, config=config, donations=donations))


def through_jit(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    return rlx.jit(
        function,
        donate=["state"] if is_donated else [],
        host=HOST,
        target="cpu",
        config={"options": {"cpu.tier": tier}},
    )


def through_compile(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    """Ahead of time nothing is donated."""
    types = rlx.spec("f32[n, 8]"), rlx.spec("f32[n, 8]")
    return rlx.compile(function, *types, host=HOST, target="cpu", config={"options": {"cpu.tier": tier}})


def through_run(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    made = executable(is_donated, tier)
    return lambda state, x: made.run({"state": state, "x": x})


def through_slots(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    made = executable(is_donated, tier)
    return lambda state, x: made.run_slots([state, x])


def through_flat(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    made = executable(is_donated, tier)

    def call(state: Any, x: Any) -> Any:
        moved, total = made.run_flat({"state": np.ravel(state), "x": np.ravel(x)})
        return moved.reshape(6, 8), total

    return call


def through_bytes(is_donated: bool, tier: str) -> Callable[[Any, Any], Any]:
    made = executable(is_donated, tier)

    def call(state: Any, x: Any) -> Any:
        little = [(memoryview(bytes(1) + np.asarray(a, "<f4").tobytes())[1:], "f32") for a in (state, x)]
        results = made.run_typed({"state": little[0], "x": little[1]})
        return tuple(np.frombuffer(data, "<f4").reshape(dims) for data, _, dims in results)

    return call


DOORS = (through_jit, through_compile, through_run, through_slots, through_flat, through_bytes)


def expected(state: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = np.asarray(x, "f8")
    return np.asarray(state, "f8") * 0.5 + np.tanh(wide), wide.sum(axis=1)


@pytest.mark.parametrize("tier", ["native", "numpy"])
@pytest.mark.parametrize("is_donated", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_array_through_every_door(door: Any, is_donated: bool, tier: str) -> None:
    call = door(is_donated, tier)
    for name, make in ARRAYS.items():
        for state, x in ((make(), OTHER.copy()), (OTHER.copy(), make()), (make(), make())):
            wanted, before = expected(state, x), np.array(x)
            found = call(state, x)
            for a, b in zip(found, wanted, strict=True):
                # f32: a function of 2 ulp, a product and a sum of numbers below 8; sums of 8 terms below 48.
                np.testing.assert_allclose(np.asarray(a, "f8"), b, rtol=1e-6, atol=4e-6, err_msg=name)
            np.testing.assert_array_equal(x, before, err_msg=name)  # what is not donated is not written


@pytest.mark.parametrize("tier", ["native", "numpy"])
@pytest.mark.parametrize("is_donated", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("door", [through_jit, through_run, through_slots], ids=lambda door: door.__name__)
@pytest.mark.parametrize("shift", [0, 1, 8, 47], ids=lambda n: f"by {n} elements")
def test_arrays_that_share_bytes_are_read_before_they_are_written(
    door: Any, is_donated: bool, tier: str, shift: int
) -> None:
    call = door(is_donated, tier)
    memory = np.arange(96, dtype="f4") / 16
    state, x = memory[:48].reshape(6, 8), memory[shift : shift + 48].reshape(6, 8)
    wanted, before = expected(state, x), x.copy()
    found = call(state, x)

    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a, "f8"), b, rtol=1e-6, atol=4e-6)
    np.testing.assert_array_equal(x, before)


WRONG: dict[str, np.ndarray] = {
    "f64": PLAIN.astype("f8"),
    "dates": PLAIN.astype("M8[s]"),
    "objects": PLAIN.astype(object),
    "text": np.array([["a"] * 8] * 6),
    "dims": PLAIN[:, :4],
    "bools": PLAIN > 1,
}


@pytest.mark.parametrize(
    ("door", "wrong"),
    [
        pytest.param(door, wrong, id=f"{wrong}-{door.__name__}")
        for door in (through_jit, through_run, through_slots)
        for wrong in WRONG
        if (door, wrong) != (through_jit, "f64")  # jit compiles for the dtypes that it is given
    ],
)
def test_what_cannot_be_is_refused_by_name_and_the_next_call_works(door: Any, wrong: str) -> None:
    call = door(True, "native")
    with pytest.raises(RlxError):
        call(PLAIN.copy(), WRONG[wrong])
    found = call(PLAIN.copy(), OTHER)

    np.testing.assert_allclose(np.asarray(found[0], "f8"), expected(PLAIN, OTHER)[0], rtol=1e-6, atol=4e-6)
