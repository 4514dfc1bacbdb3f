"""Launches that were recorded: submitted as one thing as long as everything lies where it lay.

A run may bring other memory, and outputs on the device are new in every run; but a pool gives the same few places out again and
again. So what was recorded is kept under the places of inputs and outputs, and recorded when the same places come a second time:
a program that runs once, or never twice on the same memory, records nothing. Places are addresses, so nothing keeps memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import field

from rlx_core.device.driver import Driver
from rlx_core.system.records import define

__all__ = ["MOST", "Recordings"]

MOST: Final = 16
"""Maximum number of address combinations that are cached; the oldest are evicted first."""


@define(eq=False)
class Recordings:
    """What launches of one frame that follow one another were recorded as.

    Attributes:
        driver: The device.
        known: Addresses → the recording; `None` where they were met once.
    """

    driver: Driver
    known: dict[tuple[int, ...], Sequence[Any] | None] = field(factory=dict)

    def of(self, places: tuple[int, ...], launches: Sequence[Any]) -> Sequence[Any]:
        """What to submit where inputs and outputs lie at these places: a recording, or the launches themselves."""
        if places not in self.known:
            if len(self.known) == MOST:
                del self.known[next(iter(self.known))]
            self.known[places] = None
            return launches
        found = self.known[places]
        if found is None:
            made = self.driver.record(launches)
            found = self.known[places] = launches if made is None else [made]
        return found
