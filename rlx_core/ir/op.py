"""An op: its attributes are fields, its operands are arguments, its rules are methods.

Calling an instance builds a node. `decompose` is the meaning; every rule that is not written is derived from it, and a
written rule is an optimisation that the laws (`rlx_core.testing`) check against the derived one. A *primitive* has no
decomposition: it has a NumPy `reference` and every rule.

Rule slots start as `None`, which means "derive it". They are no methods here, so that ops may differ in arity without breaking
the override rules of a type checker.
"""

from __future__ import annotations

import importlib
import inspect
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, Literal, TypeVar, dataclass_transform, get_args, overload

import attrs
import numpy as np
from attrs import field as field
from attrs.validators import in_

from rlx_core.errors import WrongInputCountError
from rlx_core.ir.declared import check_declared
from rlx_core.ir.dtypes import DType
from rlx_core.ir.protocols import Travels
from rlx_core.ir.setting import by_annotation, refusing
from rlx_core.public import Registered
from rlx_core.system.locks import lazy
from rlx_core.system.records import frozen, spelt

Rule = Callable[..., Any] | None
"""A rule slot: a method with the op's own arity, or `None` for "derive it"."""

Category = Literal["compute", "reduction", "elementwise", "movement", "boundary"]
"""Category of an op for precision policies, and for the report of what limits a run.

    compute: products and ops around them: operands may be narrow, the sum inside is wide
    reduction: an element of the result depends on many of an operand
    elementwise: it depends on the elements at its own place
    movement: nothing is calculated; moved elements keep their dtype
    boundary: left as it is: leaves, calls, norms, softmax, losses, solves, and an op that does not declare a category
"""


APPLIED: Final[Registered[type, Callable[..., Any]]] = Registered("rlx_core.ir.apply")
"""Under `Op`, the function that calling an op runs: ops must not depend on the graphs that hold them."""


class Zero:
    """The symbolic zero: a cotangent or tangent that is known to be zero and is never materialised."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ZERO"


ZERO: Final = Zero()
"""Returned by a rule that *declares* "no derivative here". `None`, or no rule at all, is a MissingRuleError."""


@frozen
class Operand:
    """Declaration of one operand, from the signature of `infer` (or `decompose`)."""

    name: str
    is_optional: bool = False
    is_variadic: bool = False


Takes = Literal["lower", "mean", "inner", "shared", "first", "zero"]
"""The choice among the candidates for the derivative.

