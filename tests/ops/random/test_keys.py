"""Keys: how they are made of others, that they go wherever arrays go, and that they are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import random
from rlx_core.errors import AxisError, ConfigError, DtypeError, RlxError, ShapeError
from rlx_core.ops.random.philox import philox
from rlx_core.random import Key


def block(key: Key, *counter: int) -> list[int]:
    """The first two words of a block, as the generator has it."""
    found = philox(
        tuple(np.uint64([c]) for c in counter), tuple(key.words[k : k + 1].astype(np.uint64) for k in (0, 1))
    )
    return [int(x[0]) for x in found[:2]]


def test_a_key_is_the_words_of_its_seed():
    assert random.key(0x1234_5678_9ABC_DEF0).words.tolist() == [0x9ABCDEF0, 0x12345678]
    assert random.key(-1).words.tolist() == [0xFFFFFFFF] * 2
    assert random.key(0).words.tolist() == [0, 0]
    assert random.key(np.int64(7)).words.tolist() == [7, 0]
    seeded = rlx.jit(lambda seed: random.normal(random.key(seed), (3,)))
    assert (seeded(np.int64(1 << 40)) == seeded(np.int64(0))).sum() == 0
    assert np.allclose(seeded(np.int64(1 << 40)), random.normal(random.key(1 << 40), (3,)), rtol=1e-6)


def test_split_and_fold_in_take_words_of_their_own_streams():
    key = random.key(42)
    keys = random.split(key, 5)
    assert keys.shape == (5,)
    assert [k.words.tolist() for k in keys] == [block(key, i, 0, 0, 0x80000001) for i in range(5)]
    assert random.split(key, (2, 2)).words.reshape(4, 2).tolist() == keys.words[:4].tolist()
    for n in (0, 1, 2**32 - 1, 2**32 + 1, 2**63 - 1):
        assert random.fold_in(key, n).words.tolist() == block(key, n & 0xFFFFFFFF, n >> 32, 0, 0x80000000)
        assert random.fold_in(key, np.int64(n)).words.tolist() == random.fold_in(key, n).words.tolist()


@pytest.mark.medium
def test_keys_made_outside_of_a_program_are_those_made_inside():
    key = random.key(7)
    for number in (0, 3, 2**40 + 5, -1):
        inside = rlx.jit(lambda key, n: random.fold_in(key, n))(key, np.int64(number))
        assert random.fold_in(key, np.int64(number)).words.tolist() == inside.words.tolist()
    for shape in (2, (2, 3), 40, 0):
        inside = rlx.jit(lambda key, shape=shape: random.split(key, shape))(key)
        outside = random.split(key, shape)
        assert outside.words.tolist() == inside.words.tolist()
        assert outside.words.dtype == inside.words.dtype == np.uint32
    assert random.fold_in(key, np.int32(5)).words.tolist() == random.fold_in(key, 5).words.tolist()


def test_keys_of_all_ways_differ():
    key = random.key(0)
    found = [key, *random.split(key, 50), *(random.fold_in(key, i) for i in range(50))]
    assert len({tuple(k.words.tolist()) for k in found}) == 101


def test_keys_travel_as_containers_of_one_array():
    @rlx.jit
    def step(state):
        key, subkey = random.split(state["key"])
        return {"key": key, "x": state["x"] + random.uniform(subkey, (4,))}

    state = {"key": random.key(1), "x": np.zeros(4, np.float32)}
    after = step(step(state))
    assert isinstance(after["key"], Key)
    again = random.split(random.split(random.key(1))[0])
    assert (after["key"].words == again[0].words).all()


@pytest.mark.medium
def test_vmap_over_keys_is_a_loop_over_them():
    keys = random.split(random.key(3), 6)
    for draw in (
        lambda key: random.normal(key, (5,)),
        lambda key: random.randint(key, (3,), 0, 100),
        lambda key: random.permutation(key, 9),
        lambda key: random.split(key).words,
        lambda key: random.categorical(key, np.zeros(4, np.float32), shape=(8,)),
    ):
        together = rlx.vmap(draw)(keys)
        assert np.allclose(together, np.stack([draw(key) for key in keys]), rtol=1e-6)


def test_what_does_not_depend_on_the_batch_is_drawn_once():
    key, x = random.key(5), np.zeros((3, 4), np.float32)
    found = np.asarray(rlx.vmap(lambda row: row + random.uniform(key, (4,)))(x))
    assert (found == found[0]).all()


def test_a_program_with_keys_is_kept_in_a_file(tmp_path):
    def draw(key, shift):
        return {"key": random.split(key)[0], "y": random.uniform(key, (3,)) + shift}

    compiled = rlx.compile(draw, Key(rlx.spec("u32[2]")), rlx.spec("f32[]"))
    rlx.save(tmp_path / "draw.rlx", compiled)
    key = random.key(9)
    found, wanted = rlx.load(tmp_path / "draw.rlx")(key, np.float32(1)), compiled(key, np.float32(1))
    assert isinstance(found["key"], Key)
    assert (found["y"] == wanted["y"]).all()


@pytest.mark.parametrize(
    "use",
    [
        lambda key: key + 1,
        lambda key: 2 * key,
        lambda key: -key,
        lambda key: key == key,
        lambda key: key < 3,
        lambda key: np.ones(2) + key,
        lambda key: float(key),
        lambda key: bool(key),
        lambda key: np.asarray(key),
        lambda key: rlx.sum(key),
        lambda key: rlx.jit(lambda x, key: x * key)(np.float32([1, 2]), key),
        lambda key: rlx.jit(lambda key: rlx.astype(key, "f32"))(key),
    ],
)
def test_a_key_is_no_number(use):
    with pytest.raises(RlxError, match=r"random key|is not an array") as caught:
        use(random.key(0))
    assert "no number" in str(caught.value)


def test_what_is_no_key_is_refused_with_what_makes_one():
    with pytest.raises(DtypeError, match="key must be a random key, not int 0") as caught:
        random.uniform(0, (3,))
    assert "rlx.random.key(seed)" in caught.value.hint
    with pytest.raises(DtypeError, match=r"not u32\[2\]") as caught:
        random.uniform(np.uint32([1, 2]), (3,))
    assert "wrap_key_data" in caught.value.hint
    assert (random.uniform(random.wrap_key_data(np.uint32([1, 0])), (3,)) == random.uniform(random.key(1), (3,))).all()
    with pytest.raises(DtypeError, match="must be u32, not f32"):
        random.wrap_key_data(np.float32([1, 2]))
    with pytest.raises(ShapeError, match=r"must be \[\.\., 2\]"):
        random.wrap_key_data(np.uint32([1, 2, 3]))
    with pytest.raises(ShapeError, match=r"one key, not keys of shape \[3\]"):
        random.normal(random.split(random.key(0), 3), (2,))


def test_seeds_and_numbers_that_do_not_fit_are_refused():
    for seed, says in ((1 << 64, "64 bits"), (1.5, "integer"), (True, "integer")):
        with pytest.raises(ConfigError, match=says):
            random.key(seed)
    with pytest.raises(ConfigError, match=r"from 0 to 2\*\*63 - 1"):
        random.fold_in(random.key(0), -1)
    with pytest.raises(DtypeError, match="must be an integer, not f32"):
        random.fold_in(random.key(0), np.float32(1))


def test_keys_are_indexed_by_their_axes():
    keys = random.split(random.key(0), (2, 3))
    assert keys[1].shape == (3,)
    assert keys[1, 2].shape == ()
    assert len(keys) == 2
    assert [k.shape for k in keys] == [(3,), (3,)]
    with pytest.raises(AxisError, match="3 indices of keys with 2 axes"):
        keys[0, 0, 0]
    with pytest.raises(AxisError, match="one key, which has no length"):
        len(random.key(0))
