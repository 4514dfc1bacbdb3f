"""The steps of a validation as data, in the order in which one rests on another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.ops import standard_ops
from rlx_core.system.records import frozen

MAX_SECONDS: Final = 600.0
"""The time of all steps together."""

PROBES: Final = "rlx_core.cli.validating.probes"


@frozen
class ValidationStep:
    """One step.

    Args:
        name: A word, or a family and a word: `kernels/reduction`.
        seconds: The time after which its process is ended.
        run: The module and the function that yields its rows, given a `Bench` and the argument.
        argument: Which of several; by default the word after the slash.
    """

    name: str
    seconds: float
    run: str

    @property
    def argument(self) -> str:
        return self.name.partition("/")[2]


def every_step() -> tuple[ValidationStep, ...]:
    """Every step; families of kernels are the categories of the standard ops."""
    families = sorted({op.category for op in standard_ops()})
    return (
        ValidationStep("facts", 30, f"{PROBES}.basics:machine"),
        ValidationStep("first-kernel", 60, f"{PROBES}.basics:first_kernel"),
        ValidationStep("copies", 60, f"{PROBES}.basics:copies"),
        *(ValidationStep(f"kernels/{each}", 90, f"{PROBES}.families:family") for each in families),
        ValidationStep("programs", 90, f"{PROBES}.programs:programs"),
        ValidationStep("large", 120, f"{PROBES}.large:large"),
        ValidationStep("sanitizer", 60, f"{PROBES}.basics:sanitizer"),
        *(
            ValidationStep(f"host/{each}", 45, f"{PROBES}.host:{each}")
            for each in ("replay", "pointers", "donation", "threads", "fork", "faults", "memory", "dlpack", "devices")
        ),
        ValidationStep("repeat", 60, f"{PROBES}.programs:repeat"),
        ValidationStep("options", 90, f"{PROBES}.options:options"),
        ValidationStep("speed", 200, f"{PROBES}.speed:speed"),
    )


def chosen(names: Iterable[str]) -> tuple[ValidationStep, ...]:
    """Return the steps of these names or families; all of them if there are no names.

    Raises:
        ConfigError: There is no such step.
    """
    steps, names = every_step(), tuple(names)
    known = [step.name for step in steps]
    for name in names:
        if not any(matches(step, name) for step in steps):
            raise ConfigError(
                f"--step: there is no step {name}", Fact("steps", ", ".join(known)), hint=nearest(name, known)
            )
    return tuple(step for step in steps if not names or any(matches(step, name) for name in names))


def matches(step: ValidationStep, name: str) -> bool:
    return name in (step.name, step.name.partition("/")[0])
