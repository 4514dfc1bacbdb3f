"""A folder with a checkpoint: its configuration, and tensors that stay in their files until they are read.

Nothing outside of the folder is opened, whatever an index says, and every fault of a checkpoint is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define, field, frozen

from rlx_core.errors import Fact, FileError, FormatError
from rlx_core.files.reading import open_regular
from rlx_core.files.safetensors import load_safetensors
from rlx_core.ir.dtypes import dtype as dtype_of

__all__ = ["Config", "Option", "checked", "read_config", "read_generation", "read_tensors"]

_PICKLES: Final = (
    "a pickle runs code when it is read; safetensors.torch.save_file(torch.load(file, weights_only=True), "
    '"model.safetensors") makes a file of tensors of it'
)

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
GENERATION = "generation_config.json"

MOST_PARTS: Final = 16_384

PARTS: Final = frozenset(
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
"""What a configuration calls the numbers of parts of a model, each of which takes time and memory before any tensor is read."""

MOST_SIZE: Final = 1 << 31
MOST_NUMBER: Final = 1e30

MOST_JSON: Final = 1 << 26
"""Bytes of a file of JSON; an index of 100,000 tensors has some 10 MB."""

Shapes = Mapping[str, tuple[int, ...]]
"""The tensors of an architecture by their names."""


@frozen
class Option:
    """A value that configurations state.

    Attributes:
        name: Its name in `config.json`.
        default: The value where the file has none, as in Transformers 5.24; `None` where the file must have it.
    """

    name: str
    default: Any = None


@define
class Config:
    """The configuration of a checkpoint, read by what an architecture knows of it.

    Attributes:
        rows: What the file says.
        faults: What it says that is not known here, or does not say; collected, so that one error has all of it.
    """

    rows: Mapping[str, Any]
    faults: list[Fact] = field(factory=list)

    def size(self, name: str, default: int | None = None) -> int:
        """A positive number; one is given back where there is none, beside the fault."""
        found = self.rows.get(name)
        found = default if found is None else found
        most = MOST_PARTS if name in PARTS else MOST_SIZE
        if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= most:
            return found
        self.faults.append(Fact(name, f"{shown(found)}, and must be a number from 1 to {most:,}"))
        return 1

    def sizes(self, name: str, count: int) -> tuple[int, ...]:
        """So many of them, or one for all."""
        found = self.rows.get(name)
        each = found if isinstance(found, list | tuple) else [found] * count
        if len(each) != count:
            self.faults.append(Fact(name, f"{shown(found)}, and must be {count} numbers above 0"))
            return (1,) * count
        return tuple(Config({name: one}, self.faults).size(name) for one in each)

    def entries(self, name: str, default: int) -> int:
        """How many a table has."""
        found = self.rows.get(name)
        if found is None or (isinstance(found, dict) and found):
            return default if found is None else len(found)
        self.faults.append(Fact(name, f"{shown(found)}, and must be a table"))
        return 1

    def number(self, name: str, default: float) -> float:
        found = self.rows.get(name)
        found = default if found is None else found
        if isinstance(found, int | float) and not isinstance(found, bool) and abs(found) <= MOST_NUMBER:
            return float(found)
        self.faults.append(Fact(name, f"{shown(found)}, and must be a number of at most {MOST_NUMBER:g}"))
        return default

    def numbers(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """Return as many numbers as the default has; the default's infinities may be stated too."""
        found = self.rows.get(name)
        found = default if found is None else found
        if not isinstance(found, list | tuple) or len(found) != len(default):
            self.faults.append(Fact(name, f"{found!r}, and must be {len(default)} numbers"))
            return default
        return tuple(
            usual if each == usual else Config({name: each}, self.faults).number(name, 0.0)
            for each, usual in zip(found, default, strict=True)
        )

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of its own; an empty one where there is none."""
        found = self.rows.get(name)
        if found is None or isinstance(found, dict):
            return found or {}
        self.faults.append(Fact(name, f"{shown(found)}, and must be a table"))
        return {}

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.rows.get(name, default))

    def option(self, given: bool | Option) -> bool:
        """Return a fixed value, or that of an option."""
        return given if isinstance(given, bool) else self.flag(given.name, given.default)

    def known(self, name: str, *known: Any, default: Any = None) -> Any:
        """One of some values; the first is given back where it is another, beside the fault."""
        found = self.rows.get(name, default)
        if found in known:
            return found
        self.faults.append(Fact(name, f"{shown(found)}; known are {', '.join(map(repr, known))}"))
        return known[0]


def read_config(folder: Path) -> Config:
    """The configuration.

    Raises:
        FileError: There is none.
        FormatError: It is no JSON object.
    """
    return Config(_json(folder, "config.json"))


def read_generation(folder: Path) -> dict[str, Any]:
    """What is said of writing texts in `generation_config.json`, where there is one.

    Raises:
        FormatError: It is no JSON object.
    """
    return _json(folder, GENERATION) if (folder / GENERATION).exists() else {}


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of all files by name, as views of the mapped files.

    Raises:
        FileError: A file is not there.
        FormatError: A file is damaged, is named outside of the folder, or does not have what the index says.
    """
    if not (folder / INDEX).exists():
        return _tensors(folder, WHOLE)
    places = _json(folder, INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise FormatError("index: weight_map is no table of files", Fact("file", folder / INDEX))
    wrong = sorted(
        {each for each in places.values() if Path(each).name != each or each in ("", ".", "..") or "\0" in each}
    )
    if wrong:
        raise FormatError(f"index: {wrong[0]!r} is no file of the folder", Fact("file", folder / INDEX))
    files = {each: _tensors(folder, each) for each in sorted(set(places.values()))}
    absent = sorted(name for name, each in places.items() if name not in files[each])
    if absent:
        raise FormatError(f"index: {places[absent[0]]} does not have {absent[0]}", Fact("file", folder / INDEX))
    return {name: files[each][name] for name, each in places.items()}


def _tensors(folder: Path, name: str) -> dict[str, np.ndarray]:
    try:
        return load_safetensors(folder / name)
    except OSError as error:
        pickles = sorted(each.name for each in folder.glob("*.bin"))
        raise FileError(
            f"from_pretrained: {name} cannot be read: {error.strerror}",
            Fact("folder", folder),
            *([Fact("not read", ", ".join(pickles[:5]))] if pickles else []),
            hint=_PICKLES if pickles else None,
        ) from None


def shown(value: Any) -> str:
    """A value of a configuration, cut where it is long."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"


def _json(folder: Path, name: str) -> dict[str, Any]:
    try:
        with open_regular(folder / name) as file:
            text = file.read(MOST_JSON + 1)
    except OSError as error:
        raise FileError(f"from_pretrained: {name} cannot be read: {error.strerror}", Fact("folder", folder)) from None
    if len(text) > MOST_JSON:
        raise FormatError(f"{name}: has more than {MOST_JSON:,} bytes", Fact("folder", folder))
    try:
        found = json.loads(text, object_hook=_float)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: is no JSON: {error}", Fact("folder", folder)) from None
    if not isinstance(found, dict):
        raise FormatError(f"{name}: is a {type(found).__name__}, not an object", Fact("folder", folder))
    return found


def _float(rows: dict[str, Any]) -> Any:
    """Return other objects as they are; `{"__float__": "Infinity"}` of Transformers is a number that JSON does not have."""
    stated = rows.get("__float__")
    return float(stated) if len(rows) == 1 and stated in ("Infinity", "-Infinity", "NaN") else rows


def checked(
    what: str,
    tensors: Mapping[str, np.ndarray],
    shapes: Shapes,
    prefix: str,
    unused: tuple[str, ...],
    optional: tuple[str, ...] = (),
) -> dict[str, np.ndarray]:
    """The tensors of an architecture by its own names.

    Args:
        what: The architecture.
        tensors: Those of the checkpoint.
        shapes: Those that there must be.
        prefix: What the checkpoint may put before the names.
        unused: Beginnings or ends of names that a checkpoint may have besides: heads and buffers of other uses.
        optional: Names that it may lack.

    Raises:
        FormatError: Tensors are missing, misshapen or unknown; all of them are named.
    """
    found = {name.removeprefix(prefix): each for name, each in tensors.items()}
    facts = [
        Fact(name, f"is missing, {list(shape)}") for name, shape in shapes.items() if name not in (*found, *optional)
    ]
    facts += [
        Fact(name, f"is {list(found[name].shape)}, and the configuration says {list(shape)}")
        for name, shape in shapes.items()
        if name in found and found[name].shape != shape
    ]
    facts += [
        Fact(name, f"is of {found[name].dtype}, and must be of floats")
        for name in shapes
        if name in found and not dtype_of(found[name].dtype).is_float
    ]
    more = [n for n in found if n not in shapes and not n.startswith(unused) and not n.endswith(unused)]
    facts += [Fact(name, "is not known") for name in more]
    if facts:
        count = f"{len(facts)} tensors do" if len(facts) > 1 else "a tensor does"
        rest = [Fact("more", len(facts) - 12)] if len(facts) > 12 else []
        raise FormatError(f"from_pretrained: {count} not fit the architecture {what}", *facts[:12], *rest)
    return {name: found[name] for name in shapes if name in found}
