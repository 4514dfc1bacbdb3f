"""Objects linked without LLVM, and the cached description of the machine: a full cache needs no library of LLVM."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from rlx_core.system.disk import DiskCache
from rlx_cpu.native.llvm import c_library, isa, loading
from rlx_cpu.native.llvm.isa import host_isa
from rlx_cpu.native.llvm.optimise import generate, triple

pytestmark = pytest.mark.skipif(not loading.is_supported(), reason="LLVM links objects of this system")

CALLER = """
declare i64 @two(i64)
declare double @sin(double)
declare i64 @nowhere(i64)
@table = private constant [4 x i64] [i64 11, i64 47, i64 5, i64 9]
define i64 @one(i64 %x) { %y = call i64 @two(i64 %x)  %z = add i64 %y, 1  ret i64 %z }
define double @wave(double %x) { %y = call double @sin(double %x)  ret double %y }
define i64 @chosen(i64 %x) {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %x
  %y = load i64, ptr %p
  ret i64 %y
}
"""
CALLED = "define i64 @two(i64 %x) { %y = mul i64 %x, 3  ret i64 %y }"


def made(text: str) -> bytes:
    isa = host_isa()
    assert isa is not None
    return generate(f'target triple = "{triple()}"\n{text}', isa)


def test_objects_call_one_another_the_c_library_and_read_constants() -> None:
    code = loading.linked([made(CALLER), made(CALLED)])
    assert code is not None
    word = ctypes.c_int64
    assert ctypes.CFUNCTYPE(word, word)(code.address("one"))(5) == 16
    assert [ctypes.CFUNCTYPE(word, word)(code.address("chosen"))(n) for n in range(4)] == [11, 47, 5, 9]
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("wave"))(0.5) == pytest.approx(
        0.479425538604203
    )
    assert code.address("four") == 0


def test_what_cannot_be_linked_is_an_error_of_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = made("declare i64 @nowhere(i64)\ndefine i64 @f(i64 %x) { %y = call i64 @nowhere(i64 %x)  ret i64 %y }")
    with pytest.raises(RuntimeError, match="it calls nowhere, which is unknown"):
        loading.linked([unknown])
    with pytest.raises(RuntimeError, match="two functions are called two"):
        loading.linked([made(CALLED), made(CALLED)])
    whole = made(CALLED)
    for damaged in (b"", whole[:40], whole[: len(whole) // 2], b"\0" * len(whole)):
        with pytest.raises(RuntimeError, match="damaged"):
            loading.linked([damaged])
    monkeypatch.setitem(c_library._symbols, "nowhere", 16)
    assert loading.linked([unknown]) is not None


def test_data_that_code_writes_to_are_linked_by_llvm() -> None:
    assert loading.linked([made("@word = global i64 5\ndefine ptr @f() { ret ptr @word }")]) is None


def test_memory_of_code_in_a_cycle_is_unmapped() -> None:
    before = set(loading._mappings)
    code: Any = loading.linked([made(CALLED)])
    (key,) = set(loading._mappings) - before
    code.itself = code
    del code
    gc.collect()
    assert key not in loading._mappings


def test_the_cached_description_of_the_machine_is_llvms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "default_cache", lambda _: DiskCache(tmp_path))
    expected = isa.facts_of_llvm()
    assert isa.facts.__wrapped__() == expected
    monkeypatch.setattr(isa, "facts_of_llvm", lambda: pytest.fail("it is cached"))
    assert isa.facts.__wrapped__() == expected


def test_another_processor_or_library_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = isa._key()
    assert key is not None
    for name, value in (
        ("_numpy_features", {"AVX2": False}),
        ("_processor", ["model : 1"]),
        ("_library", [("a", 1, 2)]),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(isa, name, lambda value=value: value)
            assert isa._key() != key


@pytest.mark.medium
def test_a_program_whose_code_is_all_cached_loads_no_llvm(tmp_path: Path) -> None:
    program = """
        import sys
        import numpy as np
        import rlx_core as rlx
        f = rlx.jit(lambda x: rlx.softmax(x @ x + 1))
        for _ in range(3):
            result = f(np.eye(8, dtype=np.float32))
        print(np.asarray(result).tobytes().hex(), "llvmlite" in sys.modules)
    """
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", dedent(program)],
            capture_output=True, text=True, check=True, env=environment, timeout=120,
        ).stdout.split()
        for _ in range(2)
    )  # fmt: skip
    assert first[1] == "True"
    assert second == [first[0], "False"]
