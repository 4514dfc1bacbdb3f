"""Kernel tables: the functions of a target by op, and the types that each accepts, as data.

A row declares its accepted operands as data, so that selection, documentation and the refusal message come from the same line.
Later rows are preferred over earlier ones only through `priority`; among equals the first registered wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypedDict, TypeVar, Unpack

import numpy as np
from attrs import evolve, field

from rlx_core import ir
from rlx_core.errors import ConfigError, Fact, NoKernelError, nearest
from rlx_core.errors.contained import reraise
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Node, as_results
from rlx_core.ir.op import Op
from rlx_core.plugins.faults import ContributionFault, as_fact
from rlx_core.system.locks import Lock
from rlx_core.system.records import define, frozen

__all__ = [
    "Condition",
    "Emitting",
    "Kernel",
    "KernelRefusal",
    "KernelSelection",
    "KernelTable",
    "Traits",
    "condition",
    "emitter_of",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@frozen
class Condition:
    """A named predicate on a node; a refusal prints the name ("needs a last axis divisible by 8").

    Attributes:
        explain: Returns the exact unmet requirement of a node, if it is more specific than the name.
        is_settled: Whether the answer for a node with unknown sizes is valid for all sizes above 0; by default it is evaluated
            again of every size.
    """

    name: str
    holds: Callable[[Node], bool] = field(eq=False)
    explain: Callable[[Node], str | None] | None = field(default=None, eq=False)
    is_settled: Callable[[Node], bool] = field(default=lambda node: False, eq=False)

    def lacking(self, node: Node) -> str:
        """Return the unmet requirement of a node that it does not hold for."""
        return (self.explain(node) if self.explain is not None else None) or self.name


def condition(name: str, *, asks_sizes: bool = True) -> Callable[[Callable[[Node], bool]], Condition]:
    """Name a predicate so that a kernel can be registered with it.

    Args:
        asks_sizes: Whether the answer may depend on how many elements an axis has.
    """
    return lambda holds: Condition(name, holds, is_settled=lambda node: not asks_sizes)


def _accepted(dtypes: str | Iterable[DType] | None) -> frozenset[DType] | None:
    listed = dtypes.split() if isinstance(dtypes, str) else dtypes
    return None if listed is None else frozenset(dtype(d) for d in listed)


def _conditions(when: Condition | Iterable[Condition]) -> tuple[Condition, ...]:
    return (when,) if isinstance(when, Condition) else tuple(when)


@frozen(eq=False, kw_only=True)
class Traits:
    """Properties of a kernel that selection and memory planning read: accepted operands, requirements and guarantees.

    Attributes:
        dtypes: The dtypes that floating or integer *operands* may have; `None` accepts every dtype.
        when: Further conditions on the node.
        workspace: Scratch bytes it needs.
        in_place: Operands whose buffer result 0 may take over, because each element is read before written.
        is_each_in_place: Each result may, not result 0 alone.
        accepts_strides: Operands may be strided views; otherwise the plan makes them dense.
        writes_strides: Results may lie with gaps, between the rows of others; otherwise the plan keeps them dense.
        completes_parts: Operands may lie in the result already, where `Op.parts` has them: it writes the rest.
        priority: Higher ones come first.
        runs_nested: It runs the op's nested graphs as separate programs, so that each needs a plan.
        is_generated: It is a loop nest that is generated from the op's definition, so that fusing several ops loses nothing. Each
            of its results may take over an operand or lie with gaps.
        tier: The tier of the target that it runs on; `None` is the last of them.
    """

    dtypes: frozenset[DType] | None = field(default=None, converter=_accepted)
    when: tuple[Condition, ...] = field(default=(), converter=_conditions)
    workspace: Callable[[Node], Dim] | None = None
    in_place: tuple[int, ...] = ()
    accepts_strides: bool = False
    completes_parts: bool = False
    priority: int = 0
    runs_nested: bool = False
    is_generated: bool = False
    is_each_in_place: bool = False
    writes_strides: bool = False
    tier: str | None = None


class TraitWords(TypedDict, total=False):
    """The fields of `Traits` as keywords of `register`, for type checkers."""

    dtypes: str | Iterable[DType] | None
    when: Condition | tuple[Condition, ...]
    workspace: Callable[[Node], Dim] | None
    in_place: tuple[int, ...]
    accepts_strides: bool
    completes_parts: bool
    priority: int
    runs_nested: bool
    is_generated: bool
    is_each_in_place: bool
    writes_strides: bool
    tier: str | None


@frozen(eq=False)
class Kernel(Traits):
    """An implementation of an op on a target.

    The function is called as `run(op, *operands, out=..., workspace=...)` with the backend's own buffers; `out` is a tuple
    when the op has several results, and destination passing is the rule: the plan owns all memory.

    Attributes:
        name: Unique in its table; printed in reports and kept in plans.
        op: The op class it runs (and subclasses).
        plugin: The plugin that contributed it.
    """

    name: str
    op: type[Op]
    run: Callable[..., None]
    plugin: str | None = None
    doc: str = ""

    @property
    def stands_back(self) -> bool:
        """Whether it yields to every better kernel, such as a row that a plugin registers for its op with the usual priority."""
        return self.priority < 0

    def refusal(self, node: Node) -> str | None:
        """Return the reason why it does not take this node, or `None` if it does."""
        if self.dtypes is not None:
            refused = sorted(d.name for d in self._refused_dtypes(node))
            if refused:
                return f"takes {' '.join(sorted(d.name for d in self.dtypes))}, not {' '.join(refused)}"
        return next((f"needs {c.lacking(node)}" for c in self.when if not c.holds(node)), None)

    def unsettled(self, node: Node) -> tuple[Condition, ...] | None:
        """Return the conditions whose answers for this node depend on unknown sizes above 0; `None` if another one does not hold.

        It takes the node for the sizes for which these hold.
        """
        if self._refused_dtypes(node):
            return None
        by_type = [(condition, condition.is_settled(node)) for condition in self.when]
        if not all(condition.holds(node) for condition, is_settled in by_type if is_settled):
            return None
        return tuple(condition for condition, is_settled in by_type if not is_settled)

    def _refused_dtypes(self, node: Node) -> frozenset[DType]:
        if self.dtypes is None:
            return frozenset()
        return (
            frozenset(v.dtype for v in node.present()).union(t.dtype for t in node.types if not node.operands)
            - self.dtypes
        )


@frozen
class KernelRefusal:
    """A kernel that did not take a node, and why."""

    kernel: str
    reason: str


@frozen
class KernelSelection:
    """The result of kernel selection for a node: the chosen kernel, if any, and the rejected ones."""

    kernel: Kernel | None
    refusals: tuple[KernelRefusal, ...] = ()


@define(eq=False, slots=False)
class Emitting:
    """The function of a row with generated code: it carries the emitter, and computes a step's result by the op's own definition
    on the host for callers outside of a program of the target.

    Attributes:
        emit: The emitter, in the form that the target defines.
        sized: Finds the dynamic-shape form of a step, on targets that have such forms.
    """

    emit: Any = field(repr=False)
    sized: Any = field(default=None, repr=False)

    @property
    def __name__(self) -> str:
        return getattr(self.emit, "__name__", "kernel")

    def __call__(self, op: Any, *operands: np.ndarray | None, out: Any, workspace: Any) -> None:
        for place, result in zip(as_results(out), as_results(op(*operands)), strict=True):
            np.copyto(place, result, casting="unsafe")


def emitter_of(run: Callable[..., None]) -> Any | None:
    """The emitter that a row's function carries; `None` for one that runs on the host."""
    return run.emit if isinstance(run, Emitting) else None


