"""Budgets: how much work a program or a file may cause before the first run.

Text of a few kilobytes can cause any amount of work: functions that call each other twice, constants of constants. Work
is counted where it is done (nodes by the builder of a graph, bytes by the reader of files and by constant folding), for the
innermost `working` block of this thread; outside of such blocks nothing is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from attrs import field
from attrs.validators import ge, gt

from rlx_core.errors import BudgetError, Fact
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen

NODES_PER_CHECK: Final = 64
"""Nodes between two readings of the clock, which takes about as long as a tenth of a node."""


@frozen
class Budget:
    """The maximum work that a program or a file may cause before the first run; more is a `BudgetError`.

    Attributes:
        nodes: The most nodes of one graph while passes rewrite it, or a reader makes it of a file.
        folded: The most bytes that constant folding makes of one program, and a reader of constants of one file. How large one
            result may be is an option of the pass (`passes.fold-constants.limit`); larger ones are left to the program.
        seconds: The most time of the processor that one pass, or reading one file, may take.
        read: The most bytes of files that one `rlx.load` maps or reads.
        parameters: The most bytes of a program's parameters, and of any value that is computed of parameters alone.
        variants: The compiled variants that one `rlx.jit` keeps; the oldest is dropped for a new one, which is no error.
    """

    nodes: int = field(default=500_000, validator=ge(1))
    folded: int = field(default=1 << 32, validator=ge(0))  # bytes
    seconds: float = field(default=600.0, validator=gt(0))
    read: int = field(default=1 << 40, validator=ge(0))  # bytes
    parameters: int = field(default=1 << 40, validator=ge(0))  # bytes
    variants: int = field(default=1024, validator=ge(1))


class CountedWork:
    """Work done so far within one `working` block.

    Args:
        budget: The limits.
        task: The current task, in the user's terms ("loading model.onnx").
    """

    def __init__(self, budget: Budget, task: str) -> None:
        self.budget, self.task = budget, task
        self._folded = self._read = self._looked = 0
        self._step = task
        self._end = time.thread_time() + budget.seconds

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Limit the time of a pass, or of another part.

        Raises:
            BudgetError: It took longer.
        """
        before = self._step, self._end
        self._step, self._end = name, time.thread_time() + self.budget.seconds
        try:
            yield
            self.expect_time()
        finally:
            self._step, self._end = before

    def expect_nodes(self, count: int, what: str) -> None:
        """Require that a graph may have `count` nodes, and that there is time for another.

        Raises:
            BudgetError: One of them is not so.
        """
        if count > self.budget.nodes:
            raise self._exceeded("nodes", f"{what} has more than {self.budget.nodes:,} nodes", f"{count:,} or more")
        self._looked += 1
        if not self._looked % NODES_PER_CHECK:
            self.expect_time()

    def expect_time(self) -> None:
        """Require that the time of the present step is not over.

        Raises:
            BudgetError: It is.
        """
        over = time.thread_time() - self._end
        if over > 0:
            seconds = self.budget.seconds
            raise self._exceeded("seconds", f"{self._step} takes longer than {seconds:g} s", f"{seconds + over:.2f} s")

    def fold(self, nbytes: int, what: str) -> None:
        """Count bytes of a constant that is about to be computed.

        Raises:
            BudgetError: They are more than may be.
        """
        self._folded += nbytes
        if self._folded > self.budget.folded:
            limit = self.budget.folded
            raise self._exceeded("folded", f"{what} makes constants of more than {limit:,} bytes", f"{self._folded:,}")

    def read(self, nbytes: int, what: str) -> None:
        """Count bytes of a file that is about to be mapped or read.

        Raises:
            BudgetError: They are more than may be.
        """
        self._read += nbytes
        if self._read > self.budget.read:
            limit = self.budget.read
            raise self._exceeded("read", f"{what}: the files have more than {limit:,} bytes", f"{self._read:,}")

    def expect_parameters(self, nbytes: int, what: str, *facts: Fact) -> None:
        """Require that parameters may have `nbytes`; the facts are of an error.

        Raises:
            BudgetError: They may not.
        """
        if nbytes > self.budget.parameters:
            limit = self.budget.parameters
            raise self._exceeded("parameters", f"{what} of more than {limit:,} bytes", f"{nbytes:,}", *facts)

    def _exceeded(self, name: str, problem: str, actual: str, *facts: Fact) -> BudgetError:
        limit = getattr(self.budget, name)
        return BudgetError(
            f"{self.task}: {problem}",
            *facts,
            Fact("found", actual),
            Fact(f"budget.{name}", f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"),
            hint=f'if it is meant: config={{"budget.{name}": ...}}, or {name} = ... under [budget] in rlx.toml',
        )


_work: ContextVar[CountedWork | None] = ContextVar("work", default=None)


def current_work() -> CountedWork | None:
    """Return the current work that is counted, or `None`."""
    return _work.get()


def working(budget: Budget, task: str) -> assigned[CountedWork]:
    """Count the work done inside of the block, from zero, against a budget."""
    return assigned(_work, CountedWork(budget, task))
