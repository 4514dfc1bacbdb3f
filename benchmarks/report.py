"""What a run came to: a table for people, bars for a page, JSON for programs."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from rich.table import Table
from rich.text import Text

from benchmarks.case import Case
from benchmarks.measure import Timing

__all__ = ["Outcome", "bars", "rows_of", "table", "write_json"]


@frozen(eq=False)
class Outcome:
    """One case, measured.

    Attributes:
        peers: By the name that is shown; only those whose results agree with rlx's.
        left_out: Why others are not among them.
    """

    case: Case
    rlx: Timing
    peers: Mapping[str, Timing] = field(factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def best_peer(self) -> str | None:
        """The peer with the smallest median."""
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)

    @property
    def ratio(self) -> float | None:
        """rlx's median over that of the best peer: below 1 is faster."""
        best = self.best_peer
        return None if best is None else self.rlx.median / self.peers[best].median

    @property
    def rate(self) -> str:
        """What rlx's median amounts to, where the case has a measure."""
        if self.case.work is None:
            return ""
        amount, unit = self.case.work
        return f"{amount / self.rlx.median * 1e3:.3g} {unit}"


def rows_of(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcomes as plain data, a row a case."""
    return [
        {
            "case": o.case.name,
            "rlx_ms": o.rlx.median,
            "rlx_min_ms": o.rlx.minimum,
            "peers": {name: t.median for name, t in o.peers.items()},
            "peers_min": {name: t.minimum for name, t in o.peers.items()},
            "ratio_to_best_peer": o.ratio,
        }
        for o in outcomes
    ]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows_of(outcomes), indent=1) + "\n")


def table(outcomes: Sequence[Outcome]) -> Table:
    """A block a case: every program with its median, its minimum, and rlx's part of its median."""
    made = Table(
        title="milliseconds; rlx / peer below 1 is faster; cores is processor time over wall time", title_justify="left"
    )
    made.add_column("case and program", overflow="fold")
    for column in ("median", "minimum", "rlx / peer", "cores"):
        made.add_column(column, justify="right", no_wrap=True)
    for outcome in outcomes:
        case = outcome.case
        aim = "" if case.aim is None else f"at most {case.aim:.2f}"
        made.add_row(Text(case.name, "bold"), "", "", Text(aim, "dim"), "")
        ours = f"  rlx  {outcome.rate}".rstrip()
        made.add_row(Text(ours, "bold"), shown(outcome.rlx.median), shown(outcome.rlx.minimum), "", used(outcome.rlx))
        for name, timing in sorted(outcome.peers.items(), key=lambda item: item[1].median):
            ratio = outcome.rlx.median / timing.median
            style = "" if name != outcome.best_peer else "green" if ratio <= (case.aim or 1.0) else "red"
            cells = shown(timing.median), shown(timing.minimum), Text(f"{ratio:.2f}", style), used(timing)
            made.add_row(f"  {name}", *cells)
        made.add_section()
    return made


def shown(ms: float) -> str:
    return f"{ms:.4f}" if ms < 0.1 else f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def used(timing: Timing) -> str:
    return f"{timing.parallelism:.1f}" if timing.parallelism else ""


# --------------------------------------------------------------------------------------------- bars

ROW, LEFT, WIDE, RIGHT = 18, 250, 460, 110  # pixels


def bars(outcomes: Sequence[Outcome]) -> str:
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
