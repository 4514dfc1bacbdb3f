"""Checks of an op's definition: it has a meaning, and every rule accepts the arguments of rules of its kind.

An op is looked at once, when it is first met, so that a rule with another signature is refused with its name rather than
ending somewhere inside a transformation in a TypeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from rlx_core.errors import MissingRuleError

if TYPE_CHECKING:
    from rlx_core.ir.op import Op

RULE_SHAPES: Final = {
    "infer": "{self}, {operands}",
    "decompose": "{self}, {operands}",
    "loop_form": "{self}, {operands}",
    "reference": "{self}, {operands}",
    "prepare": "{self}, {operands}",
    "cost": "{self}, {operands}",
    "vjp": "{self}, g, {operands}, *, y",
    "jvp": "{self}, t, {operands}, *, y",
    "batch": "{self}, size, x, is_batched",
    "view": "{self}, x, strides, offset",
    "parts": "{self}, {operands}",
}
"""Arguments of each rule; a rule outside the class has the op in place of `self`."""


def check_declared(op: type[Op]) -> None:
    """Require that an op can be used as it is written.

    Raises:
        MissingRuleError: It means nothing, or a rule of it cannot be called.
    """
    complaint = next(complaints(op), None)
    if complaint is not None:
        raise MissingRuleError(f"{op.name}: {complaint}")


def complaints(op: type[Op]) -> Iterator[str]:
    """Yield the faults in the definition of an op."""
    if op.decompose is None and op.infer is None:
        yield "it has neither `decompose` nor `infer`, so nothing says what it means or of which type its result is"
        return
    for kind in RULE_SHAPES:
        rule: Any = getattr(op, kind)
        if callable(rule):
            complaint = rule_complaint(rule, kind, op)
            if complaint is not None:
                yield complaint


def rule_complaint(rule: Callable[..., Any], kind: str, op: type[Op], receiver: str = "self") -> str | None:
    """Why a rule cannot be called as rules of its kind are, or `None` if it can.

    Args:
        receiver: The kind of its first parameter: `self` for a method, `op` for a rule outside the class.
    """
    count = len(op.operands)
    shape = RULE_SHAPES[kind]
    before = {"vjp": 2, "jvp": 2, "batch": 4, "view": 4}.get(kind, 1)
    positional = before + (count if "{operands}" in shape else 0)
    if accepts(rule, positional, ("y",) if shape.endswith("y") else ()):
        return None
    names = ", ".join("*" * o.is_variadic + o.name for o in op.operands) or "*x"
    expected = shape.format(self=receiver, operands=names)
    return f"its {kind} rule takes {inspect.signature(rule)}, and is called as {kind}({expected})"


@lru_cache(maxsize=4096)
def accepts(function: Callable[..., Any], positional: int, keywords: tuple[str, ...] = ()) -> bool:
    """Return whether a function accepts this many positional arguments and these keywords; if unknown, True."""
    try:
        inspect.signature(function).bind(*range(positional), **dict.fromkeys(keywords))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True
