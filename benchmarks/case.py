"""Benchmark cases with their data, and the program of a system that runs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

Data = Mapping[str, Any]
"""The arrays and sizes of a case, by name. Programs copy what they change."""


@frozen(eq=False)
class Program:
    """A case as one system runs it.

    Attributes:
        run: One repetition, finished when it returns.
        results: The results of a first repetition on fresh data, as arrays, in the order in which all programs give them.
        threads: Number of threads that the system reports; `None` if it cannot be asked and follows the process's
            affinity, which the run sets.
        clock: Seconds of one repetition, where another process runs it and takes the time; `run` is then never called.
    """

    run: Callable[[], object]
    results: Callable[[], Sequence[Any]]
    threads: int | None = None
    clock: Callable[[], float] | None = None


@frozen(eq=False)
class Case:
    """One line of the table.

    Attributes:
        name: As printed and as written to JSON.
        kind: Which program of a peer it is timed against ("minilm", "train", ...).
        data: Makes the data; called once.
        rlx: Makes rlx's program.
        work: What one repetition amounts to, as (amount, unit a second), where there is a natural measure.
        rtol, atol: How closely a peer's results have to agree, with the reason in a comment where they are set.
        is_repeatable: Whether a repetition is warmed and repeated at will; a first call is neither.
        limit: What no program can be faster than: `peak` of multiply-adds, or `copy` of memory; `work` is in its unit.
        single: rlx's program on one thread, where that is worth a line in addition to the one on all.
        aim: The part of the best peer's time that rlx should take at most.
    """

    name: str
    kind: str
    data: Callable[[], Data]
    rlx: Callable[[Data], Program]
    work: tuple[float, str] | None = None
    rtol: float = 1e-4
    atol: float = 1e-5
    is_repeatable: bool = True
    limit: Literal["peak", "copy"] | None = None
    single: Callable[[Data], Program] | None = None
    aim: float | None = None
