"""Words of Philox4x32-10: the published ones, at any place, and the same wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.codegen.scalars.numpy_assembler import evaluated
from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.ir.dtypes import u32, u64
from rlx_core.ops.random.bits import RandomBits, joined_key, random_bits
from rlx_core.ops.random.philox import RandomWord, philox

PUBLISHED = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "digits of pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Counter, key, block: `kat_vectors` of the Random123 library, by the authors of the generator."""


def pair(words: tuple[int, ...]) -> int:
    return words[0] | words[1] << 32


@pytest.mark.parametrize(("counter", "key", "block"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_block_is_the_published_one(counter, key, block):
    # A position is a word's number: of the largest block only the two halves, of 64 bits each, have one.
    number, stream = pair(counter[:2]) % (1 << 62), pair(counter[2:])
    if number == pair(counter[:2]):
        words = RandomWord(stream=stream)(np.uint64(pair(key)), np.uint64(4 * number) + np.arange(4, dtype=np.uint64))
        assert words.tolist() == list(block)
    found = philox(tuple(np.uint64([x]) for x in counter), tuple(np.uint64([x]) for x in key))
    assert tuple(int(x[0]) for x in found) == block


@pytest.mark.parametrize("of", [u32, u64], ids=str)
def test_scalar_code_means_the_reference(of):
    rng = np.random.default_rng(7)
    keys, positions = rng.integers(0, (1 << 64) - 1, (2, 50), np.uint64, endpoint=True)
    op = RandomWord(of, stream=0x8000_0001_0000_0005)
    found = evaluated(standard_table("native"), op, [keys, positions])
    assert (found.view(of.numpy) == op.reference(keys, positions)).all()


def test_of_64_bits_are_two_words_each():
    key = np.uint32([1, 2])
    words, wide = random_bits(key, shape=(10,)), random_bits(key, shape=(5,), dtype=u64)
    assert (wide == words[::2] | words[1::2].astype(np.uint64) << np.uint64(32)).all()


@pytest.mark.parametrize("shape", [(), (1,), (5,), (64,), (3, 5, 7), (2, 1, 33), (0, 4)], ids=str)
@pytest.mark.parametrize("of", [u32, u64], ids=str)
def test_native_code_draws_what_the_reference_draws(shape, of):
    key = np.uint32([0xDEADBEEF, 77])
    assert (rlx.jit(lambda key: random_bits(key, shape=shape, dtype=of))(key) == random_bits(key, shape, of)).all()


def test_any_places_can_be_asked_for():
    key = np.uint32([3, 4])
    every = random_bits(key, shape=(200,))
    position = np.arange(37, 197, 5, dtype=np.uint64)

    @rlx.jit
    def some(key, position):
        return RandomWord()(joined_key(key), position)

    assert (some(key, position) == every[37:197:5]).all()
    assert (some(key, np.arange(1, 161, dtype=np.uint64)) == every[1:161]).all(), "which begin inside a block"


def test_a_key_for_each_lane():
    keys = np.arange(40, dtype=np.uint32).reshape(20, 2)
    assert (rlx.jit(lambda keys: random_bits(keys, shape=()))(keys) == [random_bits(k, shape=()) for k in keys]).all()


def test_sizes_known_later_draw_the_same():
    def like(key, x):
        return RandomBits(x.shape)(key)

    key, x = np.uint32([5, 6]), np.zeros((7, 9), np.float32)
    compiled = rlx.compile(like, rlx.spec("u32[2]"), rlx.spec("f32[n, m]"))
    assert (compiled(key, x) == random_bits(key, shape=(7, 9))).all()


def test_what_is_drawn_and_used_is_one_kernel():
    def noisy(key, x):
        words = rlx.random.wrap_key_data(key)
        return x + rlx.random.normal(words, x.shape) * 0.1

    compiled = rlx.compile(noisy, rlx.spec("u32[2]"), rlx.spec("f32[64, 64]"))
    assert len(compiled.report.kernels) == 1


def test_equal_draws_are_one_and_others_are_not():
    def twice(key):
        return random_bits(key, shape=(4096,)) ^ random_bits(key, shape=(4096,))

    assert not rlx.jit(twice)(np.uint32([1, 2])).any()
    assert str(rlx.compile(twice, rlx.spec("u32[2]")).emit("mir")).count("random_bits") == 1
