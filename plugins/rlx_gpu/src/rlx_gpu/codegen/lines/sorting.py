"""Sorting lines: tiles in the memory of a group, then merges of sorted runs, all by rank.

An element's place in the merge of two sorted runs is its place in its run plus the number of elements of the other run that
precede it, computed by binary search: smaller ones, and for an element of the right run also equal ones. That is stable, and
the result is unique, so neither groups nor devices change it. Only keys and places move; values are loaded at the end by their
place. If few elements of long lines are kept, every tile keeps that many, and these are the next line.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field

from rlx_core.codegen.ordering import Sorting
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType, i32
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.indexing import index_refusal, length_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.keys import count_before, key_dtype, load_key
from rlx_gpu.codegen.lines.template import Template, bits_dtype
from rlx_gpu.codegen.walks import Machine

ITEMS = 4
"""Elements of a tile that one thread has, at most."""


def refusal(problem: Sorting, language: GpuDialect) -> str | None:
    """Return why a line cannot be sorted, as "needs …" would continue."""
    return (
        length_refusal("lines", problem.n)
        or language.refusal(problem.keys.dtype)
        or index_refusal(language, problem.lines * problem.n)
    )


def print_sorting(problem: Sorting, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that sort; the buffers are the elements, the values if they are requested, and the positions."""
    assert (reason := refusal(problem, language)) is None, f"{problem} needs {reason}"
    if not problem.lines or not problem.kept:
        return Emitted((), ())
    plan = _Plan(problem, language, machine, scalars)
    launches = tuple(plan.launches())
    return Emitted.joined(launches, tuple(plan.workspaces))


@frozen
class _Pairs:
    """Keys and places in two workspaces, `[lines, size]`."""

    keys: int
    places: int


