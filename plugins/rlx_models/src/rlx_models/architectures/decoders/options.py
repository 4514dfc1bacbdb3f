"""Options of a decoder's configuration: sizes by their standard names, multipliers, and caps."""

from __future__ import annotations

from attrs import frozen

from rlx_core.errors import Fact
from rlx_models.architectures.decoders.spec import ConfigFactor, DecoderKind
from rlx_models.checkpoints.config import Config, Option

__all__ = ["SizeOptions", "cap", "factor_of"]


@frozen
class SizeOptions:
    """Sizes by their standard names, which the file may call otherwise."""

    kind: DecoderKind
    config: Config

    def __call__(self, name: str, default: int | None = None) -> int:
        return self.config.size(self.kind.options.get(name, name), default)


def factor_of(config: Config, factor: ConfigFactor | None) -> float | None:
    """Return a multiplier, or `None` where there is none."""
    if factor is None:
        return None
    default = 0.0 if factor.default is None else factor.default
    if factor.count is None:
        value = config.number(factor.name, default)
    else:
        value = config.numbers(factor.name, (default,) * factor.count)[factor.index]
    if value <= 0:
        config.faults.append(Fact(factor.name, f"{value!r}, and must be above 0"))
        return 1.0
    return value**factor.power


def cap(config: Config, option: Option | None) -> float | None:
    """Return a number, or `None` where a configuration states none."""
    if option is None or config.rows.get(option.name, option.default) is None:
        return None
    return config.number(option.name, 1.0 if option.default is None else option.default)
