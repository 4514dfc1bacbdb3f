"""Generated code for people: a listing for each function that steps share, and the reason where a step has none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from rlx_core.pipeline.backend import Listing


def shared_listings(
    steps: Iterable[int],
    reason_without: Callable[[int], str | None],
    function_of: Callable[[int], Hashable],
    code_of: Callable[[int], tuple[str, str]],
) -> list[Listing]:
    """The listings of some steps.

    Args:
        reason_without: Why a step has no code; `None` if it has.
        function_of: What steps with the same code have in common.
        code_of: The text of a step's code, and a note.
    """
    shared: dict[Hashable, list[int]] = {}
    listings: list[Listing] = []
    for number in steps:
        reason = reason_without(number)
        if reason is None:
            shared.setdefault(function_of(number), []).append(number)
        else:
            listings.append(Listing((number,), "", reason))
    return listings + [Listing(tuple(numbers), *code_of(numbers[0])) for numbers in shared.values()]
