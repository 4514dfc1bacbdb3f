"""JSON files of a checkpoint folder. No file outside of the folder is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rlx_core.errors import Fact, FileError, FormatError
from rlx_core.files.reading import open_regular
from rlx_models.checkpoints.config import Config

GENERATION_CONFIG: Final = "generation_config.json"

MAX_JSON_NBYTES: Final = 1 << 26
"""Maximum size of a JSON file; the index of 100,000 tensors has about 10 MB."""


def read_config(folder: Path) -> Config:
    """Return the configuration of a checkpoint.

    Raises:
        FileError: `config.json` is missing.
        FormatError: It is not a JSON object.
    """
    return Config(read_json(folder, "config.json"))


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Return the options of `generation_config.json`, empty if the folder has no such file.

    Raises:
        FormatError: It is not a JSON object.
    """
    return read_json(folder, GENERATION_CONFIG) if (folder / GENERATION_CONFIG).exists() else {}


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the folder.

    Raises:
        FileError: The file cannot be read.
        FormatError: It is too large, or not a JSON object.
    """
    try:
        with open_regular(folder / name) as file:
            text = file.read(MAX_JSON_NBYTES + 1)
    except OSError as error:
        raise FileError(f"from_pretrained: {name} cannot be read: {error.strerror}", Fact("folder", folder)) from None
    if len(text) > MAX_JSON_NBYTES:
        raise FormatError(f"{name}: has more than {MAX_JSON_NBYTES:,} bytes", Fact("folder", folder))
    try:
        value = json.loads(text, object_hook=_decode_float)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: invalid JSON: {error}", Fact("folder", folder)) from None
    if not isinstance(value, dict):
        raise FormatError(f"{name}: is a {type(value).__name__}, not an object", Fact("folder", folder))
    return value


def _decode_float(values: dict[str, Any]) -> Any:
    """Return a float for `{"__float__": "Infinity"}`, by which Transformers writes numbers that JSON does not have."""
    text = values.get("__float__")
    return float(text) if len(values) == 1 and text in ("Infinity", "-Infinity", "NaN") else values
