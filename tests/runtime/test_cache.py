"""Compiled programs are kept in memory and on disk; whatever is wrong with what is kept costs a compile and nothing else."""

from __future__ import annotations

import hashlib
import inspect
import os
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.attributes import Decoder, Encoder
from rlx_core.ir.provenance import Source
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.config.records import CacheConfig, Configuration
from rlx_core.runtime import cache
from rlx_core.runtime.cache import CompileCache, default_cache
from rlx_core.runtime.executable import Executable
from rlx_core.system.disk import DiskCache

KEY = hashlib.sha256(b"a program").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
PAYLOAD = bytes(range(256)) * 2
X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def entry(disk: DiskCache, key: str = KEY) -> Path:
    return disk.directory / f"{key}.rlx"


@pytest.mark.skipif(os.name != "posix", reason="Windows has neither these modes nor these links")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda base: base.chmod(0o770), "can be written by others"),
        (lambda base: base.chmod(0o702), "can be written by others"),
        (lambda base: (base / "programs").rmdir() or (base / "programs").symlink_to(base / "elsewhere"), "is a link"),
        (lambda base: (base / "programs").rmdir() or (base / "programs").write_bytes(b""), "cannot be used"),
    ],
    ids=["a group writes the base", "all write the base", "a link", "a file"],
)
def test_an_unsafe_directory_means_no_files_and_one_warning(tmp_path, monkeypatch, spoil, reason):
    base = tmp_path / "base"
    (base / "programs").mkdir(parents=True, mode=0o700)
    (base / "elsewhere").mkdir(mode=0o700)
    spoil(base)
    monkeypatch.setattr(cache, "_caches", {})
    settings = Configuration(cache=CacheConfig(directory=str(base)))

    with pytest.warns(RuntimeWarning, match=f"programs .*not kept on disk: .*{reason}"):
        found = cache.default_cache(settings)
    assert found.disk is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.default_cache(settings) is found


# ---------------------------------------------------------------------------------------- both layers


def test_a_program_is_compiled_once_in_memory_and_once_on_disk(disk):
    compiled: list[int] = []

    def ask(cache: CompileCache) -> str:
        return cache.get_or_compile(
            KEY, lambda: compiled.append(1) or "program", to_bytes=str.encode, from_bytes=bytes.decode
        )

    cache = CompileCache(disk=disk)
    assert ask(cache) == ask(cache) == "program"
    assert ask(CompileCache(disk=disk)) == "program"  # a new process
    assert compiled == [1]
    assert ask(CompileCache()) == "program"
    assert compiled == [1, 1]


@pytest.mark.parametrize("error", [FormatError("file: bad header"), KeyError("x"), MemoryError()], ids=repr)
def test_bytes_that_do_not_decode_are_compiled_again_and_replaced(disk, error):
    disk.put(KEY, b"from an older version")

    def refuse(data: bytes) -> str:
        raise error

    program = CompileCache(disk=disk).get_or_compile(KEY, lambda: "program", to_bytes=str.encode, from_bytes=refuse)

    assert program == "program"
    assert disk.get(KEY) == b"program"
    assert type(error).__name__ in disk.counts.faults[-1]


def test_a_failed_compilation_keeps_nothing(disk):
    def fail() -> str:
        raise FormatError("no")

    cache = CompileCache(disk=disk)
    with pytest.raises(FormatError):
        cache.get_or_compile(KEY, fail, to_bytes=str.encode, from_bytes=bytes.decode)

    assert disk.keys() == []
    assert len(cache.memory) == 0


def test_programs_leave_memory_in_the_order_of_their_last_use():
    cache = CompileCache(capacity=2)
    for key in ("a", "b", "a", "c"):
        cache.get_or_compile(key, lambda key=key: key)

    assert cache.memory.keys() == ["a", "c"]
    assert cache.memory.counts.evictions == 1


def test_threads_that_ask_for_one_program_compile_it_once():
    cache, compiled = CompileCache(), []
    gate = threading.Barrier(6)

    def compile() -> str:
        compiled.append(threading.get_ident())
        time.sleep(0.02)
        return "program"

    def ask() -> None:
        gate.wait()
        cache.get_or_compile(KEY, compile)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(compiled) == 1


