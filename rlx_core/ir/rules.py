"""Rules that live outside an op's class, and the services that the running engine offers to rules.

An op's own mathematics are methods. Everything that others add later is a `RuleTable`: a new analysis, or a rule for an
op whose author did not write one. A rule of an op with nested graphs transforms those graphs through `nested()`, which
is the engine that is running, so that a contributed rule holds inside bodies exactly as it does outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from rlx_core.errors import Fact, MissingRuleError, PluginError
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.mesh import Mesh
from rlx_core.ir.op import Op, OpModules
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen

Kind = Literal["vjp", "jvp", "batch", "decompose"]
"""The rule slots that a transformation reads."""

Rules = Mapping[tuple[str, str], Callable[..., Any]]
"""(kind, op name) → a rule in function form: the op first, then the arguments of the method of that name."""

_F = TypeVar("_F", bound=Callable[..., Any])


class RuleTable:
    """An analysis or transformation as a table keyed by op class; a rule for a base class is the default of the derived.

    >>> flops = RuleTable("flops")
    >>> @flops(Op)
    ... def none(op: Op, *operands: Any) -> int:
    ...     return 0
    >>> flops.rule(Op).__name__
    'none'

    Args:
        name: For errors.
        modules: The modules of its rules, if they are imported by op.
    """

    def __init__(self, name: str, modules: OpModules | None = None) -> None:
        self.name, self._modules = name, modules
        self._rules: dict[type[Op], Callable[..., Any]] = {}

    def __call__(self, *ops: type[Op]) -> Callable[[_F], _F]:
        """Register the decorated function for each of `ops`.

        Raises:
            PluginError: One of them has a rule here already; the message names it.
        """

        def register(rule: _F) -> _F:
            for op in ops:
                first = self._rules.get(op)
                if first is not None:
                    raise PluginError(
                        f"{self.name}: there are two rules for {op.name or op.__name__}",
                        Fact("first", _whereabouts(first)),
                        Fact("second", _whereabouts(rule)),
                    )
            self._rules.update(dict.fromkeys(ops, rule))
            return rule

        return register

    def find(self, op: type[Op]) -> Callable[..., Any] | None:
        """The rule of the nearest class among `op` and its bases."""
        if self._modules is not None:
            self._modules.load(op)
        return next((self._rules[base] for base in op.__mro__ if base in self._rules), None)

    def rule(self, op: type[Op]) -> Callable[..., Any]:
        """The rule for `op`.

        Raises:
            MissingRuleError: Neither the class nor a base of it has one.
        """
        match = self.find(op)
        if match is None:
            raise MissingRuleError(
                f"{op.name}: the table {self.name} has no rule for it",
                hint=f"register one: `@{self.name}({op.__name__})`",
            )
        return match

    def apply(self, op: Op, *arguments: Any, **named: Any) -> Any:
        """The rule for `op`, called with it first."""
        return self.rule(type(op))(op, *arguments, **named)

    def __contains__(self, op: type[Op]) -> bool:
        return self.find(op) is not None

    def __iter__(self) -> Iterator[type[Op]]:
        return iter(self._rules)

    def __repr__(self) -> str:
        return f"RuleTable({self.name!r}, {len(self._rules)} rules)"


def _whereabouts(rule: Callable[..., Any]) -> str:
    return f"{rule.__module__}.{rule.__qualname__}"


class CustomDerivative:
    """Marks an op whose author states its derivative: a mode without a rule is derived from the other mode's rule.

    For every other op the decomposition comes first, because it defines the op.

    Attributes:
        is_refusing: Whether the op has no derivative at all; `why_unstated` has the reason. Laws about derivatives do not apply.
        is_of_meaning: Whether the stated derivative is that of the op's decomposition. It is not for the result of a search,
            whose derivative is known from other mathematics and has separate tests.
    """

    __slots__ = ()
    is_refusing: ClassVar[bool] = False
    is_of_meaning: ClassVar[bool] = True

    def why_unstated(self) -> tuple[str, str] | None:
        """Return a message and a hint for where its rule gives no derivative; `None` for the default text."""
        return None


@frozen(eq=False)
class Replicated:
    """A result of a batching rule that is equal for all examples, and has no axis for them.

    Every other result has the batch axis first.
    """

    value: Value


class NestedTransforms(Protocol):
    """The transformations of whole graphs, as rules of ops with nested graphs see them.

    A derivative is a second evaluation: it omits the side effects of the body.
    """

    @property
    def mesh(self) -> Mesh:
        """The named axis that the running batching adds; no axis in every other case."""

    def vjp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        """Inputs: the body's, then one cotangent a differentiable output. Outputs: cotangents in `wrt` order."""

    def jvp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        """Inputs: the body's, then one tangent a name. Outputs: tangents of the differentiable outputs."""

    def batch_of(self, body: Graph, size: Dim, is_batched: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
        """The body over a new first axis, and which of its outputs have that axis."""


_engine: ContextVar[NestedTransforms | None] = ContextVar("nested transforms", default=None)


def nested() -> NestedTransforms:
    """The transformations to use on nested graphs; only while an engine runs a rule."""
    engine = _engine.get()
    assert engine is not None, "nested() is for rules, which run inside a transformation"
    return engine


def transforming(engine: NestedTransforms) -> assigned[NestedTransforms]:
    """Let `nested()` give `engine` to rules that run inside the block."""
    return assigned(_engine, engine)
