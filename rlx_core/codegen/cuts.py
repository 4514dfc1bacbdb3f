"""Even partitions of lengths: 17 by at most 8 are 6 + 6 + 5, not 8 + 8 + 1."""

from __future__ import annotations

from typing import Final

from rlx_core.codegen.unknown import unknown
from rlx_core.system.records import frozen

_PARTS: Final = ("size", "many", "pieces")


@frozen
class Cut:
    """An even partition of a length into blocks of two sizes: `many` blocks of `size`, then blocks of `size - 1`.

    It may partition several such lengths, one after the other: no block spans two of them.

    >>> cut(17, 8), cut(17, 8).start(2)
    (Cut(size=6, many=2, pieces=3, lines=1, most=0), 12)

    Attributes:
        lines: Number of lengths; `many` counts the blocks of one of them, `pieces` those of all.
        most: The largest possible size, if the other numbers are unknown; 0 if they are known.
    """

    size: int
    many: int
    pieces: int
    lines: int = 1
    most: int = 0

    @property
    def each(self) -> int:
        """Pieces of one length."""
        return self.pieces if self.lines == 1 else self.pieces // self.lines

    @property
    def length(self) -> int:
        """One length."""
        return self.each * self.size - (self.each - self.many)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that occur."""
        if self.most:
            return tuple(range(self.most, 0, -1))
        return (self.size,) if self.many == self.each else (self.size, self.size - 1)

    def start(self, piece: int) -> int:
        """Return the start of a block."""
        line, part = divmod(piece, self.each) if self.pieces else (0, piece)
        return line * self.length + part * self.size - max(0, part - self.many)

    def size_of(self, piece: int) -> int:
        return self.size if piece % self.each < self.many else self.size - 1


def cut(length: int, limit: int, lines: int = 1) -> Cut:
    """Partition `lines` times `length` into the minimum number of blocks of at most `limit`; sizes differ by at most one."""
    pieces = -(-length // limit)
    if pieces == 0:
        return Cut(limit, 0, 0)
    size = -(-length // pieces)
    return Cut(size, pieces - (size * pieces - length), pieces * lines, lines)


def unknown_cut(name: str, limit: int = 0, *, is_in_lines: bool = False) -> Cut:
    """Return a partition with unknown numbers, whose values `numbers` returns for the same name.

    Args:
        limit: The largest possible size; 0 if it is the caller's concern.
        is_in_lines: Whether the number of lines is unknown too; otherwise there is one.
    """
    size, many, pieces = (unknown(f"{name}_{part}") for part in _PARTS)
    return Cut(size, many, pieces, unknown(f"{name}_lines") if is_in_lines else 1, limit)


def numbers(name: str, known: Cut) -> dict[str, int]:
    """Return the values of an unknown partition's numbers, by name."""
    return {f"{name}_{part}": n for part, n in zip(_PARTS, (known.size, known.many, known.pieces), strict=True)}


def evenly(pieces: int, limit: int) -> int:
    """Return a group size of at most `limit` that avoids a small last group: 11 pieces by 8 are 6 + 5."""
    return -(-pieces // max(1, -(-pieces // limit)))
