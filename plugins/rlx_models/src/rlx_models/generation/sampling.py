"""`Sampling`: the next token by logits: greedy decoding, or sampling with a key."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import astuple, frozen

import rlx_core as rlx
from rlx_core.errors import ConfigError


@frozen
class Sampling:
    """Options of sampling; see `rlx.random.sample_logits`.

    Attributes:
        key: A random key; `None` for greedy decoding.
    """

    key: Any = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def check(self) -> None:
        """Check that greedy decoding has no options of sampling.

        Raises:
            ConfigError: It has.
        """
        if self.key is None and self.arguments[1:] != GREEDY.arguments[1:]:
            raise ConfigError(
                "generate: sampling options have no effect on greedy decoding", hint="key=rlx.random.key(0)"
            )

    @property
    def arguments(self) -> tuple[Any, ...]:
        return astuple(self, recurse=False)


GREEDY: Final = Sampling()


def with_penalty(logits: Any, suppressed: Any, present: Any, penalty: float) -> Any:
    """Return logits with the penalty of `present` tokens, and -inf for `suppressed` ones; masks as for `sampler`."""
    if present is not None:
        logits = rlx.where(present, rlx.where(logits < 0, logits * penalty, logits / penalty), logits)
    return logits if suppressed is None else rlx.where(suppressed, -np.inf, logits)


@functools.lru_cache
def sampler(target: str | None) -> Callable[..., Any]:
    """Return the compiled function from logits to tokens i64[batch]; it has a program for each combination of options.

    Its arguments are logits f32[batch, vocab_size]; a mask bool[vocab_size] or bool[batch, vocab_size] of suppressed tokens, or
    `None`; a mask bool[batch, vocab_size] of the tokens of each text, or `None`; their repetition penalty; the index of the new
    token; and the options of `Sampling`.
    """

    def sample(
        logits: Any,
        suppressed: Any,
        present: Any,
        penalty: float,
        index: Any,
        key: Any,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
    ) -> Any:
        logits = with_penalty(logits, suppressed, present, penalty)
        if key is None:
            return rlx.astype(rlx.argmax(logits, axis=-1), rlx.i64)
        return rlx.random.sample_logits(
            rlx.random.fold_in(key, index), logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
        )

    return rlx.jit(sample, target=target)
