"""`Config`: typed access to the options of a `config.json`, which collects every unsupported value for one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field, frozen

from rlx_core.errors import Fact

COUNTS: Final = frozenset(
    (
        *(
            "n_layer",
            "n_layers",
            "num_layers",
            "num_hidden_layers",
            "num_decoder_layers",
            "encoder_layers",
            "decoder_layers",
        ),
        *("n_head", "n_heads", "num_heads", "num_attention_heads", "num_key_value_heads", "num_kv_heads"),
        *("encoder_attention_heads", "decoder_attention_heads", "num_local_experts", "num_experts"),
        *("n_routed_experts", "n_shared_experts"),
    )
)
"""Options that count layers, heads or experts, each of which takes time and memory before any tensor is read."""

MAX_COUNT: Final = 16_384
MAX_SIZE: Final = 1 << 31
MAX_NUMBER: Final = 1e30


@frozen
class Option:
    """An option of configurations.

    Attributes:
        name: Its name in `config.json`.
        default: The value if the file has none, as in Transformers 5.24; `None` if the file must have it.
    """

    name: str
    default: Any = None


@define
class Config:
    """The configuration of a checkpoint. Readers return a valid value in any case and add a fault for an invalid one.

    Attributes:
        values: The options of the file.
        faults: Unsupported and missing values; collected, so that one error lists them all.
    """

    values: Mapping[str, Any]
    faults: list[Fact] = field(factory=list)

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer, or 1 with a fault."""
        value = self.values.get(name)
        value = default if value is None else value
        maximum = MAX_COUNT if name in COUNTS else MAX_SIZE
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= maximum:
            return value
        self.faults.append(Fact(name, f"{shown(value)}, and must be a number from 1 to {maximum:,}"))
        return 1

    def size_of(self, option: Option) -> int:
        """Return `size` of an option."""
        return self.size(option.name, option.default)

    def sizes(self, name: str, count: int) -> tuple[int, ...]:
        """Return `count` positive integers; a single number in the file is repeated."""
        value = self.values.get(name)
        items = value if isinstance(value, list | tuple) else [value] * count
        if len(items) != count:
            self.faults.append(Fact(name, f"{shown(value)}, and must be {count} numbers above 0"))
            return (1,) * count
        return tuple(Config({name: item}, self.faults).size(name) for item in items)

    def entries(self, name: str, default: int) -> int:
        """Return the number of entries of a JSON object."""
        value = self.values.get(name)
        if value is None or (isinstance(value, dict) and value):
            return default if value is None else len(value)
        self.faults.append(Fact(name, f"{shown(value)}, and must be a table"))
        return 1

    def number(self, name: str, default: float) -> float:
        """Return a finite number."""
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
            return float(value)
        self.faults.append(Fact(name, f"{shown(value)}, and must be a number of at most {MAX_NUMBER:g}"))
        return default

    def numbers(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """Return as many numbers as the default has; infinities of the default are valid in the file too."""
        values = self.values.get(name)
        values = default if values is None else values
        if not isinstance(values, list | tuple) or len(values) != len(default):
            self.faults.append(Fact(name, f"{values!r}, and must be {len(default)} numbers"))
            return default
        return tuple(
            usual if value == usual else Config({name: value}, self.faults).number(name, 0.0)
            for value, usual in zip(values, default, strict=True)
        )

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a JSON object, empty if the file has none."""
        value = self.values.get(name)
        if value is None or isinstance(value, dict):
            return value or {}
        self.faults.append(Fact(name, f"{shown(value)}, and must be a table"))
        return {}

    def flag(self, name: str, default: bool) -> bool:
        """Return the truth value of an option."""
        return bool(self.values.get(name, default))

    def is_enabled(self, option: bool | Option) -> bool:
        """Return a constant, or the truth value of an option."""
        return option if isinstance(option, bool) else self.flag(option.name, option.default)

    def choice(self, name: str, *choices: Any, default: Any = None) -> Any:
        """Return one of the choices, or the first with a fault."""
        value = self.values.get(name, default)
        if value in choices:
            return value
        self.faults.append(Fact(name, f"{shown(value)}; supported are {', '.join(map(repr, choices))}"))
        return choices[0]


def shown(value: Any) -> str:
    """Return the representation of a configuration's value, truncated to 80 characters."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python does not print integers of more than 4,300 digits.
        return "a number of thousands of digits"
