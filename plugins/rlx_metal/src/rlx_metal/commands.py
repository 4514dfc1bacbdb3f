"""The commands of a GPU in submission order: one open command buffer, and the committed ones.

A command buffer begins with the copies before a program and ends with the launches of the program, so each program is one buffer.
It is committed once, by the caller that removes it from `_open`, and not modified afterwards. Encoders execute commands serially.
"""

from __future__ import annotations

from typing import Any, Literal

import Metal
import objc
from attrs import define, field

from rlx_core.errors import DeviceLostError, Fact, OutOfMemoryError

Kind = Literal["compute", "blit"]


@define(eq=False)
class Commands:
    """The commands of one device. The caller must have locked the device.

    Attributes:
        place: The device's name, for errors.
        queue: The `MTLCommandQueue`.
    """

    place: str
    queue: Any
    _open: Any = field(default=None, init=False)
    _encoder: Any = field(default=None, init=False)
    _kind: Kind | None = field(default=None, init=False)
    _committed: list[Any] = field(factory=list, init=False)

    def compute(self) -> Any:
        """Return the encoder for launches."""
        return self._encoding("compute")

    def blit(self) -> Any:
        """Return the encoder for copies."""
        return self._encoding("blit")

    @property
    def is_idle(self) -> bool:
        """True if the GPU has completed all commands."""
        return self._open is None and all(_is_done(each) or _has_failed(each) for each in self._committed)

    def commit(self) -> Any:
        """Commit the open command buffer and return it; `None` if there is no open buffer."""
        self._end_encoding()
        commands, self._open = self._open, None
        if commands is not None:
            commands.commit()
            self._committed = [each for each in self._committed if not _is_done(each)] + [commands]
        return commands

    def wait(self) -> None:
        """Commit the open command buffer and wait for all commands.

        Raises:
            DeviceLostError, OutOfMemoryError: The GPU reported an error for a command buffer.
        """
        self.commit()
        committed, self._committed = self._committed, []
        if committed:
            committed[-1].waitUntilCompleted()  # a queue executes its command buffers in order
        for each in committed:
            if _has_failed(each):
                self._raise(each.error())

    def _encoding(self, kind: Kind) -> Any:
        if self._kind != kind:
            self._end_encoding()
            with objc.autorelease_pool():
                if self._open is None:
                    self._open = self.queue.commandBuffer()
                opened = self._open
                self._encoder = opened.computeCommandEncoder() if kind == "compute" else opened.blitCommandEncoder()
            self._kind = kind
        return self._encoder

    def _end_encoding(self) -> None:
        if self._encoder is not None:
            self._encoder.endEncoding()
        self._encoder = self._kind = None

    def _raise(self, error: Any) -> None:
        fact = Fact("driver", error.localizedDescription())
        if error.code() == Metal.MTLCommandBufferErrorOutOfMemory:
            raise OutOfMemoryError(f"{self.place}: the device has no memory left", fact)
        raise DeviceLostError(f"{self.place}: the device gave up what it was asked for", fact)


def _is_done(commands: Any) -> bool:
    return commands.status() == Metal.MTLCommandBufferStatusCompleted


def _has_failed(commands: Any) -> bool:
    """Return whether a command buffer ended with an error, which `wait` raises."""
    return commands.status() == Metal.MTLCommandBufferStatusError
