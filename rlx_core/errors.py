"""What rlx says when it was asked for something that cannot be done.

Every error is built from the same four parts: one line with the operation and the *difference*, facts in the
user's own terms, a hint where one is likely right, and the page that explains the class (`rlx explain`).
The parts stay on the exception (`facts`, `hint`), so tests and tools read fields, not prose.

Three voices are kept apart: an `RlxError` is about what the user asked for; a `MissingRuleError` says which rule
nobody has written and shows the method to write; `assert` is about rlx itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "AxisError",
    "BindingError",
    "CacheError",
    "ConfigError",
    "CycleError",
    "DeviceError",
    "DeviceUnavailableError",
    "DtypeError",
    "Fact",
    "FormatError",
    "GuardError",
    "IndexRangeError",
    "LegalizeError",
    "LengthMismatchError",
    "MissingBiasError",
    "MissingInputError",
    "MissingRuleError",
    "NoKernelError",
    "OutOfMemoryError",
    "PassOrderError",
    "PluginError",
    "PromotionError",
    "RlxError",
    "ShapeError",
    "TraceError",
    "UnknownNameError",
    "VerifyError",
    "WrongInputCountError",
    "WrongStageError",
    "nearest",
]


class Fact:
    """One labelled line of an error: what it is about, what was found, and where.

    Args:
        label: A word or two in the user's terms ("lhs", "file", "key").
        found: What was there; printed with `str`.
        where: A source line or another place, or `None`.
    """

    __slots__ = ("found", "label", "where")

    def __init__(self, label: str, found: object, where: object = None) -> None:
        self.label = label
        self.found = found
        self.where = where

    def __repr__(self) -> str:
        return f"Fact({self.label!r}, {str(self.found)!r}, {self.where!r})"


class RlxError(Exception):
    """Something that was asked of rlx cannot be done; the subclasses say what kind of thing.

    Args:
        message: One line, the operation first, then the difference with both sides of it.
        facts: What a reader needs to see to believe it, one line each.
        hint: What would work, if that is known; never a guess.
    """

    page: ClassVar[str] = "error"

    def __init__(self, message: str, *facts: Fact, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.facts = list(facts)
        self.hint = hint

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        words = cls.__name__.removesuffix("Error")
        cls.page = "".join("-" + c.lower() if c.isupper() else c for c in words).lstrip("-")

    def with_fact(self, *facts: Fact) -> RlxError:
        """Add facts known only to an outer layer (the file, the plugin, the pass); returns the same error."""
        self.facts.extend(facts)
        return self

    def __str__(self) -> str:
        rows = [(f.label, str(f.found), "" if f.where is None else str(f.where)) for f in self.facts]
        label_width = max([len(label) for label, _, _ in rows] + [4])
        found_width = min(max([len(found) for _, found, where in rows if where] + [0]), 48)
        lines = [self.message]
        lines += [f"  {label:<{label_width}}  {found:<{found_width}}  {where}".rstrip() for label, found, where in rows]
        if self.hint:
            lines.append(f"  {'hint':<{label_width}}  {self.hint}")
        lines.append(f"  {'more':<{label_width}}  rlx explain {self.page}")
        return "\n".join(lines)


class ShapeError(RlxError, ValueError):
    """Two shapes do not fit the operation."""


class DtypeError(RlxError, TypeError):
    """An operand has a dtype that the operation does not take."""


class PromotionError(DtypeError):
    """Two dtypes have no common dtype; one of them must be cast explicitly."""


class AxisError(RlxError, ValueError):
    """An axis lies outside the operand's rank, or is named twice."""


class IndexRangeError(RlxError, IndexError):
    """An index lies outside the axis it selects from."""


class GuardError(RlxError, ValueError):
    """Sizes bound to symbols break a relation that the program relies on."""


class BindingError(RlxError, ValueError):
    """Sizes for symbols cannot be inferred, or disagree."""


class WrongStageError(RlxError, TypeError):
    """A module was asked for something that its stage does not have."""


class MissingRuleError(RlxError, NotImplementedError):
    """An operation has no rule for a transformation and no decomposition to derive one from."""


class NoKernelError(RlxError, RuntimeError):
    """No kernel of the target accepts a node, and nothing rewrites it into ones that do."""


class LegalizeError(NoKernelError):
    """Nodes stay illegal on the target after every rewrite was tried."""


class WrongInputCountError(RlxError, TypeError):
    """An operation or a block was given too many or too few operands."""


class MissingBiasError(WrongInputCountError):
    """A block says that it has a bias but was given none."""


class MissingInputError(RlxError, ValueError):
    """A run lacks an input, or a parameter was never bound."""


class UnknownNameError(RlxError, KeyError):
    """A name that nothing provides; the message has the nearest names that exist."""


class LengthMismatchError(RlxError, ValueError):
    """A buffer has another number of bytes or elements than its type says."""


class DeviceError(RlxError, ValueError):
    """A device or target that rlx does not know was asked for."""


class DeviceUnavailableError(RlxError, RuntimeError):
    """A known device cannot be used here; the message has the package or driver to install."""


class FormatError(RlxError, ValueError):
    """A file or a text does not have the form that its kind promises."""


class CacheError(RlxError, RuntimeError):
    """The compile cache cannot be used at all; single damaged entries are compiled again instead."""


class CycleError(RlxError, ValueError):
    """Relations that should be an order contain a cycle; the message spells it out."""


class ConfigError(RlxError, ValueError):
    """A configuration has an unknown key, a value of the wrong type, or parts that contradict each other."""


class PassOrderError(ConfigError):
    """A pass is placed where what it requires does not hold yet."""


class PluginError(RlxError, RuntimeError):
    """A plugin cannot be used; the message has its own cause and the command that mends it."""


class TraceError(RlxError, TypeError):
    """Python asked a traced value for something only a concrete one has."""


class VerifyError(RlxError, ValueError):
    """A module breaks the rules of its stage; every fault is listed with its node and source line."""


class OutOfMemoryError(RlxError, MemoryError):
    """A buffer that a plan needs cannot be allocated; the message has both sizes."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The hint for a misspelt name: the closest known one, or `None` if nothing is close.

    >>> nearest("sotfmax", ["softmax", "exp"])
    'did you mean `softmax`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None
