"""Packages that were damaged or made up: a typed error or the right result, never anything else."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import FormatError, RlxError
from rlx_core.files.packages.container import Container, read_container
from rlx_core.files.packages.opening import open_package
from rlx_cpu.packaged.form import PackedProgram
from rlx_cpu.packaged.opening import unpacked

from .conftest import HOST, N, X, leaves

PREFIX = struct.Struct("<8sIQ32s")


def opened(path: Path) -> Any:
    return open_package(read_container(path), host=HOST, trusted=True)


def used(container: Container) -> Iterator[tuple[int, int]]:
    """The bytes of the file that running its second program reads: the manifest, the code, the weights."""
    (length,) = struct.unpack_from("<Q", container.contents.tobytes(), 12)
    yield 0, PREFIX.size + length
    form = container.blobs.json(container.manifest["codes"][0][3])
    blobs = {container.manifest["codes"][0][3], form["code"]["code"], *form["programs"][1]["plan"]["blobs"]}
    start = container.contents.size - container.blobs.data.size
    for number in blobs:
        offset, nbytes, _ = container.blobs.places[number]
        yield start + offset, nbytes


@pytest.mark.medium
def test_no_changed_byte_goes_unnoticed(package: Path, tmp_path: Path, wanted: list[np.ndarray]) -> None:
    data, path, draw = package.read_bytes(), tmp_path / "m.rlxpack", random.Random(0)
    spans = list(used(read_container(package)))
    for _ in range(150):
        offset, nbytes = draw.choice(spans)
        place = offset + draw.randrange(nbytes)
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :])
        with pytest.raises(FormatError):
            opened(path)(X, N)
    for _ in range(150):  # anywhere: what this machine does not use may be damaged
        place = draw.randrange(len(data))
        path.write_bytes(data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :])
        try:
            found = leaves(opened(path)(X, N))
        except FormatError:
            continue
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


def test_a_file_that_is_cut_off_is_no_package(package: Path, tmp_path: Path) -> None:
    data, path = package.read_bytes(), tmp_path / "m.rlxpack"
    last = max(offset + nbytes for offset, nbytes, _ in read_container(package).blobs.places)
    end = len(data) - read_container(package).blobs.data.size + last
    for length in [0, 1, 7, 8, 51, 52, 53, *random.Random(0).sample(range(end), 60)]:
        path.write_bytes(data[:length])
        with pytest.raises(FormatError):
            opened(path)


def mangled(form: Any, draw: random.Random) -> Any:
    """A form with one of its leaves, or a whole part of it, exchanged for something else."""
    odd = [None, True, -1, 1 << 40, 1 << 70, 0.5, "", "f32[2]", [], {}, [[0, 0, 0]], {"type": "f32[2]"}]
    if isinstance(form, dict) and form and draw.random() < 0.93:
        name = draw.choice(list(form))
        if draw.random() < 0.1:
            return {key: value for key, value in form.items() if key != name}
        return {**form, name: mangled(form[name], draw)}
    if isinstance(form, list) and form and draw.random() < 0.93:
        at = draw.randrange(len(form))
        return [*form[:at], mangled(form[at], draw), *form[at + 1 :]]
    if isinstance(form, int) and not isinstance(form, bool) and draw.random() < 0.4:
        return form + draw.choice([-1, 1, 8, 1 << 20])
    return draw.choice(odd)


@pytest.mark.medium
def test_a_manifest_that_lies_behind_a_digest_that_fits(package: Path, tmp_path: Path) -> None:
    data, path, draw = package.read_bytes(), tmp_path / "m.rlxpack", random.Random(0)
    magic, version, length, _ = PREFIX.unpack_from(data)
    manifest, start = json.loads(data[PREFIX.size : PREFIX.size + length]), PREFIX.size + length
    body, outcomes = data[start + -start % 64 :], set()
    for _ in range(400):
        text = json.dumps(mangled(manifest, draw)).encode()
        start = PREFIX.size + len(text)
        head = PREFIX.pack(magic, version, len(text), hashlib.sha256(text).digest())
        path.write_bytes(head + text + bytes(-start % 64) + body)
        try:
            opened(path)(X, N)
            outcomes.add("ran")
        except RlxError:
            outcomes.add("refused")
    assert outcomes == {"ran", "refused"}


@pytest.mark.medium
def test_a_form_that_lies_is_refused_before_it_is_run(package: Path) -> None:
    container, draw, outcomes = read_container(package), random.Random(0), set()
    form = container.blobs.json(container.manifest["codes"][0][3])
    exports = form["code"]["exports"]
    for _ in range(3000):
        lying = mangled(form["programs"][0], draw)
        try:
            assert PackedProgram.from_json(lying, container.blobs.nbytes, exports) is not None
            outcomes.add("read")
        except RlxError:
            outcomes.add("refused")
    for _ in range(300):
        try:
            assert unpacked({**form, "code": mangled(form["code"], draw)}, container.blobs, 1, 0) is not None
        except RlxError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_a_format_of_later_is_named(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.rlxpack"
    path.write_bytes(package.read_bytes()[:8] + struct.pack("<I", 7) + package.read_bytes()[12:])
    with pytest.raises(FormatError, match="format version 7, and this rlx reads 1"):
        opened(path)
    path.write_bytes(b"PK" + package.read_bytes()[2:])
    with pytest.raises(FormatError, match="it starts with"):
        opened(path)


@pytest.mark.medium
def test_blobs_exchanged_between_packages_are_refused(package: Path, tmp_path: Path) -> None:
    """Two packages of one function with other weights: a blob of one in place of that of the other has another digest."""
    other = tmp_path / "other.rlxpack"
    function = rlx.compile(
        lambda w, x: rlx.tanh(w["w"] @ x), {"w": np.ones((64, 64), np.float32)}, rlx.spec("f32[64]"), target="cpu"
    )
    rlx.package(function, other)
    first = tmp_path / "first.rlxpack"
    function = rlx.compile(
        lambda w, x: rlx.tanh(w["w"] @ x), {"w": np.full((64, 64), 2, np.float32)}, rlx.spec("f32[64]"), target="cpu"
    )
    rlx.package(function, first)
    x = np.full(64, 1e-2, np.float32)
    one, two = read_container(first), read_container(other)
    np.testing.assert_allclose(opened(first)(x), np.tanh(1.28), rtol=1e-5)
    starts = [each.contents.size - each.blobs.data.size for each in (one, two)]
    exchanged = 0
    for mine, theirs in zip(one.blobs.places, two.blobs.places, strict=True):
        data, donor = bytearray(first.read_bytes()), other.read_bytes()
        (at, nbytes, *_), (place, size, *_) = mine, theirs
        blob = donor[starts[1] + place : starts[1] + place + size]
        if size != nbytes or data[starts[0] + at : starts[0] + at + nbytes] == blob:
            continue
        data[starts[0] + at : starts[0] + at + nbytes] = blob
        exchanged += 1
        mixed = tmp_path / "mixed.rlxpack"
        mixed.write_bytes(data)
        try:
            found = np.asarray(opened(mixed)(x))
        except FormatError:
            continue
        np.testing.assert_allclose(found, np.tanh(1.28), rtol=1e-5)  # this processor does not use that blob
    assert exchanged

    # All blobs of the other package behind this one's manifest.
    mixed.write_bytes(first.read_bytes()[: starts[0]] + other.read_bytes()[starts[1] :])
    with pytest.raises(RlxError):
        opened(mixed)(x)
