"""`docs/peers.md`, printed from the table: what is compared, its name elsewhere, and differences with their reasons."""

from __future__ import annotations

from collections.abc import Iterator

from .rows import PEERS, Family, Peer, Row
from .table import FAMILIES

__all__ = ["page"]

NAMES: dict[Peer, str] = {"torch": "PyTorch", "jax": "JAX"}

OPENING = """# Comparison with PyTorch and JAX

`make oracle` runs every row of this page (`tests/oracle`) on rlx, PyTorch {torch} and JAX {jax}. For arguments with random
shapes, dtypes and attributes it compares the result, its dtype, its gradient, its directional derivative (`rlx.jvp`), and a batch
(`rlx.vmap` over some of the arguments); for the most important rows also second derivatives. PyTorch and JAX compute in float64
with the numbers that rlx has in the dtype of the case, and rlx may differ by some units of the last place of that dtype.
`ORACLE_SEED=1 make oracle` selects other arguments. [Derivatives at non-differentiable points](nondifferentiable-points.md) and
[different names](names.md) have separate pages.

## Differences and their reasons

The gradient by a complex argument z is ∂L/∂z̄, and a step against it descends: half of PyTorch's, and half of the
conjugate of JAX's. The comparison of all rows accounts for it.

| function | peer | what differs | reason |
|---|---|---|---|
"""

SECTION = """
| function | dtypes | PyTorch | JAX | name or difference in the other library |
|---|---|---|---|---|
"""


def page(torch: str, jax: str) -> str:
    """The page for versions of the peers."""
    text = OPENING.format(torch=torch, jax=jax) + "".join(
        f"{line}\n" for f in FAMILIES for r in f.rows for line in differences(r)
    )
    return text + "".join(section(family) for family in FAMILIES)


def differences(row: Row) -> Iterator[str]:
    """A line for each peer and reason."""
    for peer in PEERS:
        reasons: dict[str, list[str]] = {}
        for (name, question), reason in row.differs.items():
            if name == peer:
                reasons.setdefault(reason, []).append({"forward": "value"}.get(question, question))
        for reason, questions in reasons.items():
            yield f"| `{row.name}` | {NAMES[peer]} | {', '.join(questions)} | {reason} |"


def section(family: Family) -> str:
    lines = [
        f"| `{r.name}` | {' '.join(r.dtypes)} | {mark(r, 'torch')} | {mark(r, 'jax')} | {notes(r)} |\n"
        for r in family.rows
    ]
    return f"\n## {family.name}\n{SECTION}{''.join(lines)}"


def mark(row: Row, peer: Peer) -> str:
    return "–" if row.peer(peer) is None else "differs" if any(name == peer for name, _ in row.differs) else "agrees"


def notes(row: Row) -> str:
    lacks = dict.fromkeys(row.lacks.values())
    inexact = [f"{reason} (up to {share:.0e} of the largest element)" for share, reason in row.inexact.values()]
    return "; ".join(part for part in (row.note, *lacks, *inexact) if part)
