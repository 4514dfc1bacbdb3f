"""Locks that neither a signal handler nor a fork can turn into an endless wait.

A signal handler runs between any two instructions of the main thread, and may call the function that it interrupted; a fork
copies the locks of other threads, but not the threads that would release them. So all shared state of rlx is behind a `Lock`:

* It is re-entrant: a handler gets the locks of its own thread. Code under a lock must allow for that (each step leaves
  the guarded data consistent), and long work under it may be done twice.
* Threads that wait for each other in a cycle, which only a handler can close, get a `DeadlockError`.
* A fork waits until no other thread has one, or is in a `forks_wait`; threads without a lock wait for the fork before
  they begin. Where that would take too long or for ever, the child gets new locks for those it could never acquire.
* rlx never waits for a foreign lock while it blocks forks: a hook of another library (`logging` has one) may have acquired
  that lock for the fork already. Calls of foreign code (log handlers, listeners) are `fork_safepoint`s, for which a fork does
  not wait; neither does it wait for a thread that stands still in foreign code (a function that is traced, say).

All actions of the core at a fork are here, and `rlx_core.public` registers them; other modules register functions that
clear their state in a child by `in_child`.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import cached_property
from threading import get_ident
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload
from weakref import WeakSet

from rlx_core.errors import DeadlockError, Fact

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

LOOK_AGAIN: Final = 0.05
"""Seconds after which a waiting thread checks whether it waits for itself."""

_PATIENCE: Final = 30.0
"""Seconds that a fork waits for other threads to leave rlx."""

_FOREIGN_PATIENCE: Final = 0.5
"""Seconds that a fork waits for calls of foreign code: nearly all end in microseconds, and leave nothing half done then."""

_STANDSTILL: Final = 1.0
"""Seconds after which a thread that executes no instruction of foreign code is taken to wait for the thread that forks."""

_NATIVE_CALLERS: Final = ("rlx_", "llvmlite", "numpy", "ctypes", "importlib", "zipimport", "_frozen_importlib")
"""Name prefixes of the modules whose calls of native code and files end by themselves: a fork waits for these."""

_depths: dict[int, int] = {}
"""Thread → number of locks and sections that it is inside of; each thread changes only its entry."""

_waits: dict[int, Waited] = {}
"""Thread → the object that it waits for."""

_outside: dict[int, int] = {}
"""Thread → number of locks and sections that it left for a call of foreign code."""

_forking: dict[int, int] = {}
"""Threads that are about to fork, with counts: a signal handler may fork while its own thread does."""

_locks: WeakSet[Lock] = WeakSet()

_forgetting: list[Callable[[], object]] = []


class Waited(Protocol):
    """An object that threads wait for, and the thread that will release it, if that is known."""

    @property
    def owner(self) -> int | None: ...


class Lock:
    """A re-entrant lock, for `with` in a function that is no generator: other threads check whether the function is still
    running.

    A signal handler may raise on entry to `__exit__`, before anything is released. So a thread that waits looks now and then
    whether the function that has the lock is still among the calls of its thread, and takes the lock away if it is not. A fork
    of another thread still counts it, and waits as long as for any thread.

    Args:
        what: The guarded object, for the error.

    Raises:
        DeadlockError: The owner of the lock waits for a lock of this thread (on entering).
    """

    __slots__ = ("__weakref__", "_depth", "_frame", "_lock", "owner", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.owner: int | None = None
        self._depth = 0
        self._frame: FrameType | None = None
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self, frame: FrameType | None = None) -> None:
        """Acquire it. `frame` is of the function that has it until `__exit__`, where that is not the caller."""
        frame = frame or sys._getframe(1)
        me = get_ident()
        depth = _depths.get(me, 0)  # `_begin`, written out because locks are taken often
        _depths[me] = depth + 1
        if depth == 0 and _forking:
            _let_fork(me)
        try:
            while True:
                lock = self._lock
                if not lock.acquire(blocking=False):
                    lock = self._wait(me)
                if self._depth and not _is_called(self._frame, me):
                    self._depth = 0  # this thread left it without releasing
                if lock is self._lock:  # no calls from here on, so that no other thread can take it
                    break
                lock.release()
            if not self._depth:
                self._frame = frame
            self.owner = me
            self._depth += 1
        except BaseException:
            if not self._depth and self._lock._is_owned():  # type: ignore[attr-defined]  # as in `threading.Condition`
                self._lock.release()
            _end(me)
            raise

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if self._depth:
            self._lock.release()
        else:
            self.owner = self._frame = None
            self._lock.release()
            while self._lock._is_owned():  # type: ignore[attr-defined]  # of a block that was left without releasing
                self._lock.release()
        _end(get_ident())

    def _wait(self, me: int) -> threading.RLock:
        with waiting(self):
            while True:
                lock = self._lock
                if lock.acquire(timeout=LOOK_AGAIN):
                    return lock
                if _is_deadlock(me) and _gives_way(me):
                    raise DeadlockError(
                        f"deadlock: {self.what} is another thread's, which waits for what this thread holds",
                        Fact("asked from", "a signal handler, most likely: it interrupted what it waits for"),
                        hint="let the handler set a flag, and call when it has returned",
                    )
                self._take_away()

    def _take_away(self) -> None:
        """Release it, if the function that acquired it has ended."""
        lock, frame, owner, depth = self._lock, self._frame, self.owner, self._depth
        match = _OWNER.search(repr(lock))
        holder = int(match[1]) if match else 0
        if not holder or _is_called(frame, holder, excluded=_TAKING):
            return
        fresh = threading.RLock()
        # Without calls in between, in which other threads could run.
        if self._lock is lock and self._frame is frame and self.owner == owner and self._depth == depth:
            self._lock, self.owner, self._frame, self._depth = fresh, None, None, 0

    def renew(self) -> None:
        """In a forked child: release it, if its owner is not in this process."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock, self.owner, self._frame, self._depth = threading.RLock(), None, None, 0


