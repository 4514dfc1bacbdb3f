"""Results of a run: a table for people, bars for a page, JSON for programs."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.case import Case
from benchmarks.machine import description
from benchmarks.measure import Timing


@frozen(eq=False)
class CaseOutcome:
    """One case, measured.

    Attributes:
        peers: By the name that is shown; only those whose results agree with rlx's.
        left_out: Why others are not among them.
        limits: Rates of the machine in the same rounds, by number of threads, in the unit of the case's work.
        threads: How many rlx and the peers had.
        single: rlx on one thread.
    """

    case: Case
    rlx: Timing
    peers: Mapping[str, Timing] = field(factory=dict)
    left_out: tuple[str, ...] = ()
    limits: Mapping[int, float] = field(factory=dict)
    threads: int = 1
    single: Timing | None = None

    @property
    def best_peer(self) -> str | None:
        """The peer with the smallest median."""
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)

    @property
    def ratio(self) -> float | None:
        """rlx's median over the best peer's: below 1 is faster."""
        best = self.best_peer
        return None if best is None else self.rlx.median / self.peers[best].median

    def rate(self, timing: Timing) -> str:
        """The rate of a median, where the case has a measure."""
        if self.case.work is None:
            return ""
        amount, unit = self.case.work
        return f"{amount / timing.median * 1e3:.3g} {unit}"

    def share(self, timing: Timing, threads: int) -> str:
        """The part of the limit of so many threads that is reached: `93 % of peak`.

        Of minima, because a program and its limit are disturbed differently by other processes.
        """
        if self.case.work is None or threads not in self.limits:
            return ""
        return f"{100e3 * self.case.work[0] / timing.minimum / self.limits[threads]:.0f} % of {self.case.limit}"


def rows_of(outcomes: Sequence[CaseOutcome]) -> list[dict[str, Any]]:
    """The outcomes as plain data, a row a case, each with the machine that it was measured on."""
    return [
        {
            "case": o.case.name,
            "rlx_ms": o.rlx.median,
            "peers": {name: t.median for name, t in o.peers.items()},
            "ratio_to_best_peer": o.ratio,
            **description(),
        }
        for o in outcomes
    ]


def write_json(outcomes: Sequence[CaseOutcome], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows_of(outcomes), indent=1) + "\n")


def table(outcomes: Sequence[CaseOutcome]) -> Table:
    """A block a case: every program with its median, its minimum, and rlx's part of its median."""
    result = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    result.add_column("milliseconds", overflow="fold")
    for column in ("median", "minimum", "rlx / peer", "cores"):
        result.add_column(column, justify="right", no_wrap=True)
    result.add_column("rate", overflow="fold")
    for outcome in outcomes:
        case = outcome.case
        aim = "" if case.aim is None else f"aim {case.aim:.2f}"
        result.add_row(Text(case.name, "bold"), "", "", Text(aim, "dim"), "", "")
        result.add_row(Text("  rlx", "bold"), *cells(outcome, outcome.rlx, outcome.threads))
        if outcome.single is not None:
            result.add_row(Text("  rlx, 1 thread", "bold"), *cells(outcome, outcome.single, 1))
        for name, timing in sorted(outcome.peers.items(), key=lambda item: item[1].median):
            ratio = outcome.rlx.median / timing.median
            style = "" if name != outcome.best_peer else "green" if ratio <= (case.aim or 1.0) else "red"
            result.add_row(f"  {name}", *cells(outcome, timing, outcome.threads, Text(f"{ratio:.2f}", style)))
        result.add_section()
    result.caption = (
        "rlx / peer below 1 is faster; cores is processor time over wall time; the part of peak or copy is of minima"
    )
    result.caption_justify = "left"
    return result


def cells(outcome: CaseOutcome, timing: Timing, threads: int, ratio: Text | str = "") -> tuple[Text | str, ...]:
    """The columns of one program."""
    rate = ", ".join(filter(None, (outcome.rate(timing), outcome.share(timing, threads))))
    return shown(timing.median), shown(timing.minimum), ratio, used(timing), rate


def shown(ms: float) -> str:
    return f"{ms:.4f}" if ms < 0.1 else f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def used(timing: Timing) -> str:
    return f"{timing.parallelism:.1f}" if timing.parallelism else ""


# --------------------------------------------------------------------------------------------- bars

ROW, LEFT, WIDE, RIGHT = 18, 250, 460, 110  # pixels


def bars(outcomes: Sequence[CaseOutcome]) -> str:
    """A bar chart as SVG: for each case, every program's median as a part of the slowest one's."""
    lines: list[str] = []
    y = 30
    for outcome in outcomes:
        timings = {"rlx": outcome.rlx, **dict(sorted(outcome.peers.items(), key=lambda item: item[1].median))}
        longest = max(t.median for t in timings.values())
        lines.append(f'<text x="8" y="{y}" class="case">{html.escape(outcome.case.name)}</text>')
        y += 6
        for name, timing in timings.items():
            width = max(1.0, WIDE * timing.median / longest)
            kind = "rlx" if name == "rlx" else "peer"
            note = shown(timing.median) + " ms"
            if name == outcome.best_peer and outcome.ratio is not None:
                note += f"  (rlx {outcome.ratio:.2f})"
            lines += [
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{html.escape(name)}</text>',
                f'<rect x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" rx="2" class="{kind}"/>',
                f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}" class="note">{note}</text>',
            ]
            y += ROW
        y += 24
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1d2733}.case{font-weight:600;font-size:13px}.note{fill:#5b6876}"
        ".rlx{fill:#1f4e8c}.peer{fill:#b8c4d6}"
    )
    size = f'width="{LEFT + WIDE + RIGHT}" height="{y}" viewBox="0 0 {LEFT + WIDE + RIGHT} {y}"'
    background = f'<rect width="{LEFT + WIDE + RIGHT}" height="{y}" fill="#ffffff"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<style>{style}</style>",
            background,
            *lines,
            "</svg>",
            "",
        ]
    )
