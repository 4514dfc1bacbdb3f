"""The walk over the nodes of a program: each node in order, by its handler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from rlx_core.errors import Fact, FormatError, OutOfMemoryError, RlxError
from rlx_core.importing.report import UnsupportedReport
from rlx_core.importing.table import HandlerTable
from rlx_core.system.budget import current_work

N = TypeVar("N")


class OperandRefusal(Exception):
    """A handler does not support its operands; the walk adds the node, and continues with placeholders for its results.

    Args:
        alternative: A supported alternative, if one is known.
        subject: The unsupported case ("qr with pivoting"); the operation, if it is omitted.
    """

    def __init__(self, alternative: str | None = None, subject: str | None = None) -> None:
        super().__init__(subject or alternative)
        self.alternative, self.subject = alternative, subject


def refuse(alternative: str | None = None, *, subject: str | None = None) -> NoReturn:
    """Report that the handler that calls this does not support its operands.

    Raises:
        OperandRefusal: Always.
    """
    raise OperandRefusal(alternative, subject)


class GraphWalk(ABC, Generic[N]):
    """One walk through a program of another system, in a trace or outside of one.

    Errors of handlers get the location of the node. Refusals are collected: the walk continues with placeholders, and
    `finish` raises one error for all of them.

    Attributes:
        program: The name of the program, for errors.
        table: The handlers.
    """

    invalid: ClassVar[tuple[type[Exception], ...]] = ()
    """Exceptions of handlers that mean that the program is invalid, where nothing else has verified it."""

    def __init__(self, program: str, table: HandlerTable[Any]) -> None:
        self.program, self.table = program, table
        self._report = UnsupportedReport(table)
        self._count = 0
        self._is_finished = False

    @abstractmethod
    def operation(self, node: N) -> str:
        """Return the name of a node's operation in the table."""

    @abstractmethod
    def location(self, node: N) -> str:
        """Return a node and its source line, as far as known, for errors."""

    @abstractmethod
    def step(self, node: N, values: dict[Any, Any]) -> None:
        """Compute the results of a node and add them to the values."""

    def skip(self, node: N, values: dict[Any, Any]) -> None:
        """Add placeholders for the results of a node whose handler refused its operands."""
        raise NotImplementedError(f"{type(self).__name__} has no placeholders, so its handlers raise errors")

    def nodes(self, nodes: Iterable[N], values: dict[Any, Any]) -> None:
        """Walk nodes, adding their results to the values."""
        work = current_work()
        for node in nodes:
            self._count += 1
            if work is not None:
                work.expect_nodes(self._count, "the program with its loops unrolled")
            try:
                self.step(node, values)
            except OperandRefusal as refusal:
                self._report.add(refusal.subject or self.operation(node), self.location(node), refusal.alternative)
                if self._is_finished:  # a rule of a derivative is walked after the program
                    self.finish()
                self.skip(node, values)
            except RlxError as error:
                location = self.location(node)
                if location not in error.message and not any(fact.label == "node" for fact in error.facts):
                    error.with_fact(Fact("node", location))
                raise
            except MemoryError as error:
                message = f"{self.location(node)}: the machine has no memory left for its results"
                raise OutOfMemoryError(message, Fact("cause", error)) from error
            except self.invalid as error:
                message = f"{self.location(node)}: its operands and attributes do not fit ({error})"
                raise FormatError(message) from error

    def finish(self) -> None:
        """End the walk of the program; refusals of later nodes raise immediately.

        Raises:
            UnsupportedError: Handlers refused operands; it lists all of them.
        """
        self._is_finished = True
        self._report.expect_empty(self.program)