`lower`: the derivative from below. `mean`: half of the sum of those from below and from above. `inner`: the one of the piece
in the middle, at both of its ends. `shared`: elements that tie have equal parts of it. `first`: the first of the elements that
tie has all of it. `zero`: 0, where no other would be finite or unique.
"""


@frozen(init=False)
class Kink:
    """Operands at which an op has no derivative, and the value that its rules return there.

    Attributes:
        at: A number, or nested ones, for each operand.
        takes: Which derivative it is, see `Takes`.
        gives: Cotangent of each operand where the cotangent of the result is 1 everywhere.
        attributes: The op's attributes.

    >>> Kink(1.0, 1.0, takes="mean", gives=(0.5, 0.5)).gives
    (array(0.5), array(0.5))
    """

    at: tuple[np.ndarray, ...]
    takes: Takes = field(validator=in_(get_args(Takes)))
    gives: tuple[np.ndarray, ...]
    attributes: Mapping[str, Any]

    def __init__(self, *points: Any, takes: Takes, gives: float | Sequence[Any], **attributes: Any) -> None:
        every = (gives,) if len(points) == 1 else gives
        assert isinstance(every, Sequence), "of several operands each has a derivative"
        assert len(every) == len(points), "each operand has a derivative"
        self.__attrs_init__(tuple(map(np.asarray, points)), takes, tuple(map(np.asarray, every)), attributes)


def _derived() -> Rule:
    """Return an empty rule slot."""
    return None


@attrs.frozen(slots=False, eq=False, repr=False)
class Op(Travels):
    """The base of every op; see the module's docstring. Subclasses are made with `define_op`.

    Rules, with `g` a cotangent, `t` a tangent, `x...` the operands as values (`None` for an absent optional one), `y`
    the result. For an op with several results `g` and `y` are tuples, and a result may be a tuple everywhere.

        infer(self, *types) -> TensorType | tuple            the result types; raises Shape/Dtype/AxisError
        decompose(self, *x) -> Value | tuple                 the meaning, in simpler ops
        reference(self, *arrays) -> ndarray | tuple          NumPy; sees f32 f64 c64 c128, ints and bool, never f16/bf16
        vjp(self, g, *x, y) -> cotangents                    one per operand, `ZERO` where declared non-differentiable; called
                                                             if a cotangent and an operand's derivative are needed, with
                                                             zeros for the other differentiable results
        jvp(self, t, *x, y) -> tangent(s)                    `t` is a tuple with `ZERO` for missing tangents, at least one is
                                                             present
        batch(self, size, x, is_batched) -> results          batched operands and all results carry the new axis first; a
                                                             result that is equal for all examples may be `Replicated`
        loop_form(self, *x) -> results                       of a primitive: in element-wise ops and reductions, for targets that
                                                             run those and have no kernel of it. No rule is derived from
                                                             it, and the intermediate values may need much more memory
        saving(self, *x) -> results                          the results, followed by values that the rules of derivatives would
                                                             compute again; runs in the op's place where one follows
        carried(self) -> {attribute: count}                  of a graph inside: how many of its first outputs are the next values
                                                             of its first inputs, which may then be overwritten
        cost(self, *types) -> int | Dim                      floating-point operations
        samples(cls) -> Iterator[Sample | Rejected]          inputs on which the laws test it
        prepare(self, *x) -> operands                        runs before `infer`: promotion, by inserting casts
        view(self, x, strides, offset) -> (offset, strides)  where the result lies inside the bytes that hold operand 0,
                                                             all in bytes (one pair a result if there are several), or
                                                             `None` for "it must copy"; called with static types
        parts(self, *types) -> ((offset, strides), ...)      where each operand lies inside the dense result, for an op
                                                             that puts its operands there as they are; `None` for one that
                                                             does not, and for all of them where that cannot be
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""  # its name in errors, without the `rlx.` of the standard ops
    version: ClassVar[int] = 1
    category: ClassVar[Category] = "boundary"
    operands: ClassVar[tuple[Operand, ...]] = ()
    is_commutative: ClassVar[bool] = False
    exact_dtypes: ClassVar[
        tuple[DType, ...]
    ] = ()  # of floats: those in which the reference has the bits of every target
    is_pure: ClassVar[bool] = True
    is_barrier: ClassVar[bool] = False
    is_sampler: ClassVar[bool] = False
    calls_host: ClassVar[bool] = False  # whether it is a call of a Python function: on the host, and not stored
    kinks: ClassVar[tuple[Kink, ...]] = ()  # points without a derivative, and the value that its rules have there

    # Without annotations, so that neither attrs takes them for attributes, nor a type checker minds methods in their places.
    infer = _derived()
    reference = _derived()
    decompose = _derived()
    vjp = _derived()
    jvp = _derived()
    batch = _derived()
    loop_form = _derived()
    saving = _derived()
    carried = _derived()
    cost = _derived()
    prepare = _derived()
    view = _derived()
    parts = _derived()
    samples = _derived()

    def __call__(self, *operands: Any, name: str | None = None) -> Any:
        """Build a node with these operands; returns its result, or a tuple of them for a multi-result op.

        Operands may be values, arrays and Python scalars (which are weakly typed). Outside a graph, arrays are
        evaluated at once by the reference interpreter.
        """
        return APPLIED[Op](self, operands, name=name)

    @property
    def is_primitive(self) -> bool:
        return type(self).decompose is None

    def attributes(self) -> dict[str, Any]:
        """The attributes by name, in declared order."""
        names: Sequence[str] = _attribute_names(type(self))  # type: ignore[arg-type]  # a class is hashable
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return spelt(self)

    # Equality is exact: a fill of -0.0 is not one of 0.0, NaN equals itself, and 1, 1.0 and True are three attributes.
    # Ops that may be merged, matched, cached or fingerprinted as one must compute the same bits.
    @lazy
    def exact_attributes(self) -> tuple[object, ...]:
        """The attributes as a hashable key that distinguishes everything that can change a result."""
        return tuple(exact(value) for value in self.attributes().values())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Op) and type(self) is type(other) and self.exact_attributes == other.exact_attributes

    @lazy
    def _hash(self) -> int:
        """The hash of the exact attributes, which for an op that holds other ops is a walk through all of them."""
        return hash((type(self), self.exact_attributes))

    def __hash__(self) -> int:
        return self._hash


@cache
def _attribute_names(op: type[Op]) -> tuple[str, ...]:
    return tuple(a.name for a in attrs.fields(op))


