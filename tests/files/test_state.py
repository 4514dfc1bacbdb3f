"""Pytrees in files: what was saved comes back bit for bit, and training goes on from it as if it had never stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core import optim
from rlx_core.errors import ConfigError, FormatError, RlxError


class Moments(NamedTuple):
    mu: Any
    nu: Any


TREE: dict[str, Any] = {
    "params": {
        "layers": [{"w": np.float32([[1, np.nan]])}, {"w": np.zeros((0, 3), ml_dtypes.bfloat16)}],
        3: np.int8([1]),
    },
    "state": (Moments({"w": np.float64([-0.0])}, None), np.int32(7)),
    "step": 12,
    "rate": 1e-3,
    "done": False,
    "key": np.array([1, 2**63], np.uint64),
}


def same(found: Any, wanted: Any) -> bool:
    (a, structure), (b, its_structure) = optree.tree_flatten(found), optree.tree_flatten(wanted)
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True)]
    return structure == its_structure and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs
    )


def test_a_pytree_comes_back_as_it_was(tmp_path: Path) -> None:
    rlx.save(tmp_path / "s.safetensors", TREE)
    found = rlx.load(tmp_path / "s.safetensors", like=TREE)
    assert same(found, TREE)
    assert [type(found[n]) for n in ("step", "rate", "done")] == [int, float, bool]
    assert found["key"].flags.writeable
    assert found["key"].flags.owndata


def test_leaves_are_named_by_their_places(tmp_path: Path) -> None:
    rlx.save(tmp_path / "s.safetensors", TREE)
    assert set(rlx.load(tmp_path / "s.safetensors")) == {
        *("params.layers.0.w", "params.layers.1.w", "params.3"),
        *("state.0.mu.w", "state.1", "step", "rate", "done", "key"),
    }


def test_types_are_enough_to_be_like(tmp_path: Path) -> None:
    rlx.save(tmp_path / "s.safetensors", {"w": np.float32([[1, 2]])})
    found = rlx.load(tmp_path / "s.safetensors", like={"w": rlx.spec("f32[1, 2]")})
    np.testing.assert_array_equal(found["w"], [[1, 2]])


@pytest.mark.parametrize(
    ("like", "says"),
    [
        ({"a": np.float32([1, 2]), "b": 1}, r"missing +b\n"),
        ({}, r"not asked for +a\n"),
        ({"a": np.float64([1, 2])}, r"'a' is f32\[2\] in the file, not f64\[2\]"),
        ({"a": np.float32([[1, 2]])}, r"'a' is f32\[2\] in the file, not f32\[1, 2\]"),
        ({"a": 1.0}, r"'a' is f32\[2\] in the file, not f64\[\]"),
    ],
)
def test_what_is_not_like_the_file_is_said_with_the_file(tmp_path: Path, like: Any, says: str) -> None:
    path = tmp_path / "s.safetensors"
    rlx.save(path, {"a": np.float32([1, 2])})
    with pytest.raises(FormatError, match=says) as caught:
        rlx.load(path, like=like)
    assert caught.value.facts[-1].value == path


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"a": {"b": 1}, "a.b": 2}, "two leaves are called 'a.b'"),
        ({1: 1, "1": 2}, "two leaves are called '1'"),
        ({(1, 2): 1}, r"the key \(1, 2\) is neither a text nor an integer"),
        ({"a": "text"}, "'a' is of type str, not an array"),
    ],
)
def test_a_tree_that_has_no_names_is_refused_and_nothing_is_written(tmp_path: Path, tree: Any, says: str) -> None:
    with pytest.raises(RlxError, match=says):
        rlx.save(tmp_path / "s.safetensors", tree)
    assert not list(tmp_path.iterdir())


def test_a_program_is_like_nothing(tmp_path: Path) -> None:
    rlx.save(tmp_path / "p.rlx", rlx.trace(rlx.exp, rlx.spec("f32[2]")))
    with pytest.raises(ConfigError, match="like is for arrays by name, not a Graph"):
        rlx.load(tmp_path / "p.rlx", like={})


# ------------------------------------------------------------------------------------------- training


TRAINING = """
import numpy as np
import rlx_core as rlx
from rlx_core import nn, optim

def loss(params, x, y):
    return nn.mean_squared_error(rlx.tanh(x @ params["a"]) @ params["b"], y)

optimiser = optim.chain(
    optim.clip_by_global_norm(1.0), optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 0.05, 4, 20))
)

def start():
    rng = np.random.default_rng(0)
    params = {"a": rng.standard_normal((5, 7)).astype(np.float32), "b": rng.standard_normal((7, 2)).astype(np.float32)}
    return {"params": params, "state": optimiser.init(params), "step": 0}

step = rlx.train_step(loss, optimiser)

def run(at, last, done=lambda at: None):
    while at["step"] < last:
        rng = np.random.default_rng([1, at["step"]])  # the batch of a step follows from its number
        x, y = rng.standard_normal((16, 5)).astype(np.float32), rng.standard_normal((16, 2)).astype(np.float32)
        params, state, _ = step(at["params"], at["state"], x, y)
        at = {"params": params, "state": state, "step": at["step"] + 1}
        done(at)
    return at
"""


@pytest.fixture
def training() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(TRAINING, names)
    return names


def test_a_resumed_run_ends_in_the_same_bits(tmp_path: Path, training: dict[str, Any]) -> None:
    start, run = training["start"], training["run"]
    whole = run(start(), 12)
    rlx.save(tmp_path / "s.safetensors", run(start(), 5))
    assert same(run(rlx.load(tmp_path / "s.safetensors", like=start()), 12), whole)


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_saved_goes_on_to_the_same_bits(
    tmp_path: Path, training: dict[str, Any]
) -> None:
    path = tmp_path / "s.safetensors"
    saving = f"def done(at):\n    rlx.save({str(path)!r}, at)\n    print(at['step'], flush=True)"
    script = f"{TRAINING}\n{saving}\nrun(start(), 10**9, done)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while int(running.stdout.readline()) < 20:
            pass
        running.kill()
    start, run = training["start"], training["run"]
    at = rlx.load(path, like=start())
    assert at["step"] >= 20
    last = at["step"] + 5
    assert same(run(at, last), run(start(), last))


def test_a_copy_is_saved_while_training_goes_on(tmp_path: Path, training: dict[str, Any]) -> None:
    """Steps write where parameters lie, so what is saved meanwhile is a copy of them."""
    start, run = training["start"], training["run"]
    at = run(start(), 3)
    wanted = optree.tree_map(np.copy, at)
    saving = threading.Thread(target=rlx.save, args=(tmp_path / "s.safetensors", optree.tree_map(np.copy, at)))
    saving.start()
    run(at, 12)
    saving.join()
    assert same(rlx.load(tmp_path / "s.safetensors", like=wanted), wanted)


def test_what_was_loaded_is_given_away_to_a_step(tmp_path: Path) -> None:
    w, optimiser = np.float32([1, 2]), optim.sgd(0.5)
    rlx.save(tmp_path / "s.safetensors", {"w": w})
    found = {"w": rlx.asarray(rlx.load(tmp_path / "s.safetensors", like={"w": w})["w"])}
    place = np.asarray(found["w"]).ctypes.data
    step = rlx.train_step(lambda p: rlx.sum(p["w"] ** 2), optimiser)
    after, _, _ = step(found, optimiser.init(found))
    assert np.asarray(after["w"]).ctypes.data == place
    np.testing.assert_array_equal(rlx.load(tmp_path / "s.safetensors")["w"], w)
