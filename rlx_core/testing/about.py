"""The domain of a law: the programs that it applies to, and the contributed rules that it tries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from rlx_core.ir.rules import CustomDerivative, Kind
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram, Variation

EVERY: Final[tuple[Variation, ...]] = ("dtype", "size", "rank", "broadcasting")

_F = TypeVar("_F", bound=Callable[..., None])


@frozen
class About:
    """The programs that a law applies to.

    Attributes:
        holds: Returns whether a program is one of them.
        rules: The kinds of contributed rules that the law tries; it does not apply to rules of other kinds.
        widens: Whether it tries the op in f64 alone, so that one of the programs that differ in the width of a dtype is enough.
        variants: The variations of samples that it applies to as well, because they may affect its result.
    """

    holds: Callable[[OpProgram], bool]
    rules: frozenset[str] = frozenset()
    widens: bool = False
    variants: frozenset[Variation] = frozenset()

    def asks(self, program: OpProgram) -> bool:
        """Return whether the law tries the rule and the variation of a program; `holds` decides whether it applies to it."""
        tries_it = not program.rule or program.rule in self.rules
        return tries_it and (program.variation is None or program.variation in self.variants)


def about(
    holds: Callable[[OpProgram], bool],
    *,
    rules: Iterable[str] = (),
    widens: bool = False,
    variants: Iterable[Variation] = (),
) -> Callable[[_F], _F]:
    """Ask a law only of programs that it is about; see `About`."""

    def mark(law: _F) -> _F:
        law.about = About(holds, frozenset(rules), widens, frozenset(variants))  # type: ignore[attr-defined]
        return law

    return mark


def asked_of(law: Any) -> About:
    """Return the domain of a law; a law without one applies to every sample."""
    result: About = getattr(law, "about", About(lambda program: True))
    return result


def runs(program: OpProgram) -> bool:
    return program.is_static


def differentiable(program: OpProgram) -> bool:
    return runs(program) and program.is_differentiable and not refuses_derivatives(program)


def refuses_derivatives(program: OpProgram) -> bool:
    """Return whether the op leaves its derivative to its users and declares so."""
    op = program.node.op
    kinds: tuple[Kind, ...] = ("vjp", "jvp", "decompose")
    return (
        isinstance(op, CustomDerivative)
        and op.why_unstated() is not None
        and all(program.engine.rule(op, kind) is None for kind in kinds)
    )


def smooth(program: OpProgram) -> bool:
    return differentiable(program) and program.sample.is_smooth and not program.is_narrow


def has_two_meanings(program: OpProgram) -> bool:
    op = program.op
    first = op.reference or (op.decompose if program.rule else None)
    second = program.engine.rule(program.node.op, "decompose")
    return runs(program) and not program.is_narrow and first is not None and second is not None


def has_loop_form(program: OpProgram) -> bool:
    return runs(program) and program.op.loop_form is not None


def has_own_derivative(program: OpProgram) -> bool:
    op, engine = program.node.op, program.engine
    return (
        differentiable(program)
        and (op.is_of_meaning if isinstance(op, CustomDerivative) else True)
        and not program.is_narrow
        and engine.rule(op, "decompose") is not None
        and (engine.rule(op, "vjp") is not None or engine.rule(op, "jvp") is not None)
    )