_OWNER: Final = re.compile(r"owner=(\d+)")
"""Owner in the representation of Python's lock, the only source of the thread while `Lock.owner` is not set yet."""

_TAKING: Final = frozenset({Lock.__enter__.__code__, Lock.__exit__.__code__})
"""The functions that acquire and release: a thread in one of them may have a lock whose frame is not set."""


def _is_called(frame: FrameType | None, thread: int, excluded: frozenset[CodeType] = frozenset()) -> bool:
    """Return whether a function, or one with a code object in `excluded`, is on the call stack of a thread."""
    current = sys._getframe(1) if thread == get_ident() else sys._current_frames().get(thread)
    while current is not None:
        if current is frame or current.f_code in excluded:
            return True
        current = current.f_back
    return False


class _Section(ContextDecorator):
    """A section for which a fork waits; it excludes nothing else. For `with`, or as a decorator."""

    __slots__ = ()

    def __enter__(self) -> None:
        _begin(get_ident())

    def __exit__(self, *raised: object) -> None:
        _end(get_ident())


forks_wait: Final = _Section()
"""Inside, this thread does work that a fork would leave half done: it imports, or is in a library with locks of its own."""


class _Safepoint(ContextDecorator):
    """Part of a section, or of work under a lock, for which a fork does not wait. For `with`, or as a decorator."""

    __slots__ = ()

    def __enter__(self) -> None:
        me = get_ident()
        depth = _depths.pop(me, 0)
        if depth:
            _outside[me] = _outside.get(me, 0) + depth  # before the check for forking threads, as in `_begin`
            while _forking and me not in _forking and not _is_awaited(me):
                left = _outside.pop(me, 0)
                time.sleep(0.001)
                _outside[me] = left

    def __exit__(self, *raised: object) -> None:
        me = get_ident()
        depth = _outside.pop(me, 0)
        if depth:
            _depths[me] = _depths.get(me, 0) + depth
            if _forking:
                _let_fork(me)


fork_safepoint: Final = _Safepoint()
"""Inside, this thread calls foreign code, which may wait for a lock that the thread that forks has acquired.

The thread's data is then as consistent as in a signal handler, which may run at any instruction.
"""


