"""`rlx package`: from a saved function to a file with its code, and what that says of itself."""

from __future__ import annotations

import hashlib
import importlib.util

import numpy as np
import pytest

import rlx_core as rlx_
from rlx_core.files.packages.container import read_container
from rlx_core.ir.types import spec
from rlx_core.runtime.compiled_function import compile_function

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("rlx_cpu", "llvmlite")),
    reason="packages hold code for the CPU",
)

W = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.fixture
def saved(rlx):
    fast = compile_function(lambda w, x: x @ w, W, spec("f32[rows, 3]"), target="cpu")
    rlx_.save(rlx.place / "f.rlx", fast)


@pytest.fixture
def package(rlx, saved):
    return lambda *words: rlx("--plugin", "cpu=rlx_cpu.plugin", "package", *words)


@pytest.mark.medium
def test_a_saved_function_is_packaged_and_shown(rlx, package) -> None:
    made = package("f.rlx", "--target", "cpu:sse2", "--target", "cpu:neon", "--sizes", "rows=1", "--sizes", "rows=2")
    assert "cpu:sse2" in made.out
    assert "{rows=1}, {rows=2}" in made.out
    shown = package("--show", "f.rlxpack", "--json").json
    assert shown["sha256"] == hashlib.sha256((rlx.place / "f.rlxpack").read_bytes()).hexdigest()
    assert shown["sizes"] == [{"rows": 1}, {"rows": 2}]
    assert [each["target"] for each in shown["codes"]] == ["cpu:sse2", "cpu:neon"]
    assert shown["has_program"]
    assert shown["trusted"]
    found = rlx_.load(rlx.place / "f.rlxpack")
    np.testing.assert_array_equal(found(W[:2, :3]), W[:2, :3] @ W)


def test_the_program_can_be_left_out_and_the_file_be_called_otherwise(package) -> None:
    package("f.rlx", "--sizes", "rows=2", "--code-only", "-o", "g.rlxpack")
    assert not package("--show", "g.rlxpack", "--json").json["has_program"]


def test_what_is_wrong_is_said(package) -> None:
    assert "rows is not bound" in package("f.rlx").err
    assert "--sizes rows: wanted SYMBOL=SIZE" in package("f.rlx", "--sizes", "rows").err
    assert "it starts with" in package("--show", "f.rlx").err


@pytest.mark.medium
def test_a_flipped_bit_in_what_this_machine_would_not_use_is_found(rlx, package) -> None:
    """Loading checks what it uses; showing checks everything: here the code for another processor, and the program."""
    package("f.rlx", "--target", "cpu:sse2", "--target", "cpu:neon", "--sizes", "rows=2")
    path = rlx.place / "f.rlxpack"
    whole = path.read_bytes()
    container = read_container(path)
    for offset, nbytes, _ in container.blobs.places:
        if nbytes:
            damaged = bytearray(whole)
            damaged[len(whole) - container.blobs.data.size + offset + nbytes // 2] ^= 1
            path.write_bytes(damaged)
            assert "is damaged: its digest is" in package("--show", "f.rlxpack").err
