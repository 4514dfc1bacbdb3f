"""Sparse systems for the tests of laws: random positions, a heavy diagonal, and one duplicate position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx_core.ops import Sample
from rlx_custom_ops.ops.samples import anything

SETTINGS: tuple[dict[str, Any], ...] = (
    {"method": "lu"},
    {"method": "cholesky"},
    {"method": "cg"},
    {"method": "cg", "preconditioner": "jacobi"},
    {"method": "bicgstab"},
    {"method": "gmres", "restart": 3},
    {"method": "gmres", "preconditioner": "ilu"},
)


def systems() -> Iterator[Sample]:
    """Every method; the first in every dtype, and with leading axes, no right sides and no rows."""
    for settings in SETTINGS:
        options = settings if settings["method"] in ("lu", "cholesky") else {**settings, "rtol": 1e-13}
        for dtype in ("f64", "c128"):
            yield sample(dtype, (), 4, 2, **options)
            if settings["method"] not in ("lu", "cholesky"):
                yield sample(dtype, (), 4, 2, begun=True, **options)
    for dtype in ("f32", "c64"):
        yield sample(dtype, (), 4, 2)
    yield sample("f64", (2,), 3, 1)
    yield sample("f64", (), 3, 0)
    yield sample("f64", (), 0, 2)


def sample(dtype: str, leading: tuple[int, ...], n: int, k: int, *, begun: bool = False, **settings: Any) -> Sample:
    """Return one system; with `begun`, an iteration with a given start."""
    is_hermitian = settings.get("method") in ("cholesky", "cg")
    e = 2 * n if n < 2 else (2 * n + 1 if not is_hermitian else 3 * n)
    place = f"i32[{', '.join(map(str, (*leading, e)))}]"
    return Sample(
        place.replace("i32", dtype),
        place,
        place,
        *[f"{dtype}[{', '.join(map(str, (*leading, n, k)))}]"] * (2 if begun else 1),
        make=maker(leading, n, k, e, dtype[0] == "c", is_hermitian, sides=2 if begun else 1),
        **settings,
    )


def maker(
    leading: tuple[int, ...], n: int, k: int, e: int, is_complex: bool, is_hermitian: bool, sides: int = 1
) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        rows, columns = np.empty((*leading, e), np.int32), np.empty((*leading, e), np.int32)
        data = np.empty((*leading, e), complex if is_complex else float)
        diagonal = np.arange(n)
        for index in np.ndindex(leading):
            values = anything(rng, (e,), is_complex)
            if is_hermitian:  # the diagonal, n places above it, and their mirrors
                above = diagonal, (diagonal + 1) % max(n, 1)
                rows[index] = np.concatenate([diagonal, above[0], above[1]])
                columns[index] = np.concatenate([diagonal, above[1], above[0]])
                values[2 * n :] = values[n : 2 * n].conj()
                values[:n] = 4 + values[:n].real
            else:
                rows[index] = np.concatenate([diagonal, rng.integers(0, max(n, 1), e - n)])
                columns[index] = np.concatenate([diagonal, rng.integers(0, max(n, 1), e - n)])
                rows[index][-1:], columns[index][-1:] = rows[index][-2:-1], columns[index][-2:-1]
                values[:n] += 4
            data[index] = values
        return [data, rows, columns, *(anything(rng, (*leading, n, k), is_complex) for _ in range(sides))]

    return make
