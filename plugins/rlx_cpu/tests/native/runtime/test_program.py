"""Native programs: what runs where, threads that come and go, forks, options, the object cache, and life without llvmlite."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callers import finished, forked, forks, side_by_side

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.errors import ConfigError
from rlx_core.plugins import PluginHost
from rlx_cpu import tier
from rlx_cpu.native.llvm import jit, optimise
from rlx_cpu.native.llvm.isa import ISAS, available, host_isa
from rlx_cpu.native.runtime.pool import pool_for
from rlx_cpu.native.threads import usable_cpus

HOST = PluginHost([rlx_cpu.plugin])
X = np.random.default_rng(0).standard_normal((256, 200)).astype("f4")


def chain(x: Any) -> Any:
    h = rlx.softmax(rlx.exp(x) * 0.5 + x, axis=-1)
    return rlx.layer_norm(h) - rlx.sum(h, axis=0)


def made(**options: Any) -> Any:
    return rlx.compile(chain, rlx.spec("f32[256, 200]"), host=HOST, target="cpu", config={"options": options})


EXPECTED = np.asarray(made(**{"cpu.tier": "numpy"})(X))


def test_a_program_of_native_steps_is_one_native_call() -> None:
    fast = made()

    assert all(kernel.startswith("native_") for _, kernel, _ in fast.report.kernels)
    np.testing.assert_allclose(fast(X), EXPECTED, atol=2e-5)  # exponentials and rows of 200 in f32


def test_many_runs_from_many_threads_give_the_same_bits() -> None:
    """One of them has the pool, the others run alone; nobody waits and nobody can tell."""
    fast = made(**{"cpu.threads": 2})
    first = np.asarray(fast(X))
    calls = [lambda: all(np.array_equal(fast(X), first) for _ in range(40))] * 8
    assert all(side_by_side(*calls))


def test_workers_that_went_to_sleep_come_back() -> None:
    fast = made(**{"cpu.threads": 2, "cpu.spin": 1})
    first = np.asarray(fast(X))
    for pause in (0.0, 0.05, 0.0, 0.05):
        time.sleep(pause)
        np.testing.assert_array_equal(fast(X), first)


@forks
def test_a_child_forked_after_the_pool_started_has_a_pool_of_its_own() -> None:
    fast = made(**{"cpu.threads": 2})
    first = np.asarray(fast(X))
    assert finished(forked(lambda: np.array_equal(fast(X), first))) == 0


def test_a_pool_is_made_once_for_each_number_of_threads() -> None:
    assert pool_for(2, 200) is pool_for(2, 200)
    assert pool_for(2, 200) is not pool_for(3, 200)


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cpu.threads": -1}, "cpu.threads: must be at least 1, not -1"),
        ({"cpu.threads": 0}, "cpu.threads: must be at least 1, not 0"),
        ({"cpu.spin": -5}, "cpu.spin: must be at least 0 microseconds, not -5"),
        ({"cpu.isa": "avx1024"}, "cpu.isa: 'avx1024' is none of auto, avx512bf16, avx512, avx2, neon, sse2"),
        ({"cpu.tier": "gpu"}, "cpu.tier: 'gpu' is none of auto, native, numpy"),
        ({"cpu.tier": "numpy", "cpu.isa": "avx2"}, "cpu.isa: avx2 needs native code, and there is none"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(**options)
    assert refused.value.message == says


def test_an_instruction_set_that_the_machine_lacks_is_refused() -> None:
    absent = next(isa for isa in ISAS if isa.name not in {each.name for each in available()})
    with pytest.raises(ConfigError, match=rf"not {absent.name}"):
        made(**{"cpu.isa": absent.name})


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Python sets affinities on Linux alone")
def test_threads_honour_the_affinity_of_the_process() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_without_llvmlite_everything_works_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "reason_without", lambda: "llvmlite is not installed")
    fast = made()

    assert not any(kernel.startswith("native_") for _, kernel, _ in fast.report.kernels)
    assert tier.properties({}) == {"tier": "numpy", "why": "llvmlite is not installed"}
    np.testing.assert_array_equal(fast(X), EXPECTED)
    with pytest.raises(ConfigError, match="native was asked for"):
        made(**{"cpu.tier": "native"})


# ----------------------------------------------------------------------------------------- object cache


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    return tmp_path / "objects"


def code(number: int) -> jit.JitCode:
    from rlx_cpu.native.llvm import ir

    module = optimise.new_module("test")
    function = ir.Function(module, ir.FunctionType(ir.IntType(64), []), "answer")
    ir.IRBuilder(function.append_basic_block("entry")).ret(ir.LlvmConstant(ir.IntType(64), number))
    isa = host_isa()
    assert isa is not None
    made = jit.compile_module(module, isa)
    made.flush()
    return made


def answer(made: jit.JitCode) -> int:
    import ctypes

    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(made.address("answer"))())


def test_an_object_is_compiled_once_and_linked_from_the_cache(objects: Path) -> None:
    first, second, other = code(7), code(7), code(8)

    assert (first.is_cached, second.is_cached, other.is_cached) == (False, True, False)
    assert (answer(first), answer(second), answer(other)) == (7, 7, 8)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "foreign"])
def test_a_damaged_object_is_compiled_again(objects: Path, damage: str) -> None:
    code(7)
    (entry,) = objects.glob("*.rlx")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 16
    kept = {"flip": bytes(data), "truncate": bytes(data[: len(data) // 2]), "empty": b"", "foreign": b"x" * len(data)}
    entry.write_bytes(kept[damage])

    again = code(7)
    assert (again.is_cached, answer(again), code(7).is_cached) == (False, 7, True)
