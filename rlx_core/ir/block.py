"""Blocks: layers as the builder of a model writes them, with two lowerings to ops.

A block is an op whose meaning is `fusable`, a chain of simpler ops in which fusion passes must find the patterns; `direct`
uses fused ops instead where they exist. Both compute the same function, so type, reference and derivatives
follow from `fusable` and only the policy decides which one a program gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, overload

import attrs
from attrs import field

from rlx_core.errors import ConfigError
from rlx_core.ir.op import Op, Rule, define_op

FusionPolicy = Literal["direct", "fusable"]
"""Which lowering blocks get: fused ops where one exists, or primitive chains. For autodiff it is `fusable`."""


@attrs.frozen(slots=False)
class Block(Op):
    """The base of every block; subclasses are made with `define_block`.

        fusable(self, *x) -> Value | tuple     the meaning, as a chain of simple ops
        direct(self, *x) -> Value | tuple      the same with fused ops; where it is not written, `fusable` is used
        check(self, *x) -> None                operands that the attributes call for; raises WrongInputCount, MissingBias

    Attributes:
        kind: The block's kind ("linear"): the label of unnamed blocks, also in errors.
    """

    kind: ClassVar[str] = ""
    fusable: ClassVar[Rule] = None
    direct: ClassVar[Rule] = None
    check: ClassVar[Rule] = None

    def prepare(self, *x: Any) -> tuple[Any, ...]:
        """Refuse invalid operands before anything is inferred from them."""
        if self.check is not None:
            self.check(*x)
        return x


_BlockT = TypeVar("_BlockT", bound=type[Block])


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_block(cls: _BlockT, /) -> _BlockT: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_block(*, kind: str | None = ..., domain: str = ...) -> Callable[[_BlockT], _BlockT]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field, attrs.field))
def define_block(cls: _BlockT | None = None, /, *, kind: str | None = None, domain: str = "rlx") -> Any:
    """Make a `Block` subclass a block: `LinearBlock` has the kind `linear` and the name `rlx.linear_block`."""

    def make(target: _BlockT) -> _BlockT:
        if target.fusable is None:
            raise ConfigError(f"block {target.__name__}: it has no `fusable`, which is its meaning")
        target.decompose = target.fusable
        op_class = define_op(domain=domain, name=None if kind is None else f"{kind}_block")(target)
        op_class.kind = op_class.title = op_class.name.split(".", 1)[1].removesuffix("_block")
        return op_class

    return make if cls is None else make(cls)


def lower_block(block: Block, operands: Sequence[Any], policy: FusionPolicy) -> Any:
    """Return the results of a block as ops, by the lowering that `policy` selects.

    Raises:
        WrongInputCountError, MissingBiasError: The operands do not match the block's attributes.
    """
    block.prepare(*operands)
    if policy == "direct" and block.direct is not None:
        return block.direct(*operands)
    assert block.fusable is not None, "define_block requires it"
    return block.fusable(*operands)
