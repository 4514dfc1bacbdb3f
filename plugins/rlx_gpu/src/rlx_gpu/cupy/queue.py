"""The queue of a device: one order for all of its work, on whatever CuPy's current stream is.

Work is submitted to the caller's current stream, so that it is ordered with CuPy's own work before and after. Where
another thread, or the same one later, works on another stream, that stream first waits for the previous one: to the caller,
the streams are one queue.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.system.locks import Lock
from rlx_gpu.cupy.failures import driver_error

PER_THREAD: Final = 2
"""The handle of the per-thread default stream: one number for as many streams as threads."""


class _Thread(threading.local):
    """State of a thread: whether it has a context, without which driver calls fail."""

    has_context = False


class Queue:
    """Entered with `with`: makes the device and its context current and returns the stream to submit to; one thread at a time.

    The platform's errors leave it as rlx's.

    Args:
        cupy: The module.
        place: The device, for errors.
        number: The device's, as CuPy counts.
    """

    def __init__(self, cupy: Any, place: str, number: int) -> None:
        self.place = place
        self.cuda = cupy.cuda
        self.device = cupy.cuda.Device(number)
        self.stream: Any = None
        """The stream used last."""
        self._event: Any = None  # after the last work, where another thread cannot record one on the stream
        self._lock = Lock(f"the queue of {place}")
        self._thread = _Thread()

    def __enter__(self) -> Any:
        self._lock.__enter__(sys._getframe(1))
        try:
            self.device.__enter__()
            try:
                return self._current()
            except BaseException:
                self.device.__exit__(None, None, None)
                raise
        except BaseException as error:
            self._lock.__exit__()
            self.expect(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and self.stream.ptr == PER_THREAD:
                self._event = self.stream.record()
        finally:
            self.device.__exit__(None, None, None)
            self._lock.__exit__()
        if error is not None:
            self.expect(error)

    def _current(self) -> Any:
        """The current stream, which waits for the last one if that was another."""
        if not self._thread.has_context:
            self.cuda.runtime.memGetInfo()  # any call of the runtime makes a context; the driver's own calls do not
            self._thread.has_context = True
        stream = self.cuda.get_current_stream()
        last = self.stream
        if last is not None and (stream.ptr != last.ptr or self._event is not None):
            stream.wait_event(self._event or last.record())
            self._event = None
        self.stream = stream
        return stream

    def expect(self, error: BaseException) -> None:
        """Raise the platform's errors as rlx's; other errors are left to the caller."""
        cuda = self.cuda
        if isinstance(error, cuda.memory.OutOfMemoryError):
            raise OutOfMemoryError(f"{self.place}: the device has no memory left", Fact("driver", error)) from None
        if isinstance(error, cuda.runtime.CUDARuntimeError | cuda.driver.CUDADriverError):
            typed = driver_error(self.place, error.status, error)
            for note in getattr(error, "__notes__", ()):
                typed.add_note(note)
            raise typed from None
