"""Requirements of a package's device code, and the check whether a device meets them."""

from __future__ import annotations

from functools import partial
from typing import Final

from rlx_core.device.driver import DeviceFacts
from rlx_core.ir.forms import RecordForms, plain_form
from rlx_core.run.packaged.reading import number
from rlx_core.system.records import frozen


@frozen
class Wanted:
    """The requirements of device code.

    Attributes:
        language: The level that its sources are at.
        name, driver: The device that its binaries were compiled on, and its driver; others compile the sources.
        alignment: Bytes that its places are multiples of.
        group_size: The most threads of its groups.
        shared_nbytes: Memory that threads of a group may share.
        subgroup: Threads that run in step, where schedules were made for a number of them.
        features: Features of the device's interface that kernels may use.
        dtypes: The dtypes of its values.
    """

    language: str
    name: str
    driver: str
    alignment: int
    group_size: int
    shared_nbytes: int
    subgroup: int | None
    features: tuple[str, ...]
    dtypes: tuple[str, ...]

    def is_of(self, facts: DeviceFacts) -> bool:
        """Return whether binaries were made on such a device."""
        return (self.name, self.driver) == (facts.name, facts.driver)

    def reason_against(self, facts: DeviceFacts, language: str) -> str | None:
        """Return the reason why a device does not run the code, as the end of a sentence about it; `None` if it does."""
        if language != self.language:
            return f"is {self.language}, and {facts.name} takes {language}"
        if self.alignment % facts.alignment:
            return f"lies at multiples of {self.alignment} bytes, and {facts.name} needs {facts.alignment}"
        if self.group_size > facts.group_size:
            return f"has groups of {self.group_size} threads, and {facts.name} takes {facts.group_size}"
        if self.shared_nbytes > facts.shared_nbytes:
            return f"may share {self.shared_nbytes} bytes in a group, and {facts.name} has {facts.shared_nbytes}"
        if self.subgroup not in (None, facts.subgroup):
            return (
                f"counts on {self.subgroup} threads in step, and {facts.name} has {facts.subgroup or 'no such number'}"
            )
        missing = sorted({*self.features} - facts.features)
        if missing:
            return f"may use {', '.join(missing)}, which {facts.name} has not"
        lacking = sorted({*self.dtypes} & facts.unsupported)
        return f"computes with {', '.join(lacking)}, which {facts.name} lacks" if lacking else None


WANTED_FORMS: Final = RecordForms({int: plain_form(partial(number, low=1))})
"""The form of requirements in a package."""
