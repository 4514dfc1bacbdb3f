"""Streams, events, graphs and devices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cupy.cuda import world
from cupy.cuda.world import CUDARuntimeError

_handles = iter(range(1 << 20, 1 << 30, 16))
_streams: dict[int, Any] = {}


class _Current(threading.local):
    stream: Any = None
    device = 0
    has_context = False


current = _Current()


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.stream: Any = None
        self.count = 0

    def record(self, stream: Any = None) -> None:
        self.stream = stream or get_current_stream()
        assert self.stream.graph is None, "an event that is recorded while a stream is captured"
        self.count = self.stream.asked

    @property
    def done(self) -> bool:
        return self.stream is None or self.stream.finished >= self.count

    def synchronize(self) -> None:
        self.stream.run_to(self.count)


class Stream:
    """A stream runs nothing before somebody waits for it."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else 2 if ptds else next(_handles)
        self.waiting: list[Callable[[], None]] = []
        self.asked = self.finished = 0
        self.graph: list[Callable[[], None]] | None = None
        self._before: list[Any] = []
        _streams[self.ptr] = self

    def ask(self, work: Callable[[], None]) -> None:
        world.expect_alive()
        if self.graph is not None:
            self.graph.append(work)
            return
        with world.lock:
            self.waiting.append(work)
            self.asked += 1

    def run_to(self, count: int) -> None:
        with world.lock:
            while self.finished < count:
                work = self.waiting.pop(0)
                self.finished += 1
                work()

    def record(self, event: Event | None = None) -> Event:
        made = event or Event()
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        stream, count = event.stream, event.count
        if stream is not self:
            self.ask(lambda: stream.run_to(count))

    def synchronize(self) -> None:
        world.expect_alive()
        assert self.graph is None, "a stream is waited for while it is captured"
        self.run_to(self.asked)
        world.expect_alive()

    def begin_capture(self, mode: int | None = None) -> None:
        assert not world.is_hip, "CuPy captures no streams of HIP's"
        assert self.ptr != 0, "the default stream cannot be captured"
        assert self.graph is None, "a stream is captured once at a time"
        self.graph = []

    def end_capture(self) -> Graph:
        made, self.graph = self.graph, None
        assert made is not None
        world.records.append(("capture", len(made)))
        return Graph(made)

    def __enter__(self) -> Stream:
        self._before.append(current.stream)
        current.stream = self
        return self

    def __exit__(self, *raised: object) -> None:
        current.stream = self._before.pop()


class Graph:
    def __init__(self, works: list[Callable[[], None]]) -> None:
        self.works = works

    def launch(self, stream: Stream | None = None) -> None:
        world.records.append(("graph", len(self.works)))
        for work in self.works:
            (stream or get_current_stream()).ask(work)


Stream.null = Stream(null=True)  # type: ignore[attr-defined]


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.stream = Stream(ptds=True)


_per_thread = _PerThread()


def per_thread() -> Stream:
    """CuPy's `Stream.ptds`: one handle, and a stream for each thread."""
    return _per_thread.stream


def stream_of(handle: int) -> Stream:
    return Stream.null if handle in (0, 1) else per_thread() if handle == 2 else _streams[handle]  # type: ignore[attr-defined]


def get_current_stream(device_id: int = -1) -> Stream:
    return current.stream or Stream.null  # type: ignore[attr-defined]


def get_elapsed_time(start: Event, end: Event) -> float:
    assert start.done
    assert end.done
    return 1e-3 * (end.count - start.count)


class Device:
    def __init__(self, device: int | None = None) -> None:
        self.id = current.device if device is None else int(device)
        self._before = threading.local()

    def __enter__(self) -> Device:
        stack = self._before.__dict__.setdefault("stack", [])
        stack.append(current.device)
        current.device = self.id
        return self

    def __exit__(self, *raised: object) -> None:
        current.device = self._before.stack.pop()


from cupy.cuda import driver, function, memory, runtime  # noqa: E402  they need the streams
from cupy.cuda.memory import alloc, alloc_pinned_memory  # noqa: E402

__all__ = ["CUDARuntimeError", "Device", "Event", "Graph", "Stream", "alloc", "alloc_pinned_memory", "driver"]
__all__ += ["function", "get_current_stream", "get_elapsed_time", "memory", "runtime"]
