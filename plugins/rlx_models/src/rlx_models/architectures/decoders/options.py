"""Options of a decoder's configuration: sizes by their standard names, multipliers, and soft caps."""

from __future__ import annotations

from attrs import frozen

from rlx_core.errors import Fact
from rlx_models.architectures.decoders.spec import DecoderSpec, Multiplier
from rlx_models.checkpoints import Config, Option


@frozen
class SizeOptions:
    """Sizes by their standard names, which the file may have under others."""

    spec: DecoderSpec
    config: Config

    def __call__(self, name: str, default: int | None = None) -> int:
        return self.config.size(self.spec.options.get(name, name), default)

    def head_size(self) -> int:
        """Return the features of a head."""
        default = self.spec.head_size or max(1, self("hidden_size") // self("num_attention_heads"))
        return self("head_dim", default)


def multiplier(config: Config, spec: Multiplier | None) -> float | None:
    """Return a positive number, or `None` without a spec."""
    if spec is None:
        return None
    default = 0.0 if spec.default is None else spec.default
    if spec.count is None:
        value = config.number(spec.name, default)
    else:
        value = config.numbers(spec.name, (default,) * spec.count)[spec.index]
    if value <= 0:
        config.faults.append(Fact(spec.name, f"{value!r}, and must be above 0"))
        return 1.0
    return value**spec.power


def softcap(config: Config, option: Option | None) -> float | None:
    """Return the bound of `c·tanh(x / c)`, or `None` if the configuration has none."""
    if option is None or config.values.get(option.name, option.default) is None:
        return None
    return config.number(option.name, 1.0 if option.default is None else option.default)