HOST: Final = "host"
"""The kernel name of a node that runs on the host with its op's reference."""


def run_reference(op: Any, *operands: np.ndarray | None, out: Any, workspace: Any) -> None:
    """A primitive by its NumPy meaning: two-byte floats are widened to f32, computed and rounded once."""
    try:
        results = as_results(op.reference(*(None if x is None else ir.tape.widened(x) for x in operands)))
    except Exception as error:  # noqa: BLE001 - contributed code may raise anything; it is raised again, with its owner
        reraise(error, "ops", op.name, "its reference")
    for place, result in zip(as_results(out), results, strict=True):
        np.copyto(place, np.asarray(result), casting="unsafe")


HOST_KERNEL: Final = Kernel(HOST, Op, run_reference, accepts_strides=True, doc="The op's reference, on the host.")
"""The kernel on the host where the configuration allows it; it is in no table, because no target claims it."""


def matches(op: Op, patterns: Iterable[str]) -> bool:
    """Return whether an op is meant: by its full name, a pattern, its plugin's bare name, or its own name without `rlx.`."""
    domain, _, short = op.name.partition(".")
    return any(
        fnmatchcase(op.name, p) or p == domain or (domain == "rlx" and p == short) or p == f"{domain}.*"
        for p in patterns
    )


class KernelTable:
    """The kernels of one target, by op class.

    Args:
        target: The target that they run on.
        plugin: The plugin that contributes them.
        fill: Adds the rows, on the first access: a program from a cache needs few of them, or none, and the
            modules that define kernels are expensive to import.
        more: Returns the rows for an op, or with `None` all rows; rows in the table are ignored. Called when an
            op is looked up for the first time, so that only the kernels of a program's ops are imported.
    """

    def __init__(
        self,
        target: str,
        *,
        plugin: str | None = None,
        fill: Callable[[KernelTable], None] | None = None,
        more: Callable[[type[Op] | None], Iterable[Kernel]] | None = None,
    ) -> None:
        self.target = target
        self.plugin = plugin
        self._rows: dict[type[Op], list[Kernel]] = {}
        self._names: dict[str, Kernel] = {}
        self._fill = fill
        self._more = more
        self._extended: set[type[Op] | None] = set()
        self._left_out: list[ContributionFault] = []
        self._failed: dict[str, str] = {}
        self._lock = Lock(f"the table of kernels for {target}")

    def register(self, *ops: type[Op], name: str | None = None, **traits: Unpack[TraitWords]) -> Callable[[_F], _F]:
        """Register the decorated function as a kernel for each of `ops`.

        Args:
            name: The name of the kernel; the function's own name by default.
            traits: The fields of `Traits`; dtypes may be a text, and a single condition needs no tuple.

        Raises:
            ConfigError: The table already has a kernel of that name.
        """

        def add(run: _F) -> _F:
            self._filled()
            self._register(ops, name or run.__name__, run, traits)
            return run

        return add

    def _register(self, ops: Sequence[type[Op]], name: str, run: Callable[..., None], traits: TraitWords) -> None:
        """Add a row for each of `ops`; the table is filled, or this is a part of filling it."""
        if traits.get("is_generated"):
            traits["is_each_in_place"] = traits["writes_strides"] = True
        doc = (run.__doc__ or "").strip().split("\n")[0]
        for op in ops:
            unique = name if len(ops) == 1 else f"{name}[{op.name}]"
            self._add(Kernel(unique, op, run, self.plugin, doc, **traits))

    def _add(self, kernel: Kernel) -> None:
        if kernel.name in self._names:
            first = self._names[kernel.name]
            raise ConfigError(
                f"{self.target}: two kernels are called {kernel.name!r}",
                Fact("first", first.run.__module__),
                Fact("second", kernel.run.__module__),
            )
        self._names[kernel.name] = kernel
        # A new list, because another thread may read the old one. Stable: first registered wins among equals.
        self._rows[kernel.op] = sorted([*self._rows.get(kernel.op, ()), kernel], key=lambda k: -k.priority)

    def _filled(self) -> dict[str, Kernel]:
        """Return the rows by name, loaded if necessary."""
        if self._fill is not None:
            with self._lock:
                fill = self._fill
                if fill is not None:
                    table = KernelTable(self.target, plugin=self.plugin)
                    fill(table)
                    self._left_out = table._left_out
                    self._rows, self._names, self._fill = table._rows, table._names, None
        return self._names

    def load(self, op: type[Op] | None = None) -> dict[str, Kernel]:
        """Add the rows for an op, or all rows, and import their modules; return the rows by name."""
        names = self._filled()
        if self._more is not None and op not in self._extended and None not in self._extended:
            with self._lock:
                for kernel in self._more(op):
                    self._take(kernel, kernel.plugin)
                self._extended.add(op)
        return names

    @property
    def name(self) -> str:
        """The name that distinguishes it from other tables: `acme.cpu`."""
        return f"{self.plugin}.{self.target}" if self.plugin else self.target

    def merge(self, other: Iterable[Kernel], *, plugin: str | None = None) -> None:
        """Take over the rows of another table for the same target (a plugin's kernels for its own ops, say).

        A row that is here already, because two plugins offer one table, is not taken again. One that is called like a row of
        another plugin gets its own plugin's name in front.

        Args:
            other: The table whose rows to take.
            plugin: The plugin of rows that name none.

        Raises:
            ConfigError: Two rows of one plugin have one name; then none is taken.
        """
        names, rows = dict(self._filled()), dict(self._rows)
        try:
            for kernel in other:
                self._take(kernel, kernel.plugin or plugin)
        except ConfigError:
            self._names, self._rows = names, rows
            raise

    def _take(self, kernel: Kernel, owner: str | None) -> None:
        first = self._names.get(kernel.name)
        if first is not None and (first.op, first.run) == (kernel.op, kernel.run):
            return
        is_taken = first is not None and owner is not None and owner != first.plugin
        name = f"{owner}.{kernel.name}" if is_taken else kernel.name
        # Most rows are the same: copies of the 247 rows of a CPU were 2 ms of each compilation.
        is_same = (name, owner) == (kernel.name, kernel.plugin)
        self._add(kernel if is_same else evolve(kernel, plugin=owner, name=name))

    def leave_out(self, fault: ContributionFault) -> None:
        """Record that further rows cannot be used, for the error about a node that no row takes."""
        self._left_out.append(fault)

    @property
    def left_out(self) -> Sequence[ContributionFault]:
        """Tables of others that cannot be used."""
        self._filled()
        return self._left_out

    def candidates(self, op: type[Op]) -> list[Kernel]:
        """The rows for an op, most preferred first; rows of its base classes come after its own."""
        self.load(op)
        return [k for c in op.__mro__ if isinstance(c, type) and issubclass(c, Op) for k in self._rows.get(c, ())]

    def choose(self, node: Node) -> KernelSelection:
        """The first kernel that takes the node, and why the ones before it did not."""
        refusals: list[KernelRefusal] = []
        for kernel in self.candidates(type(node.op)):
            reason = self._refusal(kernel, node)
            if reason is None:
                return KernelSelection(kernel, tuple(refusals))
            refusals.append(KernelRefusal(kernel.name, reason))
        return KernelSelection(None, tuple(refusals))

    def candidates_for_sizes(self, node: Node) -> tuple[tuple[Kernel, tuple[Condition, ...]], ...]:
        """Return the kernels that `choose` may return for unknown sizes above 0, each with its conditions on the sizes.

        The first kernel whose conditions hold is chosen; only the last one may have none.
        """
        result: list[tuple[Kernel, tuple[Condition, ...]]] = []
        for kernel in self.candidates(type(node.op)):
            try:
                conditions = None if kernel.name in self._failed else kernel.unsettled(node)
            except Exception as error:  # noqa: BLE001 - contributed code may raise anything; the row is passed over, with a warning
                self._fail_condition(kernel, node, error)
                continue
            if conditions is not None:
                result.append((kernel, conditions))
                if not conditions:
                    break
        return tuple(result)

    def holds(self, kernel: Kernel, conditions: Iterable[Condition], node: Node) -> bool:
        """Return whether some conditions of a row hold for a node; a row of which one raises is passed over for the next one."""
        try:
            return all(condition.holds(node) for condition in conditions)
        except Exception as error:  # noqa: BLE001 - contributed code may raise anything; the row is passed over, with a warning
            self._fail_condition(kernel, node, error)
            return False

    def _refusal(self, kernel: Kernel, node: Node) -> str | None:
        """Return the reason why a row does not take a node; a row whose condition raises is passed over for the next one."""
        if kernel.name in self._failed:
            return self._failed[kernel.name]
        try:
            return kernel.refusal(node)
        except Exception as error:  # noqa: BLE001 - contributed code may raise anything; the row is passed over, with a warning
            return self._fail_condition(kernel, node, error)

    def _fail_condition(self, kernel: Kernel, node: Node, error: Exception) -> str:
        if not self.fail(kernel, f"the condition of this kernel on {node.op.name}", error):
            raise error
        return self._failed[kernel.name]

    def fail(self, kernel: Kernel, step: str, error: BaseException) -> bool:
        """Disable a row because its code raised, with a warning; return whether this was possible.

        It is impossible for a row of no plugin, whose exception has no owner to name.
        """
        from rlx_core.plugins.use import leave_row_out  # here, because it is for an error

        fault = leave_row_out("kernels", kernel.name, step, kernel.plugin, error)
        if fault is None:
            return False
        self._failed[kernel.name] = f"cannot be used: {fault.reason}"
        self._left_out.append(fault)
        return True

    @property
    def has_failures(self) -> bool:
        """Whether rows are not used because their code raised."""
        return bool(self._failed)

    def has_failed(self, kernel: str) -> bool:
        """Return whether a row is not used any more, because its code raised."""
        return kernel in self._failed

    def accepts(self, node: Node) -> bool:
        return self.choose(node).kernel is not None

    def get(self, name: str) -> Kernel:
        """The row of a name.

        Raises:
            NoKernelError: No row has the name: it existed when the plan was made that refers to it.
        """
        kernel = self._filled().get(name) or self.load().get(name) or (HOST_KERNEL if name == HOST else None)
        if kernel is None:
            raise NoKernelError(
                f"{self.target}: the plan has the kernel {name}, and there is none of this name",
                *map(as_fact, self._left_out),
                hint=next((fault.mend for fault in self._left_out if fault.mend), None) or nearest(name, self._names),
            )
        return kernel

    def claims(self, op: type[Op]) -> bool:
        """Return whether a row is for exactly this op, not for one of its base classes."""
        self.load(op)
        return op in self._rows

    @property
    def is_imported_by_op(self) -> bool:
        """Whether further rows may be imported when an op is looked up."""
        return self._more is not None

    def __bool__(self) -> bool:
        """Whether it has, or may import, any rows."""
        return self._more is not None or bool(self._filled())

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.load().values())

    def __len__(self) -> int:
        return len(self.load())
