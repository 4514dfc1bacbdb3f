"""Recorded launches: submitted as one unit as long as all addresses are unchanged.

A run may bring other memory, and outputs on the device are new in every run; but a pool gives the same few places out again and
again. So recordings are cached by the addresses of inputs and outputs, and made when the same addresses occur a second time:
a program that runs once, or never twice on the same memory, records nothing. Places are addresses, so nothing keeps memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import field

from rlx_core.device.driver import Driver
from rlx_core.system.records import define

MAX_RECORDINGS: Final = 16
"""Maximum number of address combinations that are cached; the oldest are evicted first."""


@define(eq=False)
class Recordings:
    """The recordings of consecutive launches of one frame.

    Attributes:
        driver: The device.
        known: Addresses → the recording; `None` where they were met once.
    """

    driver: Driver
    known: dict[tuple[int, ...], Sequence[Any] | None] = field(factory=dict)

    def of(self, places: tuple[int, ...], launches: Sequence[Any]) -> Sequence[Any]:
        """Return the launches to submit for these addresses of inputs and outputs: a recording, or the launches themselves."""
        if places not in self.known:
            if len(self.known) == MAX_RECORDINGS:
                del self.known[next(iter(self.known))]
            self.known[places] = None
            return launches
        calls = self.known[places]
        if calls is None:
            recording = self.driver.record(launches)
            calls = self.known[places] = launches if recording is None else [recording]
        return calls
