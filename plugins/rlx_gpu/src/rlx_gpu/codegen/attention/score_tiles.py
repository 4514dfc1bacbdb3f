"""Tiles of scores: products of queries and keys and what becomes of them, for the passes of attention.

A group has a square tile of scores of one head at a time; its threads are as many across as down, and each has a few rows and
columns. In the text `batch`, `head` and `group_head` say of which head, `query0` and `key0` where the tile begins, `y` and `x` a
thread's row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf, prod

from attrs import evolve, field

from rlx_core.codegen.attention_scores import BATCH, HEAD, KEY, QUERY, PlacedAttention
from rlx_core.codegen.loops import Buffer
from rlx_core.codegen.places import Place
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType
from rlx_core.ops.activation import exp
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.functions import assembled, each_group
from rlx_gpu.codegen.indexing import IndexType, as_index, index_refusal, index_type, length_refusal, reach
from rlx_gpu.codegen.kernels import values_refusal
from rlx_gpu.codegen.languages import Argument, GpuDialect
from rlx_gpu.codegen.memory import Memory
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.tiles import Factor, Span, bring, multiplied
from rlx_gpu.codegen.units.head_tiles import SUBGROUPS
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.values import ElementRun, Values
from rlx_gpu.codegen.walks import Machine, Schedule, kernel_reach

DEPTH = 16
"""Features that are multiplied at a time."""

_ARRAYS = {"largest": 1, "shrinking": 1, "totals": 1, "weighted": 1}
"""Shared arrays of one element a query; the others are tiles."""

NAMES = {QUERY: ("query0", "head"), KEY: ("key0", "group_head")}
"""Names of a tile's start along an axis of scores, and of its head."""

Sums = list[list[Register]]


def refusal(problem: PlacedAttention, language: GpuDialect, scalars: ScalarTable) -> str | None:
    """Return why attention cannot be printed, as "needs …" would continue."""
    if (reason := values_refusal(problem.scores.kernel, language, scalars)) is not None:
        return reason
    if (reason := scalars.refusal(exp.op(), (problem.dtype,))) is not None:
        return reason
    # No kernel numbers all scores: it computes only positions along each of their axes.
    if (reason := length_refusal("axes of scores", *problem.sizes)) is not None:
        return reason
    places = (*problem.layout.operands, *problem.layout.results)
    return index_refusal(language, *(place_reach(p) for p in places if p is not None))


def place_reach(place: Place) -> int:
    """The elements of a buffer that an operand or result reaches."""
    return reach(place.strides, place.type.static_shape, place.type.dtype.itemsize)


