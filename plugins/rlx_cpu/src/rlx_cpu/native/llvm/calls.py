"""Calls of LLVM: in a thread that no signal handler interrupts, and with the memory that they need.

LLVM is entered through llvmlite under one lock, and an exception between two instructions of llvmlite, which Ctrl-C raises in
the main thread, leaves that lock acquired or memory freed twice. Python runs handlers in the main thread alone. So the main
thread hands its calls to a *server*, a thread that exists while there are calls, and waits: an exception there abandons the
result, and the call ends by itself. Every other thread calls LLVM directly.

LLVM ends the process where it has no memory. So a call states how much it may need, and is refused where that is not available.
"""

from __future__ import annotations

import atexit
import mmap
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from math import inf
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any, Final, Generic, ParamSpec, TypeVar

from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.system.locks import LOOK_AGAIN, forks_wait, in_child, waiting
from rlx_cpu.native.threads import started

T = TypeVar("T")
P = ParamSpec("P")

_IDLE: Final = 0.05
"""Seconds that a server waits for another call before it ends: a process that forks should have one thread."""

_STARTS_WITHIN: Final = 1.0
"""Seconds after which a server that was started and does nothing is taken to have had no memory to begin with."""

_ATTEMPTS: Final = 3
"""Servers that are started for a call before the main thread makes it itself."""


def protected(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with its calls made in a thread that runs no signal handlers; exceptions are raised in the caller."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with forks_wait:
            if get_ident() != threading.main_thread().ident:
                return function(*args, **kwargs)
            pending = _Call(partial(function, *args, **kwargs))
            _calls.put(pending)
            return pending.result()

    return call


def release(thing: Any) -> None:
    """Free an object of LLVM by `close`, at once or later: the collector of cycles calls this at any instruction."""
    if sys is None or sys.is_finalizing() or _is_over:
        thing.detach()  # the process ends, and with it the object
        return
    _calls.put(_Call(thing.close))
    if not _is_served():
        _start()


lock_checks: Final[list[Callable[[], bool]]] = []
"""The function of `boundary` that returns whether this thread holds llvmlite's lock; empty until LLVM is loaded."""


def is_entered() -> bool:
    """Return whether this thread holds llvmlite's lock: then this is a signal handler, and no other thread can enter LLVM."""
    return any(check() for check in lock_checks)


class _Call(Generic[T]):
    """A call, its outcome, and the thread that makes it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._begun: dict[str, tuple[int, object]] = {}
        self._value: tuple[T] | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def owner(self) -> int | None:
        """The thread that makes it."""
        begun = self._begun.get("by")
        return None if begun is None else begun[0]

    def run(self) -> None:
        """Make the call, unless another thread has begun it."""
        mine = get_ident(), object()
        function = self._function
        # `setdefault` is one instruction: of several threads one begins. The owner is known before it waits for a fork.
        if self._begun.setdefault("by", mine) is not mine or function is None:
            return
        try:
            with forks_wait:
                self._value = (function(),)
        except BaseException as error:  # noqa: BLE001 (raised in the thread that asks)
            self._error = error
        finally:
            self._function = None
            self._done.release()

    def result(self) -> T:
        """Return the outcome, or raise it; in a child forked meanwhile, which has no server thread, make the call again."""
        function, generation, since, attempts = self._function, _generation, time.monotonic(), 0
        if not _is_served():
            attempts = _ATTEMPTS - 1 if not _start() else 0
        with waiting(self):
            while not self._done.acquire(timeout=LOOK_AGAIN):
                if generation != _generation and function is not None:
                    return protected(function)()
                if not self._begun and (attempts or time.monotonic() > since + _STARTS_WITHIN):
                    since, attempts = time.monotonic(), attempts + 1
                    if attempts >= _ATTEMPTS or not _start():
                        with _blocked_signals():
                            self.run()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback refers to this frame
        assert self._value is not None, "a call that is done has a value or an error"
        return self._value[0]


# ----------------------------------------------------------------------------------------------- server

_calls: SimpleQueue[_Call[Any]] = SimpleQueue()
"""Its `put` may be interrupted by itself, so a finaliser and a signal handler may call it."""

_servers: dict[object, float] = {}
"""Every server, with the time at which it was started; once it runs, infinity. One without memory to begin with stays in it."""

_generation = 0
"""Number of forks between the first process and this one."""

_is_over = False


def _is_served() -> bool:
    """Return whether a server runs, or was started a moment ago."""
    now = time.monotonic()
    return any(since > now - _STARTS_WITHIN for since in list(_servers.values()))


def _start() -> bool:
    """Start a server; return whether a thread could be created."""
    server = object()
    _servers[server] = time.monotonic()
    if not _is_over and started(_serve, server):
        return True
    _servers.pop(server, None)
    return False


def _serve(server: object) -> None:
    try:
        _servers[server] = inf
        while True:
            try:
                call = _calls.get(timeout=_IDLE)
            except Empty:
                _servers.pop(server, None)
                if _calls.empty():
                    return
                _servers[server] = inf  # a call came while this server was still counted
                continue
            call.run()
            del call
    finally:
        _servers.pop(server, None)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Inside, the system delivers no signal to this thread, where it has a mask: there was no memory for another one."""
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGALRM})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


def _forget() -> None:
    """In a forked child: there is no server, and what was handed to it is handed over again by the thread that waits."""
    global _calls, _generation
    _servers.clear()
    _in_flight.clear()
    _calls = SimpleQueue()
    _generation += 1


def _finish() -> None:
    """At the end of the process: let the server finish, since LLVM's own data go away."""
    global _is_over
    _is_over = True
    while inf in list(_servers.values()):
        time.sleep(0.001)


in_child(_forget)
atexit.register(_finish)


# ----------------------------------------------------------------------------------------------- memory

_in_flight: dict[object, int] = {}
"""Bytes that each call under way may need."""


@contextmanager
def reserved(nbytes: int, what: str) -> Iterator[None]:
    """Inside, LLVM may need so many bytes, which were available together with those of the other calls under way.

    Raises:
        OutOfMemoryError: They were not: a limit of the process (`RLIMIT_AS`, `RLIMIT_DATA`) or the machine's memory.
    """
    token = object()
    _in_flight[token] = nbytes
    try:
        needed = sum(list(_in_flight.values()))
        free = _available_nbytes()
        if free is not None and free < needed:
            raise _lacking(what, needed, f"{free >> 20} MiB of the machine")
        try:
            mmap.mmap(-1, needed).close()  # checks the system's limits without writing to the memory
        except (OSError, MemoryError, ValueError) as error:
            raise _lacking(what, needed, "less, by the limits of this process (ulimit -v, ulimit -d)") from error
        yield
    finally:
        _in_flight.pop(token, None)


def _lacking(what: str, needed: int, available: str) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"compile: no memory is left for LLVM, which would end the process ({what})",
        Fact("needed", f"{needed >> 20} MiB"),
        Fact("available", available),
        hint='free memory, raise the limit, or compile for NumPy: config={"options": {"cpu.tier": "numpy"}}',
    )


def _available_nbytes() -> int | None:
    """Bytes that the machine can give without swapping; `None` where the system does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return None
    return None
