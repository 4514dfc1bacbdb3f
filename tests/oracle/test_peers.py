"""Every row of the table on rlx, PyTorch and JAX: values and their dtypes, gradients, directional derivatives, batches.

The peers compute in float64 with the numbers that rlx is given in the dtype of the case, so one tolerance is right for all:
some units of the last place of that dtype. `ORACLE_SEED=n` draws other sizes, attributes, dtypes and elements.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .peers import jax_side, torch_side
from .peers.answers import disagreement, eps_of, ours
from .peers.arguments import is_inexact, taken_apart, widened
from .peers.rows import DTYPES, PEERS, Case, Peer, Row, case_of
from .peers.table import FAMILIES

SIDES: dict[Peer, ModuleType] = {"torch": torch_side, "jax": jax_side}
CASES = 2
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")  # PyTorch's own use of it, in `torch.func`
ROWS = [row for family in FAMILIES for row in family.rows]


@pytest.mark.parametrize("number", range(CASES))
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_agrees_with_its_peers(row: Row, number: int) -> None:
    case = case_of(row, number)
    peers = {name: function for name in PEERS if (function := row.peer(name)) is not None}
    assert peers, "a row has a peer"
    wide = [widened(args) for args in case.batch]
    with_attributes = {name: functools.partial(f, **case.attributes) for name, f in peers.items()}
    first = next(iter(peers))
    types = SIDES[first].types(with_attributes[first], wide[0])
    tangents = [like(x, case) for x in taken_apart(case.args).points]
    cotangents = [drawn(shape, case, is_complex="complex" in dtype) for shape, dtype in types if is_inexact(dtype)]
    asks = case.answerable(row.asks)
    found = ours(functools.partial(row.ours, **case.attributes), case, tangents, cotangents, asks)
    said = []
    for name, function in with_attributes.items():
        asked = frozenset(q for q in asks if (name, q) not in row.lacks)
        exact = SIDES[name].answers(function, wide, widened(tangents), widened(cotangents), asked)
        share = row.slack * eps_of(case.dtype) + row.inexact.get(name, (0.0, ""))[0]
        complaints = {q: disagreement(found[q], exact[q], case.dtype, share) for q in asked if q != "dtype"}
        if "dtype" in asked:
            expected = SIDES[name].types(function, case.args)
            complaints["dtype"] = expected and other_dtypes([str(r.dtype) for r in found["forward"]], expected)
        said += [
            f"{name}, {question}: {'they agree, and the row says otherwise' if complaint is None else complaint}"
            for question, complaint in complaints.items()
            if (complaint is None) == ((name, question) in row.differs)
        ]
    assert not said, "\n".join([f"{row.name} in {case.dtype} with {dict(case.attributes)}", *sorted(said)])


def other_dtypes(have: list[str], expected: list[tuple[tuple[int, ...], str]]) -> str | None:
    want = [dtype for _, dtype in expected]
    return None if have == want else f"results are {have}, not {want}"


def like(x: np.ndarray, case: Case) -> np.ndarray:
    """A direction for an argument, of its dtype."""
    return drawn(x.shape, case, is_complex=x.dtype.kind == "c").astype(x.dtype)


def drawn(shape: tuple[int, ...], case: Case, *, is_complex: bool) -> np.ndarray:
    """Numbers that f16 and bf16 hold."""
    parts: Any = case.random.integers(-8, 9, (2, *shape)) / 4
    real, wide = DTYPES[case.dtype], np.complex64 if case.dtype in ("c64", "f32") else np.complex128
    if is_complex:
        return np.asarray(parts[0] + 1j * parts[1], wide)
    return np.asarray(parts[0], np.zeros(0, real).real.dtype)