# ------------------------------------------------------------------------------------- a program's entry


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.medium
@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[: len(d) // 2], flipped, lambda d: d + b"\0"],
    ids=["empty", "cut", "bit", "longer"],
)
def test_a_damaged_cache_entry_is_compiled_again_and_counted(tmp_path, damage):
    graph = rlx.trace(lambda x: rlx.exp(x) + 1, X)

    def compile_with(disk: DiskCache) -> tuple[str, np.ndarray]:
        compiled = compile_graph(graph, cache=lambda configuration: CompileCache(8, disk))
        return compiled.report.cache, Executable(compiled).run({"x": X})[0]

    how, expected = compile_with(DiskCache(tmp_path / "cache"))
    assert how == "compiled"
    assert compile_with(DiskCache(tmp_path / "cache"))[0] == "disk"
    (entry,) = (tmp_path / "cache").glob("*.rlx")
    entry.write_bytes(damage(entry.read_bytes()))
    disk = DiskCache(tmp_path / "cache")
    how, found = compile_with(disk)

    assert how == "compiled"
    assert disk.counts.rejected == 1
    assert entry.name[:16] in disk.counts.faults[0]
    np.testing.assert_array_equal(found, expected)
    assert compile_with(DiskCache(tmp_path / "cache"))[0] == "disk", "the entry was replaced"


def test_the_default_cache_is_the_tests_own():
    from rlx_core.pipeline.config.reading import load_config

    disk = default_cache(load_config(overrides={})).disk
    assert disk is not None
    assert "pytest" in str(disk.directory)


# -------------------------------------------------------------------------------- the lines of the user


def one_line(x, at):
    return rlx.sum(rlx.exp(x) * 2.0, axis=0) + rlx.take(x, at, axis=0)


def several_lines(x, at):
    grown = rlx.exp(x)
    doubled = grown * 2.0
    total = rlx.sum(doubled, axis=0)
    last = rlx.take(x, at, axis=0)
    return total + last


@pytest.mark.medium
@pytest.mark.parametrize("is_kept", ["in memory", "on disk"])
def test_a_program_from_the_cache_names_the_lines_of_whoever_asks(tmp_path, monkeypatch, is_kept):
    """Not those of an equal function, which it was compiled for: in the plan, in reports, in errors of a run."""
    settings = {"cache": {"directory": str(tmp_path)}}
    kept = []
    for function in (one_line, several_lines, one_line):
        if is_kept == "on disk":
            monkeypatch.setattr(cache, "_caches", {})
        program = rlx.compile(function, rlx.spec("f32[2, 3]"), rlx.spec("i64[]"), config=settings)
        kept.append(program.report.cache)
        text, first = inspect.getsourcelines(function)
        own = range(first, first + len(text))
        computed = [node for node in program.executable.lir.graph.nodes if node.operands]
        reported = [row.source for row in program.report.dispatch.rows]
        with pytest.raises(rlx.errors.IndexRangeError) as caught:
            program(np.ones((2, 3), np.float32), np.int64(9))

        assert {node.origin.source.line in own for node in computed} == {True}
        assert {int(place.rpartition(":")[2]) in own for place in reported if place} == {True}
        assert any(isinstance(fact.where, Source) and fact.where.line in own for fact in caught.value.facts)
    source = "memory" if is_kept == "in memory" else "disk"
    assert kept == ["compiled", source, source]


def test_lines_that_a_plan_was_not_made_from_are_not_stored():
    """A line that a pass noted is of the process in which the plan was made, and says nothing in another."""
    graph = rlx.trace(lambda x: rlx.exp(x), rlx.spec("f32[2]"))
    node = graph.nodes[-1]
    written = Encoder(lines=[node.origin.source]).graph(graph)
    strange = Encoder(lines=[Source("elsewhere.py", 1)]).graph(graph)

    assert [row[4][0] for row in written["nodes"]][-1] == 0
    assert [row[4][0] for row in strange["nodes"]][-1] is None
    with pytest.raises(FormatError, match="source: there is no line 0 among 0"):
        Decoder({type(node.op).name: type(node.op)}).graph(written)