@define(eq=False)
class ScoreTiles:
    """One function of attention under construction.

    Attributes:
        buffers: Buffers of the problem, then workspaces.
        arrays: The function's shared arrays in addition to the tiles of operands.
        unit: The unit that multiplies; its subgroups own a few rows of a tile each.
        groups: Groups of the launch, set by `each_tile`.
    """

    problem: PlacedAttention
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable
    buffers: tuple[Buffer, ...]
    arrays: tuple[str, ...]
    unit: MatrixUnit | None = None
    b: TextAssembler = field(init=False)
    values: Values = field(init=False)
    size: int = field(init=False)
    across: int = field(init=False)
    groups: int = field(init=False, default=0)
    _written: dict[int, bool] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.b = TextAssembler(self.language)
        self.size = 32 if self._nbytes(32) <= self.machine.shared_nbytes else 16
        if self.unit is not None:
            self.size = SUBGROUPS * self.unit.size
        self.across = 16
        while self.across**2 > self.machine.group:
            self.across //= 2
        named = tuple(evolve(buffer, name=f"m{i}") for i, buffer in enumerate(self.buffers))
        kernel = evolve(self.problem.scores.kernel, buffers=named)
        schedule = Schedule("point", 1, self.group, 1, 1, kind=index_type(kernel_reach(kernel)))
        self.values = Values(self.b, kernel, schedule, self.scalars)
        self._written.update({load.buffer: False for load in kernel.loads})

    def _nbytes(self, size: int) -> int:
        tiles = sum(name not in _ARRAYS for name in self.arrays)
        rows = len(self.arrays) - tiles
        elements = 2 * DEPTH * (size + 1) + tiles * size * (size + 1) + rows * size
        return elements * self.dtype.itemsize

    @property
    def dtype(self) -> DType:
        """Dtype of scores and sums, which is that of a register."""
        return self.problem.dtype

    @property
    def group(self) -> int:
        return self.across * self.across if self.unit is None else SUBGROUPS * self.unit.threads

    @property
    def each(self) -> int:
        """Rows and columns of a tile that a thread has."""
        return self.size // self.across

    # ------------------------------------------------------------------------------------------ text

    def done(self, stem: str, shared: Sequence[str] | None = None) -> Emitted:
        """The function that was written, whose shared arrays are by default those of its products by threads."""
        if shared is None:
            type = self.language.type(self.dtype)
            tile, pitch = self.size * (self.size + 1), DEPTH * (self.size + 1)
            sizes = {"left": pitch, "right": pitch, **{n: self.size if n in _ARRAYS else tile for n in self.arrays}}
            shared = [self.language.shared(type, name, size) for name, size in sizes.items()]
        written = sorted(self._written.items())
        arguments = {i: Argument(f"m{i}", self.buffers[i].dtype, is_written) for i, is_written in written}
        return assembled(stem, self.b, arguments, shared, self.group, self.groups)

    def zero(self) -> Register:
        return self.b.literal(self.dtype, 0)

    @contextmanager
    def each_tile(self, axis: int) -> Iterator[None]:
        """Loop over every tile of queries, or of keys, of every head that has them; defines the names of its position."""
        batch, heads, *_ = self.problem.sizes
        heads = heads if axis == QUERY else self.problem.kv_heads
        start, head = NAMES[axis]
        tiles = -(-self.problem.sizes[axis] // self.size)
        total = batch * heads * tiles
        self.groups = min(total, self.machine.most_groups)
        with each_group(self.b, "i", total, self.groups):
            self.b.let(start, f"i % {tiles}u * {self.size}u")
            self.b.let(head, f"i / {tiles}u % {heads}u")
            self.b.let("batch", f"i / {tiles * heads}u")
            if axis == QUERY:
                self.b.let("group_head", f"head / {self.problem.sharing}u")
            yield

    @contextmanager
    def each_sharer(self) -> Iterator[None]:
        """Loop over every head of queries that shares a head of keys."""
        sharing = self.problem.sharing
        with self.b.loop("sharer", "0u", f"{sharing}u"):
            self.b.let("head", f"group_head * {sharing}u + sharer")
            yield

    def each_seen(self, name: str, ends: tuple[str, str], step: int | None = None) -> AbstractContextManager[None]:
        """Loop over every tile of positions from the first to the last one, in steps of a group's tile, or `step`."""
        for end, text in zip(("start", "end"), ends, strict=True):
            self.b.let(end, text)
        return self.b.loop(name, "start", "end", f"{self.size if step is None else step}u")

    def each_query(self) -> AbstractContextManager[None]:
        """Lines for each row `t` of a tile, a thread per row."""
        return self.b.loop("t", self.language.thread, f"{self.size}u", f"{self.group}u")

    def own_place(self) -> None:
        """The names of a thread's row and column."""
        self.b.let("y", f"{self.language.thread} / {self.across}u")
        self.b.let("x", f"{self.language.thread} % {self.across}u")

    def row(self, r: int) -> str:
        return f"(y + {r * self.across}u)"

    def column(self, c: int) -> str:
        return f"(x + {c * self.across}u)"

    def at(self, row: str, column: str) -> str:
        """The index of a tile's element."""
        return f"{row} * {self.size + 1}u + {column}"

    def read(self, array: str, index: str) -> Register:
        return self.b.named(f"{array}[{index}]", self.dtype)

    def held_inside(self, base: str, shift: int, limit: int) -> str:
        """`base + shift`, at least 0 and at most `limit`."""
        select = self.language.select
        moved = f"{base} + {shift}u" if shift >= 0 else f"{base} - {-shift}u"
        inside = select(f"({moved} < {limit}u)", f"{moved}", f"{limit}u")
        return inside if shift >= 0 else select(f"({base} < {-shift}u)", "0u", f"({inside})")

    @property
    def _visits_all(self) -> bool:
        """Whether hidden keys count too: a query that sees none may have weights that are no zeros, and cotangents of them."""
        p = self.problem
        may_be_empty = p.has_mask or p.has_bias or (p.offset is not None and p.offset < 0)
        return p.empty_row == "uniform" or (p.is_backward and p.empty_row == "nan" and may_be_empty)

    def keys_seen(self) -> tuple[str, str]:
        """From which key to which the queries of the tile see any."""
        keys, offset = self.problem.sizes[KEY], self.problem.offset
        if offset is None or self._visits_all:
            return "0u", f"{keys}u"
        window = self.problem.op.window
        start = "0u" if window is None else self.held_inside("query0", offset - window, keys)
        return start, self.held_inside("query0", self.size + offset, keys)

    def queries_seeing(self) -> tuple[str, str]:
        """From which query to which any sees a key of the tile."""
        queries, offset = self.problem.sizes[QUERY], self.problem.offset
        if offset is None or self._visits_all:
            return "0u", f"{queries}u"
        window = self.problem.op.window
        stop = f"{queries}u" if window is None else self.held_inside("key0", self.size + window - offset, queries)
        return self.held_inside("key0", -offset, queries), stop

    # ---------------------------------------------------------------------------------------- memory

    def buffer(self, number: int, *, is_written: bool = False) -> tuple[str, DType]:
        """The name of a buffer and the dtype of its elements."""
        self._written[number] = self._written.get(number, False) or is_written
        return f"m{number}", self.buffers[number].dtype

    def factor(self, number: int, axis: int) -> Factor:
        """An operand or result that has heads, whose positions lie along an axis of scores."""
        s = self.problem.head_strides(number)
        return Factor(
            number, tuple(s.position if a == axis else (s.batch, s.head, 0, 0)[a] for a in range(4)), s.feature
        )

    def index_type(self, number: int) -> IndexType:
        """Return the type of an index into a buffer: a workspace has at most one element for each query."""
        count = len(self.problem.buffers)
        return index_type(place_reach(self.problem.place(number)) if number < count else prod(self.problem.sizes[:KEY]))

    def _index(self, number: int, axis: int, position: str, feature: str) -> str:
        places = {BATCH: "(batch)", HEAD: f"({NAMES[axis][1]})", axis: f"({position})", 4: f"({feature})"}
        return self.factor(number, axis).index(places, self.buffers[number].dtype.itemsize, self.index_type(number))

    def load(self, number: int, axis: int, position: str, feature: str) -> Register:
        """An element of an operand that has heads."""
        name, dtype = self.buffer(number)
        index = self._index(number, axis, position, feature)
        return self.b.converted(self.memory(number).load(name, dtype, index), dtype.accumulator, self.dtype)

    def store(self, number: int, axis: int, position: str, feature: str, value: Register) -> None:
        name, dtype = self.buffer(number, is_written=True)
        index = self._index(number, axis, position, feature)
        self.memory(number).store(name, dtype, index, self.b.converted(value, self.dtype, dtype.accumulator))

    def memory(self, number: int) -> Memory:
        """Return the loads and stores of a buffer."""
        return Memory(self.b, self.index_type(number))

    # ---------------------------------------------------------------------------------------- scores

    def dots(self, rows: int, columns: int, depth: int) -> Sums:
        """Products of an operand at the tile's queries with one at its keys, over `depth` features."""
        _, _, queries, keys = self.problem.sizes
        sums = self.cells("dot")
        features = Span(4, "f0", depth, DEPTH)
        with self.b.loop("f0", "0u", f"{depth}u", f"{DEPTH}u"):
            for number, tile, head, span in (
                (rows, "left", "head", Span(QUERY, "query0", queries, self.size)),
                (columns, "right", "group_head", Span(KEY, "key0", keys, self.size)),
            ):
                name, _ = self.buffer(number)
                buffer = evolve(self.buffers[number], name=name)
                axes = {BATCH: "batch", HEAD: head}
                bring(
                    self.b,
                    self.factor(number, span.axis),
                    buffer,
                    tile,
                    span,
                    features,
                    axes,
                    self.dtype,
                    self.group,
                    ("u32", self.index_type(number)),
                )
            self.b.barrier()
            multiplied(self.b, "left", "right", (self.size, self.size), (self.across, self.across), DEPTH, sums)
            self.b.barrier()
        return sums

    def cells(self, stem: str) -> Sums:
        """Zeros for a thread's rows and columns of a tile, to be changed."""
        return [[self.b.variable(self.zero(), stem) for _ in range(self.each)] for _ in range(self.each)]

    def scores(self) -> tuple[Sums, list[list[Register | None]]]:
        """The scores of a thread's rows and columns, -inf where there is no such query or key, and the slopes of their cap."""
        products = self.dots(0, 1, self.problem.features)
        pairs = [[self._score(r, c, dot) for c, dot in enumerate(row)] for r, row in enumerate(products)]
        return [[s for s, _ in row] for row in pairs], [[s for _, s in row] for row in pairs]

    def _score(self, r: int, c: int, dot: Register) -> tuple[Register, Register | None]:
        query, key = self.b.fresh("query"), self.b.fresh("key")
        self.b.let(query, f"query0 + {self.row(r)}")
        self.b.let(key, f"key0 + {self.column(c)}")
        return self.score(dot, query, key)

    def score(self, dot: Register, query: str, key: str) -> tuple[Register, Register | None]:
        """Return the score of a product: -inf without such a query or key; and for cotangents the derivative of the cap."""
        b, scores = self.b, self.problem.scores
        score = b.variable(b.literal(self.dtype, -inf), "score")
        needs_slope = self.problem.is_backward and scores.slope is not None
        slope = b.variable(self.zero(), "slope") if needs_slope else None
        with self.is_there(query, key):
            places = {BATCH: "batch", HEAD: "head", QUERY: query, KEY: key}
            places = {axis: as_index(text, self.values.schedule.kind) for axis, text in places.items()}
            point = ElementRun(places, "0u", "0u", None, {scores.element: dot})
            b.assign(score, self.values.value(scores.score, 0, point))
            if slope is not None and scores.slope is not None:
                b.assign(slope, self.values.value(scores.slope, 0, point))
        return score, slope

    def is_there(self, query: str, key: str) -> AbstractContextManager[None]:
        """Lines for a query and a key that there are."""
        _, _, queries, keys = self.problem.sizes
        return self.b.when(f"{query} < {queries}u && {key} < {keys}u")

    def exp(self, x: Register) -> Register:
        return self.scalars.apply(self.b, exp.op(), (self.dtype,), (x,))

    def finite(self, largest: Register) -> Register:
        """A maximum as scores are compared with it: 0 where no key was seen, so that weights are exp(-inf)."""
        b = self.b
        return b.select(b.fcmp_ordered("==", largest, b.constant(largest, -inf)), b.constant(largest, 0.0), largest)

    def begin_weights(self) -> None:
        """No key is seen yet, by `largest` and `totals`."""
        with self.each_query():
            self.b.line(f"largest[t] = {self.b.literal(self.dtype, -inf).text};")
            for name in [a for a in self.arrays if a in ("totals", "weighted")]:
                self.b.line(f"{name}[t] = {self.zero().text};")
        self.b.barrier()

    def share(self, array: str, values: Sums) -> None:
        """Write values of a thread's rows and columns to a tile."""
        for r, row in enumerate(values):
            for c, one in enumerate(row):
                self.b.line(f"{array}[{self.at(self.row(r), self.column(c))}] = {one.text};")

    def weights(self, scores: Sums) -> None:
        """exp(score - largest) of a tile as `weights`, with the `largest` so far and by what earlier weights are `shrinking`."""
        b = self.b
        self.share("weights", scores)
        self.b.barrier()
        reductions = Reductions(b, self.scalars, self.group, None)
        with self.each_query():
            before = b.named("largest[t]", self.dtype)
            maximum = b.variable(before)
            with self.b.loop("k", "0u", f"{self.size}u"):
                b.assign(
                    maximum, reductions.combined("max", self.dtype, maximum, self.read("weights", self.at("t", "k")))
                )
            self.b.line(f"largest[t] = {maximum.text};")
            self.b.line(f"shrinking[t] = {self.exp(b.fsub(before, self.finite(maximum))).text};")
        self.b.barrier()
        for r, row in enumerate(scores):
            maximum = self.finite(self.read("largest", self.row(r)))
            for c, score in enumerate(row):
                self.b.line(
                    f"weights[{self.at(self.row(r), self.column(c))}] = {self.exp(b.fsub(score, maximum)).text};"
                )
        self.b.barrier()

    def add_weights(self, name: str, factor: str | None = None) -> None:
        """The sum of each query's weights, or of their products with another tile, added to what has shrunk."""
        b = self.b
        with self.each_query():
            total = b.variable(b.fmul(self.read(name, "t"), self.read("shrinking", "t")))
            with self.b.loop("k", "0u", f"{self.size}u"):
                weight = self.read("weights", self.at("t", "k"))
                if factor is None:
                    b.assign(total, b.fadd(total, weight))
                else:
                    b.assign(total, b.fma(weight, self.read(factor, self.at("t", "k")), total))
            self.b.line(f"{name}[t] = {total.text};")

    # ------------------------------------------------------------------------------------------ sums

    def no_sums(self, width: int) -> Sums:
        """Sums of a thread's rows of a tile by `width` features."""
        columns = -(-width // self.across)
        return [[self.b.variable(self.zero(), "sum") for _ in range(columns)] for _ in range(self.each)]

    def weigh(self, sums: Sums, array: str, number: int, axis: int, width: int) -> None:
        """Rows of an operand, along `axis` of the scores, weighed by a tile and added to sums of rows along the other axis."""
        b, (start, _), extent = self.b, NAMES[axis], self.problem.sizes[axis]
        left = f"{extent}u - {start}"
        stop = b.fresh("stop")
        self.b.let(stop, self.language.select(f"({left} < {self.size}u)", left, f"{self.size}u"))
        with self.b.loop("k", "0u", stop):
            rows = [self.row(r) for r in range(self.each)]
            indices = [self.at("k", row) if axis == QUERY else self.at(row, "k") for row in rows]
            weights = [self.read(array, index) for index in indices]
            for c in range(len(sums[0])):
                with self.b.when(f"{self.column(c)} < {width}u"):
                    value = self.load(number, axis, f"{start} + k", self.column(c))
                    for weight, row in zip(weights, sums, strict=True):
                        b.assign(row[c], b.fma(weight, value, row[c]))

    def store_sums(self, sums: Sums, number: int, axis: int, width: int) -> None:
        """Sums as rows of a result."""
        (start, _), extent = NAMES[axis], self.problem.sizes[axis]
        for r, row in enumerate(sums):
            with self.b.when(f"{start} + {self.row(r)} < {extent}u"):
                for c, one in enumerate(row):
                    with self.b.when(f"{self.column(c)} < {width}u"):
                        self.store(number, axis, f"{start} + {self.row(r)}", self.column(c), one)