def exact(value: object) -> object:
    """A key for an attribute value under which equal keys mean equal bits, not only equal numbers."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, float):
        return (float, struct.pack("<d", value))
    if isinstance(value, complex):
        return (complex, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, tuple):
        return tuple(exact(v) for v in value)
    if isinstance(value, Op):
        return (type(value), value.exact_attributes)  # an op inside another one has worked its key out before
    # Dims, types, literals and graphs of this layer compare exactly themselves; other records are compared by field.
    if attrs.has(type(value)) and not type(value).__module__.startswith("rlx_core.ir."):
        return (type(value), *(exact(v) for v in attrs.asdict(value, recurse=False).values()))  # type: ignore[arg-type]
    return value


_T = TypeVar("_T", bound=type[Op])


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_op(cls: _T, /) -> _T: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_op(*, domain: str = ..., name: str | None = ...) -> Callable[[_T], _T]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_op(cls: _T | None = None, /, *, domain: str = "rlx", name: str | None = None) -> Any:
    """Make an `Op` subclass an op: a frozen attrs class with a name and declared operands.

    An attribute is converted to the kind that its annotation names, and refused where that is not possible (`setting.py`).
    The name is the class's own in snake case, in `domain`: `LayerNorm` is `rlx.layer_norm`. Nothing is registered here;
    a plugin offers its ops through the `rlx_ops` hook.
    """

    def make(target: _T) -> _T:
        has_repr = "__repr__" in vars(target)
        op_class: Any = target
        if not _is_made_like_op(target):
            op_class = attrs.frozen(target, slots=False, eq=False, repr=False, field_transformer=by_annotation)
            op_class.__init__ = refusing(op_class.__init__)
        # A base class in between may be an attrs class that defines equality over too few fields.
        op_class.__eq__, op_class.__hash__ = Op.__eq__, Op.__hash__
        if not has_repr:
            op_class.__repr__ = Op.__repr__
        op_class.name = f"{domain}.{name or snake_case(target.__name__)}"
        op_class.title = op_class.name.removeprefix("rlx.")
        op_class.operands = _declared_operands(op_class)
        return op_class

    return make if cls is None else make(cls)


Op.__init__ = refusing(Op.__init__)  # type: ignore[method-assign]  # inherited by ops without attributes
_FIELD: Final = type(field())


def _is_made_like_op(op: type[Op]) -> bool:
    """Return whether an op has no attributes and customises no construction: it is an attrs class by inheritance.

    That avoids creating one, a quarter of a millisecond for each of a hundred ops.
    """
    named = [(n, v) for c in op.__mro__ if c not in Op.__mro__ for n, v in vars(c).items()]
    return not any(
        n == "__init__"
        or n.startswith("__attrs_")
        or isinstance(v, _FIELD)
        or (n == "__annotations__" and any("ClassVar" not in str(kind) for kind in v.values()))
        for n, v in named
    )


def snake_case(words: str) -> str:
    """`LayerNorm2d` as `layer_norm2d`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()


def _declared_operands(op: type[Op]) -> tuple[Operand, ...]:
    rule = op.infer or op.decompose
    if rule is None:
        return ()
    kinds = inspect.Parameter
    parameters = list(inspect.signature(rule).parameters.values())[1:]
    return tuple(
        Operand(p.name, p.default is not kinds.empty, p.kind is kinds.VAR_POSITIONAL)
        for p in parameters
        if p.kind is not kinds.KEYWORD_ONLY
    )


@cache
def names_of(op: type[Op]) -> frozenset[str]:
    """Return the names of an op and of its base classes, or the class names of those that are no ops themselves."""
    return frozenset(vars(each).get("name") or each.__name__ for each in op.__mro__ if issubclass(each, Op))


@frozen(eq=False)
class OpModules:
    """Modules that register rules or kernels of ops, imported when one of the ops is looked up.

    Attributes:
        ops: Module → the names of its ops, or a class name for a base class. Modules of one op are in the order in which they
            register.
    """

    ops: Mapping[str, str]
    _loaded: set[type[Op] | None] = field(factory=set, init=False)

    def load(self, op: type[Op] | None = None) -> None:
        """Import the modules of an op, or all modules."""
        if op in self._loaded:
            return
        for module, names in self.ops.items():
            if op is None or not names_of(op).isdisjoint(names.split()):  # type: ignore[arg-type]  # a class is hashable
                importlib.import_module(module)
        self._loaded.add(op)


def operand_names(op: Op | type[Op], count: int) -> tuple[str, ...]:
    """A name for each of `count` operands; variadic ones are numbered."""
    names: list[str] = []
    for operand in op.operands:
        if operand.is_variadic:
            names += [f"{operand.name}{i}" for i in range(count - len(names))]
        elif len(names) < count:
            names.append(operand.name)
    return tuple(names) + tuple(f"operand{i}" for i in range(len(names), count))


def check_operand_count(op: Op, operands: Sequence[object]) -> None:
    """Require as many operands as the op declares.

    Raises:
        WrongInputCountError: There are more or fewer, or a required one is absent.
        MissingRuleError: The op cannot be used as it is written.
    """
    needed, maximum = _operand_counts(type(op))  # type: ignore[arg-type]  # a class is hashable
    if maximum is None:
        absent = next((i for i, operand in enumerate(operands) if operand is None), None)
        if absent is not None:
            raise WrongInputCountError(f"operand {operand_names(op, len(operands))[absent]} is required")
        return
    if not needed <= len(operands) <= maximum:
        names = ", ".join(o.name + "?" * o.is_optional for o in op.operands)
        expected = f"{maximum}" if needed == maximum else f"{needed} to {maximum}"
        raise WrongInputCountError(f"takes {expected} operand{'s' * (maximum != 1)} ({names}), not {len(operands)}")
    for declared, operand in zip(op.operands, operands, strict=False):
        if operand is None and not declared.is_optional:
            raise WrongInputCountError(f"operand {declared.name} is required")


@cache
def _operand_counts(op: type[Op]) -> tuple[int, int | None]:
    """Return the minimum and maximum number of operands of an op; the maximum is `None` for any number.

    Raises:
        MissingRuleError: The op cannot be used as it is written.
    """
    check_declared(op)  # here, because this is where a class is met for the first time, and once
    maximum = None if any(o.is_variadic for o in op.operands) else len(op.operands)
    return sum(not o.is_optional for o in op.operands), maximum
