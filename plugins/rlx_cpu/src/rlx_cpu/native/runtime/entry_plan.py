"""From a planned program to the parts of its entry, or to the reason why it has none.

An entry serves programs that are native from end to end and whose results reach the caller in a way that a straight line of
code can follow: new arrays, donated arguments, and copies that no other result overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import field

from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Alias, Lir, OutputDelivery
from rlx_core.ir.strides import is_dense
from rlx_core.pipeline.planning.alias import covers_root, placement
from rlx_core.system.records import frozen
from rlx_cpu.native.runtime.entry import EntryArgument, EntryResult, ResultCopy
from rlx_cpu.native.runtime.entry_words import FRESH

__all__ = ["Ends", "ends", "reason_against"]

_MOST_PAIRS = 1 << 16
"""Donated arguments times all arguments and parameters: every pair is looked at in a call."""


def reason_against(lir: Lir) -> str | None:
    """Why a native program cannot be entered directly; `None` if it can."""
    inputs = {e.value for e in lir.manifest.inputs}
    donated = sum(e.is_donated for e in lir.manifest.inputs)
    given = next((e.name for e in lir.manifest.params if e.is_donated), None)
    if given is not None:
        return f"parameter {given} is donated"
    others = len(inputs) + len(lir.graph.params)
    if donated * others > _MOST_PAIRS:
        return f"{donated} inputs are donated, too many to compare with all {others} inputs and parameters"
    for entry, value, delivery in zip(lir.manifest.outputs, lir.graph.outputs, lir.deliveries, strict=True):
        reason = _reason_against_output(lir, value, delivery, inputs)
        if reason is not None:
            return f"output {entry.name} {reason}"
    return None


def _reason_against_output(lir: Lir, value: Value, delivery: OutputDelivery, inputs: set[Value]) -> str | None:
    place = placement(value, lir.aliases)
    if delivery.kind == "own":
        return None if covers_root(value, lir.aliases) else "is a part of its buffer"
    if not is_dense(value.type, place.strides):
        return "is copied from a strided view"
    if delivery.kind == "donor":
        assert delivery.donor is not None, "a donor gives its buffer back"
        if place.root is not delivery.donor and place.root in inputs:
            return "is copied from one argument to another"
    return None


@frozen(eq=False)
class Ends:
    """Both ends of an entry: what comes in, what goes out, and the copies in between.

    Attributes:
        words: Words of its own that hold addresses for the copies.
    """

    inputs: list[EntryArgument]
    outputs: list[EntryResult]
    copies: list[ResultCopy] = field(factory=list)
    words: list[np.ndarray] = field(factory=list)


def ends(lir: Lir, per_run: Mapping[Value, list[tuple[int, int]]], fixed: Mapping[Value, int]) -> Ends:
    """The ends of a program that `reason_against` has nothing against.

    Args:
        per_run: For inputs and for roots of own outputs, the addresses of words that hold theirs, with bytes to add.
        fixed: Where all other roots of outputs lie in the entry's frame.
    """
    found = Ends([EntryArgument(e.type, e.is_donated, list(per_run.get(e.value, ()))) for e in lir.manifest.inputs], [])
    at: dict[Value, EntryArgument | EntryResult] = {
        e.value: g for e, g in zip(lir.manifest.inputs, found.inputs, strict=True)
    }
    numbers = {e.value: i for i, e in enumerate(lir.manifest.inputs)}
    pairs = list(zip(lir.graph.outputs, lir.deliveries, strict=True))
    for value, delivery in pairs:
        made = EntryResult(value.type, FRESH if delivery.donor is None else numbers[delivery.donor])
        found.outputs.append(made)
        if delivery.kind == "own":
            root = lir.root_of(value)
            made.places.extend(per_run.get(root, ()))
            at[root] = made
    for (value, delivery), made in zip(pairs, found.outputs, strict=True):
        place = placement(value, lir.aliases)
        if delivery.kind == "own" or place.root is delivery.donor or not value.type.size:
            continue
        into = made if delivery.donor is None else at[delivery.donor]
        found.copies.append(_copy(found, place, at.get(place.root), fixed, into, value.type.static_nbytes))
    return found


def _copy(
    found: Ends,
    place: Alias,
    source: EntryArgument | EntryResult | None,
    fixed: Mapping[Value, int],
    into: EntryArgument | EntryResult,
    nbytes: int,
) -> ResultCopy:
    words = np.zeros(2, np.int64)
    found.words.append(words)
    first, second = words.ctypes.data, words.ctypes.data + 8
    into.places.append((first, 0))
    if source is None:
        words[1] = fixed[place.root] + place.byte_offset
    else:
        source.places.append((second, place.byte_offset))
    return ResultCopy(first, second, nbytes)