class lazy(cached_property[T]):
    """A property that is computed on first access: `functools.cached_property` without the lock of Python 3.11.

    That lock is one for all objects of a class, and in a child forked meanwhile it is never released. Without it, two
    threads that access it at once both compute it, as from Python 3.12 on.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        assert self.attrname is not None, "it is an attribute of a class"
        value = vars(instance)[self.attrname] = self.func(instance)
        return value


def in_child(forget: Callable[[], object]) -> None:
    """Call `forget` in every child that is forked from now on."""
    _forgetting.append(forget)


def _begin(me: int) -> None:
    depth = _depths.get(me, 0)
    # Before the check for a fork, which checks in the opposite order: one of the two sees the other.
    _depths[me] = depth + 1
    if depth == 0 and _forking:
        _let_fork(me)


def _let_fork(me: int) -> None:
    """Wait for a thread that is about to fork before this thread begins anything, unless that fork waits for this thread."""
    while _forking and me not in _forking and not _is_awaited(me):
        depth = _depths.pop(me, 1)
        time.sleep(0.001)
        _depths[me] = depth


def _end(me: int) -> None:
    depth = _depths.get(me, 1) - 1
    if depth:
        _depths[me] = depth
    else:
        _depths.pop(me, None)


def _awaited_by(thread: int) -> Iterator[int]:
    """Yield the owner of the object that a thread waits for, then the owner of the object that that one waits for, etc."""
    seen = {thread}
    while (waited := _waits.get(thread)) is not None:
        owner = waited.owner
        if owner is None or owner in seen:
            return
        yield owner
        seen.add(owner)
        thread = owner


@contextmanager
def waiting(what: Waited) -> Iterator[None]:
    """Inside, this thread waits for `what`, which other threads can see."""
    me = get_ident()
    before = _waits.get(me)  # a handler may run while its thread waits
    _waits[me] = what
    try:
        yield
    finally:
        if before is None:
            _waits.pop(me, None)
        else:
            _waits[me] = before


def waits_for_itself() -> bool:
    """Return whether this thread waits, in the end, for itself: in a signal handler, or through a thread that waits for it."""
    return bool(_circle(get_ident()))


def _circle(me: int) -> list[Waited]:
    """Return the objects in the cycle of waits that begins and ends with a thread; empty if it is in no cycle."""
    seen: set[int] = set()
    links: list[Waited] = []
    thread: int | None = me
    while thread is not None and thread not in seen:
        seen.add(thread)
        waited = _waits.get(thread)
        if waited is None:
            return []
        links.append(waited)
        thread = waited.owner
        if thread == me:
            return links
    return []


def _is_deadlock(me: int) -> bool:
    """Return whether a thread waits for itself through locks only: a wait for any other object can be abandoned by the waiter."""
    links = _circle(me)
    return bool(links) and all(isinstance(each, Lock) for each in links)


def _gives_way(me: int) -> bool:
    """Return whether a thread in a cycle gets the error: handlers run in the main thread, so that one closed the cycle."""
    main = threading.main_thread().ident
    return me == main or main is None or not _circle(main)


def _is_awaited(me: int) -> bool:
    """Return whether a thread that is inside of a section waits for this one."""
    return any(me in _awaited_by(thread) for thread in list(_depths))


def _is_inside(thread: int, forker: int) -> bool:
    """Return whether a fork has to wait for a thread, which it must not if that waits for the forking thread."""
    if thread == forker or thread in _forking:
        return False
    if any(waits == forker or waits in _outside for waits in _awaited_by(thread)):
        return False
    return thread in _depths


class _Standstill:
    """Threads that executed nothing between two checks, `_STANDSTILL` seconds apart, in foreign code."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def includes(self, thread: int, frame: FrameType | None, now: float) -> bool:
        """Return whether the thread stands still, given its innermost frame."""
        name = "rlx_" if frame is None else str(frame.f_globals.get("__name__", ""))
        if frame is None or name.startswith(_NATIVE_CALLERS):
            self._since.pop(thread, None)
            return False
        position = id(frame), frame.f_lasti
        before, since = self._since.setdefault(thread, (position, now))
        if before != position:
            self._since[thread] = position, now
            return False
        return now - since > _STANDSTILL


def before_fork() -> None:
    """Wait until no other thread is inside of work that a child would inherit half done."""
    me = get_ident()
    _forking[me] = _forking.get(me, 0) + 1
    standstill, begin = _Standstill(), time.monotonic()
    while True:
        now = time.monotonic()
        awaited = [thread for thread in list(_depths) if _is_inside(thread, me)]
        if not awaited and (now > begin + _FOREIGN_PATIENCE or not any(thread != me for thread in list(_outside))):
            return
        frames = sys._current_frames() if now > begin + LOOK_AGAIN else {}
        if awaited and frames and all(standstill.includes(thread, frames.get(thread), now) for thread in awaited):
            return
        if now > begin + _PATIENCE:
            warnings.warn(
                f"fork: another thread has been compiling for {_PATIENCE:.0f} seconds; in the child, what it was in the "
                "middle of (an import, say) stays half done",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        del frames  # they refer to everything that the threads' functions refer to
        time.sleep(0.001)


def after_fork() -> None:
    """Let the other threads continue."""
    me = get_ident()
    left = _forking.get(me, 1) - 1
    if left:
        _forking[me] = left
    else:
        _forking.pop(me, None)


def after_fork_in_child() -> None:
    """Forget the threads that are not in this process, and their locks."""
    me = get_ident()
    for table in (_depths, _waits, _outside, _forking):
        for thread in [each for each in table if each != me]:
            del table[thread]
    for lock in list(_locks):
        lock.renew()
    for forget in _forgetting:
        forget()
    after_fork()
