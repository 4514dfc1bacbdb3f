"""The boundary around LLVM: one module, no signals inside, and memory that is reserved before."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import rlx_cpu
from rlx_core.errors import OutOfMemoryError
from rlx_cpu.native.llvm import calls
from rlx_cpu.native.llvm.boundary import ExecutionEngine
from rlx_cpu.native.llvm.calls import protected, reserved

SOURCE = Path(rlx_cpu.__file__).parent


@pytest.mark.medium
def test_one_module_imports_llvmlite() -> None:
    importers = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "llvmlite" for name in names):
                importers.add(path.relative_to(SOURCE).as_posix())
    assert importers == {"native/llvm/boundary.py"}


def test_the_main_thread_waits_and_another_one_calls() -> None:
    assert threading.current_thread() is threading.main_thread()
    main = threading.get_ident()

    assert protected(threading.get_ident)() != main

    def fail() -> None:
        raise KeyError("what LLVM said")

    with pytest.raises(KeyError, match="what LLVM said"):
        protected(fail)()


@pytest.mark.medium
def test_an_engine_in_a_cycle_is_freed_once() -> None:
    """The collector runs the finalisers of all objects in a cycle: llvmlite's own frees the engine, as the server does."""
    closed_by = []

    class LlvmliteEngine:
        def close(self) -> None:
            closed_by.append(threading.get_ident())

        __del__ = close

    engine: Any = ExecutionEngine(LlvmliteEngine())  # type: ignore[arg-type]
    engine.itself = engine
    del engine
    gc.collect()
    protected(lambda: None)()  # behind the engine's `close`

    assert closed_by
    assert threading.get_ident() not in closed_by


def test_without_another_thread_the_main_thread_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    while calls._servers:
        pass
    monkeypatch.setattr(calls, "started", lambda *_: False)

    assert protected(threading.get_ident)() == threading.get_ident()


def test_a_server_that_never_runs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    while calls._servers:
        pass
    monkeypatch.setattr(calls, "_STARTS_WITHIN", 0.1)
    monkeypatch.setattr(calls, "started", lambda *_: True)
    try:
        assert protected(threading.get_ident)() == threading.get_ident()
    finally:
        calls._servers.clear()


def test_a_server_that_had_no_memory_to_begin_with_is_forgotten(tmp_path: Path) -> None:
    """Its function is never entered, so that nothing says that it has ended: neither calls nor the end of a process wait."""
    ran = run(
        """
        import threading, time
        from rlx_cpu.native.llvm import calls
        calls._servers[object()] = time.monotonic() - calls._STARTS_WITHIN
        assert calls.protected(threading.get_ident)() != threading.get_ident()
        """,
        30,
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr


def test_servers_end_when_they_are_idle() -> None:
    protected(int)()
    ends = threading.Event()
    for _ in range(100):
        if not calls._servers:
            return
        ends.wait(0.05)
    raise AssertionError(calls._servers)


def test_a_call_that_needs_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutOfMemoryError, match="no memory is left for LLVM") as refused, reserved(1 << 60, "a module"):
        pass
    assert "cpu.tier" in str(refused.value.hint)
    with reserved(1 << 10, "a module"):
        pass
    monkeypatch.setattr(calls, "_available_nbytes", lambda: 3 << 20)
    with (
        reserved(2 << 20, "a module"),
        pytest.raises(OutOfMemoryError, match="LLVM") as refused,
        reserved(2 << 20, "another one at the same time"),
    ):
        pass
    assert "3 MiB of the machine" in str(refused.value)
    assert not calls._in_flight


def run(program: str, timeout: float, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(program)],
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RLX_CACHE_DIR": str(cache)},
    )


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced by Linux")
def test_a_limit_of_address_space_is_a_typed_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    ran = run(
        """
        import resource
        import numpy as np
        import rlx_core as rlx
        from rlx_core.errors import OutOfMemoryError
        x = np.ones((8, 8), np.float32)
        rlx.jit(lambda x: x @ x)(x)  # what is loaded once is there
        refused = 0
        for extra in range(0, 33 << 20, 4 << 20):
            size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + extra, resource.RLIM_INFINITY))
            try:
                rlx.jit(lambda x: rlx.softmax(x @ x + extra))(x)
            except OutOfMemoryError:
                refused += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert refused, "every limit was enough"
        rlx.jit(lambda x: rlx.exp(x @ x))(x)
        """,
        120,
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


SWEEP = """
    import os, sys, threading
    import numpy as np
    import rlx_core as rlx
    from rlx_cpu.native.llvm import jit
    from rlx_cpu.native.llvm.isa import host_isa
    from rlx_cpu.native.llvm.build import I32
    from rlx_cpu.native.llvm.ir import Function, FunctionType, IRBuilder, LlvmConstant
    from rlx_cpu.native.llvm.optimise import new_module

    def work(number):  # a compile, a load and an address
        module = new_module("test")
        b = IRBuilder(Function(module, FunctionType(I32, []), "f").append_basic_block("entry"))
        b.ret(LlvmConstant(I32, number))
        assert jit.compile_module(module, host_isa()).address("f")
        assert jit.compile_module(module, host_isa()).address("f")

    inside, count, at = {inside}, 0, None
    def trace(frame, event, _):
        global count
        name = frame.f_globals.get("__name__", "")
        assert not name.startswith("llvmlite"), "llvmlite runs in the main thread"
        if event == "call" and name.startswith(inside):
            count += 1
            if count == at:
                raise KeyboardInterrupt
    def traced(number):
        global count
        count = 0
        sys.settrace(trace)
        try:
            work(number)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return count

    work(-2)
    total = traced(-1)
    assert total > 100, total
    others = 0
    for at in range(1, total + 1, {stride}):
        traced(at)
        other = threading.Thread(target=work, args=(10_000 + at,), daemon=True)
        other.start()
        other.join(20)
        if other.is_alive():
            print("another thread hangs after an interrupt at call", at, file=sys.stderr)
            os._exit(1)
        others += 1
    print(total, others)
"""


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_other_threads_compile_after_an_interrupt_at_any_call(stride: int, tmp_path: Path) -> None:
    ran = run(
        SWEEP.format(inside=("rlx_cpu.native.llvm", "rlx_core.system", "contextlib"), stride=stride), 600, tmp_path
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
