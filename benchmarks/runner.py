"""A run: cases one after the other, each with rlx and every peer that is installed, checked against one another and then timed.

Import this only after `measure.limit_threads`: thread pools are made when their libraries are imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from rich.console import Console

from benchmarks.case import Case, Program
from benchmarks.cases import chosen
from benchmarks.machine import Limit, description, limit
from benchmarks.measure import disagreement, measure, verify_threads
from benchmarks.peers import Peer, installed
from benchmarks.place import BenchmarkPlace, place_of
from benchmarks.report import CaseOutcome, bars, shown, table, write_json
from rlx_core.errors import RlxError

ONE = "rlx, one thread"
PROFILED_RUNS = 10


@frozen
class Settings:
    """Options of a run.

    Attributes:
        cases: Names, or what names begin with; the usual ones if empty.
        peers: Whether peers are timed too.
        threads: For everybody.
        seconds: For each case; at least `least` rounds are made whatever that takes.
        out: Where the picture goes.
        json_file: Where the numbers go.
        profiles: Whether each case's steps are timed and listed, in separate runs.
        target: Where rlx's programs run; the configured target if `None`.
    """

    cases: tuple[str, ...]
    peers: bool
    threads: int
    seconds: float
    least: int
    out: Path
    json_file: Path | None = None
    profiles: bool = False
    target: str | None = None


def run(settings: Settings, console: Console) -> list[CaseOutcome]:
    """Run all selected cases and print each as it is measured.

    Raises:
        UnknownNameError: No case has such a name.
    """
    cases, place = chosen(settings.cases), place_of(settings.target)
    peers = peers_of(settings, console)
    machine(console, settings.threads)
    outcomes: list[CaseOutcome] = []
    try:
        for case in cases:
            with console.status(f"{case.name}: compiling and timing"):
                outcome = one(case, peers, settings, place)
            outcomes.append(outcome)
            console.print(line(outcome), highlight=False)
            if settings.profiles:
                console.print(steps(case, place), highlight=False, markup=False, soft_wrap=True)
            for reason in outcome.left_out:
                console.print(f"  left out: {reason}", style="yellow", highlight=False)
    except KeyboardInterrupt:
        console.print(f"stopped: {len(outcomes)} of {len(cases)} cases were timed", style="yellow", highlight=False)
        raise
    finally:
        if outcomes:
            publish(outcomes, settings, console)
    return outcomes


def steps(case: Case, place: BenchmarkPlace) -> str:
    """Where the time of a repetition goes, step by step, each at its fastest; nothing is timed in parallel."""
    program = place.made(case.rlx, case.data())
    program.run()
    with place.profiled() as profile:
        for _ in range(PROFILED_RUNS):
            program.run()
    return profile.table() if profile.times else "  no steps: it does not run in this process"


def line(outcome: CaseOutcome) -> str:
    """Return the line that is printed as soon as a case is done."""
    ratio = "" if outcome.ratio is None else f", {outcome.ratio:.2f} of {outcome.best_peer}"
    return f"{outcome.case.name}: {shown(outcome.rlx.median)} ms{ratio}"


def publish(outcomes: Sequence[CaseOutcome], settings: Settings, console: Console) -> None:
    """Write the table, the picture and the numbers of the timed cases."""
    console.print(table(outcomes))
    settings.out.mkdir(parents=True, exist_ok=True)
    picture = settings.out / "bench.svg"
    picture.write_text(bars(outcomes))
    console.print(f"picture: {picture}")
    if settings.json_file is not None:
        write_json(outcomes, settings.json_file)
        console.print(f"numbers: {settings.json_file}")


def peers_of(settings: Settings, console: Console) -> list[Peer]:
    """Return the installed peers; missing ones are reported once."""
    if not settings.peers:
        return []
    peers: list[Peer] = []
    for peer in installed():
        if isinstance(peer, Peer):
            peers.append(peer)
        else:
            console.print(peer, style="yellow", highlight=False)
    console.print("peers: " + ", ".join(f"{p.package} {p.version}" for p in peers), highlight=False)
    return peers


def machine(console: Console, threads: int) -> None:
    """Print the limits of the machine."""
    peaks = [(n, limit("peak", n)) for n in sorted({1, threads})]
    lines = [
        f"peak of {n} {'core' if n == 1 else 'cores'} {measured.rate:.0f} {measured.unit}"
        for n, measured in peaks
        if measured
    ]
    copied = limit("copy", threads)
    assert copied is not None, "NumPy copies everywhere"
    lines = [*(lines or ["no llvmlite, so no peak is measured"]), f"copy {copied.rate:.1f} {copied.unit}"]
    console.print(", ".join(f"{name} {value}" for name, value in description().items()), highlight=False)
    console.print(f"{threads} {'thread' if threads == 1 else 'threads'}; {', '.join(lines)}", highlight=False)


def one(case: Case, peers: Sequence[Peer], settings: Settings, place: BenchmarkPlace) -> CaseOutcome:
    """One case: results compared first, then everybody timed in turn."""
    data = case.data()
    ours = place.made(case.rlx, data)
    expected = ours.results()
    programs: dict[str, Program] = {"rlx": ours}
    left_out: list[str] = []
    for peer in peers:
        for name, program in made_by(peer, case, data, settings.threads, left_out).items():
            reason = verify_threads(name, program, settings.threads) or checked(name, program, expected, case)
            if reason is None:
                programs[name] = program
            else:
                left_out.append(reason)
    is_here = place.device is None  # the limits of the processor and of one of its threads mean nothing for a device
    limits = limits_of(case, settings.threads) if is_here else {}
    single = {ONE: case.single(data)} if case.single is not None and settings.threads > 1 and is_here else {}
    yardsticks = {f"limit {threads}": bound.program for threads, bound in limits.items()}
    timings = measure(
        {**programs, **single, **yardsticks}, settings.seconds, is_repeatable=case.is_repeatable, least=settings.least
    )
    rates = {threads: bound.amount / timings.pop(f"limit {threads}").minimum * 1e3 for threads, bound in limits.items()}
    alone = timings.pop(ONE, None)
    return CaseOutcome(case, timings.pop("rlx"), timings, tuple(left_out), rates, settings.threads, alone)


def limits_of(case: Case, threads: int) -> dict[int, Limit]:
    """The limits of a case by number of threads."""
    if case.limit is None:
        return {}
    counts = {threads, 1} if case.single is not None else {threads}
    return {n: value for n in sorted(counts) if (value := limit(case.limit, n)) is not None}


def made_by(peer: Peer, case: Case, data: object, threads: int, left_out: list[str]) -> dict[str, Program]:
    """A peer's programs; a peer that fails to make them is left out with its own words."""
    try:
        return dict(peer.make(case.kind, data, threads))  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001  a peer may fail in any way, and the others are timed nevertheless
        left_out.append(f"{peer.package} has no program: {type(error).__name__}: {first_line(error)}")
        return {}


def checked(name: str, program: Program, expected: Sequence[object], case: Case) -> str | None:
    """Why a program is not compared: it fails, or it computes something else."""
    try:
        reason = disagreement(expected, program.results(), case)
    except RlxError as error:
        return f"{name} fails: {error.message}"
    except Exception as error:  # noqa: BLE001  as above
        return f"{name} fails: {type(error).__name__}: {first_line(error)}"
    return None if reason is None else f"{name} disagrees: {reason}"


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no words"])[0][:160]
