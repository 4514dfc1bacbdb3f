"""What the GPU is asked for, in order: one command buffer that is being written, and those that it has.

A command buffer ends with the launches of a program, and begins with the copies that came before them; so a program is one. It
is committed once, by whoever takes it from here, and never touched again. Inside it an encoder runs one thing after the other.
"""

from __future__ import annotations

from typing import Any, Literal

import Metal
import objc
from attrs import define, field

from rlx_core.errors import DeviceLostError, Fact, OutOfMemoryError

__all__ = ["Commands"]

Kind = Literal["compute", "blit"]


@define(eq=False)
class Commands:
    """The commands of one device; whoever calls holds its lock.

    Attributes:
        place: The device's name, for errors.
        queue: Metal's own.
    """

    place: str
    queue: Any
    _open: Any = field(default=None, init=False)
    _encoder: Any = field(default=None, init=False)
    _kind: Kind | None = field(default=None, init=False)
    _committed: list[Any] = field(factory=list, init=False)

    def compute(self) -> Any:
        """The encoder of launches."""
        return self._encoding("compute")

    def blit(self) -> Any:
        """The encoder of copies."""
        return self._encoding("blit")

    @property
    def is_idle(self) -> bool:
        """Whether the GPU has done everything that it was asked for."""
        return self._open is None and all(_is_done(each) or _has_failed(each) for each in self._committed)

    def commit(self) -> Any:
        """Have the GPU begin with what is written; the command buffer, or `None` if there is none."""
        self._end_encoding()
        commands, self._open = self._open, None
        if commands is not None:
            commands.commit()
            self._committed = [each for each in self._committed if not _is_done(each)] + [commands]
        return commands

    def wait(self) -> None:
        """Have everything done.

        Raises:
            DeviceLostError, OutOfMemoryError: What the GPU said of some of it.
        """
        self.commit()
        given, self._committed = self._committed, []
        if given:
            given[-1].waitUntilCompleted()  # a queue does one after the other
        for each in given:
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
        said = Fact("driver", error.localizedDescription())
        if error.code() == Metal.MTLCommandBufferErrorOutOfMemory:
            raise OutOfMemoryError(f"{self.place}: the device has no memory left", said)
        raise DeviceLostError(f"{self.place}: the device gave up what it was asked for", said)


def _is_done(commands: Any) -> bool:
    return commands.status() == Metal.MTLCommandBufferStatusCompleted


def _has_failed(commands: Any) -> bool:
    """Whether it is over, with an error that whoever waits is told."""
    return commands.status() == Metal.MTLCommandBufferStatusError
