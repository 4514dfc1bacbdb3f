"""Choice of the programs that a law tries: all that it applies to, or one per op."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from rlx_core.testing.about import About
from rlx_core.testing.cases import OpProgram
from rlx_core.testing.variants import bases, variants

Amount = Literal["one", "all"]

_T = TypeVar("_T")


def tried(programs: Sequence[OpProgram], about: About, law: str, amount: Amount) -> list[OpProgram]:
    """Return the programs that a law tries.

    Args:
        programs: The samples.
        about: The domain of the law.
        law: Its name, by which the choice of one rotates.
        amount: All samples and accepted variants, or of each op, or contributed rule, a single one.
    """
    if amount == "one":
        groups = grouped(programs, lambda p: (p.rule, p.op.name)).values()
        chosen = (first(candidates(group, about, law), about) for group in groups)
        return [program for program in chosen if program is not None]
    selected = [p for p in (*programs, *varied(programs, about)) if is_asked(about, p)]
    return list({p.widened_key: p for p in reversed(selected)}.values())[::-1] if about.widens else selected


def candidates(group: Sequence[OpProgram], about: About, law: str) -> Iterator[OpProgram]:
    """The samples of one op and their variants, beginning at another one for each law."""
    every = [*group, *varied(group, about)]
    start = rotation(group[0].op.name, law) % len(every)
    yield from every[start:]
    yield from every[:start]


def varied(programs: Sequence[OpProgram], about: About) -> list[OpProgram]:
    """Return the variants of some samples that a law tries, if the op takes them."""
    return [v for base in bases(programs) for v in variants(base) if about.asks(v)]


def rotation(*words: str) -> int:
    """A number that depends on the words alone, the same in every process."""
    return zlib.crc32(" ".join(words).encode())


def first(programs: Iterable[OpProgram], about: About) -> OpProgram | None:
    return next((p for p in programs if is_asked(about, p)), None)


def is_asked(about: About, program: OpProgram) -> bool:
    """Return whether the law applies to the program. All laws apply to a sample that fails, so that the failure is reported."""
    if not about.asks(program):
        return False
    return about.holds(program) if program.failure is None else program.variation is None


def one_of_each(items: Sequence[_T], key: object, law: str) -> list[_T]:
    """Return one of the items with equal keys, another one for each law."""
    return [group[rotation(str(k), law) % len(group)] for k, group in grouped(items, key).items()]


def grouped(items: Iterable[_T], key: object) -> dict[object, list[_T]]:
    """The items by key, in order."""
    assert callable(key)
    groups: dict[object, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