@frozen
class _Cut:
    """Lines of `size` elements in tiles of `width`, of each of which the first `leading` go on."""

    lines: int
    size: int
    width: int
    leading: int

    @property
    def tiles(self) -> int:
        """Tiles of a line."""
        return -(-self.size // self.width)

    @property
    def room(self) -> int:
        """Elements of a line after this pass; all of them unless only some are kept."""
        return self.leading * self.tiles if self.leading < self.width else self.size


@define(eq=False)
class _Plan:
    """The launches of one problem, and what they hand on."""

    problem: Sorting
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable
    workspaces: list[int] = field(factory=list)

    @property
    def key(self) -> DType:
        return key_dtype(self.problem.keys)

    def launches(self) -> Iterator[Emitted]:
        leading, size = self.problem.kept, self.problem.n
        source: _Pairs | None = None
        while size > self.most and 2 * leading <= self.most:
            tiles = -(-size // self.most)
            to = self._pairs(tiles * leading)
            yield self._tiles(source, to, size, leading)
            source, size = to, tiles * leading
        if size <= self.most:
            yield self._tiles(source, None, size, leading)
            return
        to = self._pairs(size)
        yield self._tiles(source, to, size, self.most)
        # What was read is not needed any more, so two pairs of workspaces take turns.
        spare, run = None, self.most
        while run < size:
            is_last = 2 * run >= size
            source, to = to, to if is_last else (spare or self._pairs(size))
            yield self._merge(source, None if is_last else to, size, run)
            spare, run = source, 2 * run

    @property
    def most(self) -> int:
        """Elements of a tile, a power of two."""
        limit = self.machine.group * ITEMS
        while limit * (self.key.itemsize + 4) > self.machine.shared_nbytes:
            limit //= 2
        return limit

    def _pairs(self, size: int) -> _Pairs:
        first = 2 + self.problem.has_values + len(self.workspaces)
        count = self.problem.lines * size
        self.workspaces += [count * self.key.itemsize, count * 4]
        return _Pairs(first, first + 1)

    def _template(self, group: int, size: int) -> Template:
        elements = self.problem.lines * max(size, self.problem.n)
        return Template(self.language, self.machine, self.scalars, group, elements)

    def _result(self, t: Template, line: str, rank: str, place: Register) -> None:
        """One element of the results, whose rank in the line is known."""
        p = self.problem
        to = t.line(line, p.kept, p.inner)
        index = t.number(t.element(to, rank, p.inner), "at", t.kind)
        if p.has_values:
            dtype = bits_dtype(p.keys.dtype)
            start = t.line(line, p.n, p.inner)
            value = t.memory.load(t.buffer(0, dtype), dtype, t.element(start, place.text, p.inner))
            t.memory.store(t.buffer(1, dtype, is_written=True), dtype, index, value)
        positions = t.buffer(1 + p.has_values, p.index, is_written=True)
        t.memory.store(positions, p.index, index, t.b.resized(place, p.index, is_signed=False))

    def _stored(self, t: Template, to: _Pairs, index: str, key: Register, place: Register) -> None:
        t.memory.store(t.buffer(to.keys, self.key, is_written=True), self.key, index, key)
        t.memory.store(t.buffer(to.places, i32, is_written=True), i32, index, place)

    # ----------------------------------------------------------------------------------------- tiles

    def _tiles(self, source: _Pairs | None, to: _Pairs | None, size: int, count: int) -> Emitted:
        """Sort each tile; its first `count` become results, or pairs next to those of the line's other tiles."""
        width = min(1 << max(size - 1, 0).bit_length(), self.most)
        # Short lines share a group, a run each.
        group = min(self.machine.group, max(width, 32))
        items = max(width // group, 1)
        cut = _Cut(self.problem.lines, size, width, count)
        t = self._template(group, size)
        keys, places = t.array(self.key, group * items, "keys"), t.array(i32, group * items, "places")
        each = group * items // width
        with t.each_group(-(-cut.tiles * cut.lines // each)) as i:
            for item in range(items):
                position, tile = self._own(t, i, item, each, width)
                self._gather(t, source, cut, tile, f"{position} % {width}u", (keys, places, position))
            self._sorted(t, keys, places, width, items)
            for item in range(items):
                position, tile = self._own(t, i, item, each, width)
                rank = t.number(f"{position} % {width}u", "rank")
                with t.b.when(f"{tile} < {cut.lines * cut.tiles}u && {rank} < {count}u"):
                    self._release(t, to, cut, tile, rank, (keys, places, position))
        return t.done("sort_tiles")

    def _own(self, t: Template, i: str, item: int, each: int, width: int) -> tuple[str, str]:
        """Return the index of a thread's element in shared memory, and the number of its tile among those of all lines."""
        position = t.number(f"{item * t.group}u + {t.thread}", "p")
        return position, t.number(f"{t.wide(i)} * {each}u + {position} / {width}u", "tile", t.kind)

    def _gather(
        self, t: Template, source: _Pairs | None, cut: _Cut, tile: str, within: str, to: tuple[str, str, str]
    ) -> None:
        """A key and its place as a thread's share of a tile; behind the line are keys that come last."""
        keys, places, position = to
        j = t.number(f"({tile} % {cut.tiles}u) * {cut.width}u + {within}", "j", t.kind)
        key = t.b.variable(t.b.literal(self.key, -1))
        place = t.b.variable(t.b.literal(i32, -1))
        with t.b.when(f"{tile} < {cut.lines * cut.tiles}u && {j} < {cut.size}u"):
            line = t.number(f"{tile} / {cut.tiles}u", "line", t.kind)
            if source is None:
                p = self.problem
                start = t.line(line, p.n, p.inner)
                t.b.assign(
                    key, load_key(t, p.keys, t.buffer(0, bits_dtype(p.keys.dtype)), t.element(start, j, p.inner))
                )
                t.b.assign(place, t.word(j if t.kind == "u32" else f"(u32){j}"))
            else:
                index = t.number(f"{line} * {cut.size}u + {j}", "at", t.kind)
                t.b.assign(key, t.memory.load(t.buffer(source.keys, self.key), self.key, index))
                t.b.assign(place, t.memory.load(t.buffer(source.places, i32), i32, index))
        t.write(keys, position, key)
        t.write(places, position, place)

    def _release(
        self, t: Template, to: _Pairs | None, cut: _Cut, tile: str, rank: str, source: tuple[str, str, str]
    ) -> None:
        """An element of a sorted tile as a result, or as a pair of the next line."""
        keys, places, position = source
        line = t.number(f"{tile} / {cut.tiles}u", "line", t.kind)
        if to is None:
            self._result(t, line, rank, t.read(places, i32, position))
            return
        j = t.number(f"{tile} % {cut.tiles}u * {cut.leading}u + {rank}", "j", t.kind)
        with t.b.when(f"{j} < {cut.room}u"):
            key, place = t.read(keys, self.key, position), t.read(places, i32, position)
            self._stored(t, to, f"{line} * {cut.room}u + {j}", key, place)

    def _sorted(self, t: Template, keys: str, places: str, width: int, items: int) -> None:
        """Runs of one element merged to runs of `width`."""
        type = self.language.type
        arrays = [t.b.fresh(stem) for stem in ("key", "place", "to")]
        for name, dtype in zip(arrays, (self.key, i32, i32), strict=True):
            t.b.line(self.language.array(type(dtype), name, items))
        run = t.variable("1u", "run")
        t.b.barrier()
        with t.forever_while(f"{run} < {width}u"):
            with t.loop("0u", f"{items}u", stem="e") as e:
                position = t.number(f"{e} * {t.group}u + {t.thread}", "p")
                key = t.read(keys, self.key, position)
                run_start = t.number(f"({position} / {run}) * {run}", "own")
                is_right = f"({position} / {run}) % 2u == 1u"
                other = t.number(t.chosen(is_right, f"{run_start} - {run}", f"{run_start} + {run}"), "other")
                first = t.chosen(is_right, other, run_start)
                before = count_before(t, key, is_right, run, lambda k: t.read(keys, self.key, f"{other} + {k}"))
                t.write(arrays[0], e, key)
                t.write(arrays[1], e, t.read(places, i32, position))
                t.write(arrays[2], e, t.word(t.number(f"{first} + ({position} - {run_start}) + {before}", "rank")))
            t.b.barrier()
            with t.loop("0u", f"{items}u", stem="e") as e:
                to = t.number(f"{arrays[2]}[{e}]", "to")
                t.write(keys, to, t.read(arrays[0], self.key, e))
                t.write(places, to, t.read(arrays[1], i32, e))
            t.b.line(f"{run} = {run} * 2u;")
            t.b.barrier()

    # ---------------------------------------------------------------------------------------- merges

    def _merge(self, source: _Pairs, to: _Pairs | None, size: int, run: int) -> Emitted:
        """Neighbouring runs of every line as one, an element a thread; without pairs to write, as results."""
        t = self._template(self.machine.group, size)
        count = self.problem.lines * size
        with t.each_thread(count) as i:
            line = t.number(f"{i} / {size}u", "line", t.kind)
            text = f"{i} % {size}u"
            j = t.number(text if t.kind == "u32" else f"(u32)({text})", "j")
            run_start = t.number(f"({j} / {run}u) * {run}u", "own")
            is_right = f"({j} / {run}u) % 2u == 1u"
            other = t.number(t.chosen(is_right, f"{run_start} - {run}u", f"{run_start} + {run}u"), "other")
            left = t.number(t.chosen(f"{other} < {size}u", f"{size}u - {other}", "0u"), "left")
            count_text = t.number(t.chosen(f"{left} < {run}u", left, f"{run}u"), "count")
            keys = t.buffer(source.keys, self.key)
            start = t.number(f"{line} * {size}u", "start", t.kind)
            key = t.memory.load(keys, self.key, i)
            before = count_before(
                t, key, is_right, count_text, lambda k: t.memory.load(keys, self.key, f"{start} + {other} + {k}")
            )
            first = t.chosen(is_right, other, run_start)
            rank = t.number(f"{first} + ({j} - {run_start}) + {before}", "rank")
            if to is not None:
                place = t.memory.load(t.buffer(source.places, i32), i32, i)
                self._stored(t, to, f"{start} + {rank}", key, place)
            else:
                with t.b.when(f"{rank} < {self.problem.kept}u"):
                    place = t.memory.load(t.buffer(source.places, i32), i32, i)
                    self._result(t, line, rank, place)
        return t.done("merge_runs")
