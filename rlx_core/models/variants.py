"""Variants of one model: the same module at the sizes of prefill, decode or encoding, and the keys that distinguish them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from attrs import field

from rlx_core.errors import BindingError, ConfigError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.fingerprint import canonical, digest_of
from rlx_core.ir.module import Module
from rlx_core.system.records import frozen

ModelPhase = Literal["prefill", "decode", "encoder"]
"""The phase of a language model in one call: read a prompt, add one token, or encode a whole text."""

Mode = Literal["eager", "lazy", "aot"]
"""When a variant is compiled: at once, on first use, or ahead of time into a file."""


def _one_of(kind: object, what: str, value: str) -> None:
    known = get_args(kind)
    if value not in known:
        raise ConfigError(f"variant: {what} is {value!r}, which is none of {', '.join(known)}")


@frozen
class PhaseVariant:
    """Sizes for one phase of a model.

    Attributes:
        phase: The phase of the call.
        batch: Sequences at once.
        seq: Tokens of each sequence in this call; 1 for decoding.
        past_seq: Tokens that the cache already holds; decoding only.
        extra: Sizes for the model's own symbols.

    Raises:
        BindingError: Decoding has no `past_seq` or a `seq` other than 1, another phase has a `past_seq`, or an extra symbol
            is one of the standard ones.
    """

    phase: ModelPhase
    batch: int = 1
    seq: int = 1
    past_seq: int | None = None
    extra: Mapping[str, int] = field(factory=dict, eq=lambda sizes: tuple(sorted(sizes.items())))

    def __attrs_post_init__(self) -> None:
        _one_of(ModelPhase, "phase", self.phase)
        if (self.phase == "decode") != (self.past_seq is not None):
            requirement = "needs" if self.phase == "decode" else "has no"
            raise BindingError(f"variant: {self.phase} {requirement} past_seq, and past_seq is {self.past_seq}")
        if self.phase == "decode" and self.seq != 1:
            raise BindingError(f"variant: decode adds 1 token a call, not {self.seq}")
        taken = sorted(self.extra.keys() & {"BATCH", "SEQ", "ROWS", "PAST_SEQ"})
        if taken:
            raise BindingError(f"variant: {taken[0]} is given by batch, seq and past_seq, not by extra")

    @property
    def binding(self) -> DimBinding:
        """The sizes of all symbols: BATCH, SEQ, ROWS, for decoding PAST_SEQ, and the extra ones."""
        past = {} if self.past_seq is None else {"PAST_SEQ": self.past_seq}
        return DimBinding.of(BATCH=self.batch, SEQ=self.seq, ROWS=self.batch * self.seq, **past, **self.extra)

    @property
    def key(self) -> str:
        """A name for the variant, unique among all of them: `decode-b1-s1-p128`."""
        past = "" if self.past_seq is None else f"-p{self.past_seq}"
        extra = "".join(f"-{name}={size}" for name, size in sorted(self.extra.items()))
        return f"{self.phase}-b{self.batch}-s{self.seq}{past}{extra}"


@frozen
class ModelComponent:
    """One part of a model as it is compiled: module, variant, mode and profile.

    Attributes:
        module: HIR or MIR, with symbols.
        variant: The sizes.
        mode: When it is compiled.
        profile: Compile options by name, as attributes or mappings of them.
    """

    module: Module
    variant: PhaseVariant
    mode: Mode = "lazy"
    profile: Mapping[str, object] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        _one_of(Mode, "mode", self.mode)

    @property
    def key(self) -> str:
        """The hex digest of all four; it changes with each of them."""
        parts = {"variant": self.variant.key, "mode": self.mode, "profile": canonical(self.profile)}
        return digest_of({"module": self.module.fingerprint(), **parts})

    def bound(self) -> Module:
        """The module at the variant's sizes.

        Raises:
            GuardError, BindingError, ShapeError: The sizes do not fit it.
        """
        return self.module.bound(self.variant.binding)
