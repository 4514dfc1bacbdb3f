"""Readers of checkpoints from other packages, found by the entry points of the group `rlx_models.readers`.

A package declares one in its `pyproject.toml`:

    [project.entry-points."rlx_models.readers"]
    transformers = "rlx_torch.transformers_reader:read"

The function takes a `ReadRequest` and returns an architecture and parameters. Its module may import packages that are not
installed; the error then names them and the extra of the reader's distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from rlx_core.errors import ConfigError, PluginError
from rlx_models.architectures import Architecture
from rlx_models.checkpoints import Config

GROUP: Final = "rlx_models.readers"

NATIVE: Final = "rlx"
"""The name of the reader of this package."""

KNOWN_READERS: Final = {"transformers": "rlx-torch[models]"}
"""Requirements that provide a reader by name, for the hints of errors."""


@frozen(kw_only=True)
class ReadRequest:
    """The arguments of a reader.

    Attributes:
        folder: The checkpoint.
        config: Its configuration.
        head: Whether the model has the head of the class in `architectures`.
        sizes: Fixed sizes of the model by name; other sizes are symbolic.
    """

    folder: Path
    config: Config
    head: bool
    sizes: Mapping[str, int]


Reader = Callable[[ReadRequest], tuple[Architecture, Mapping[str, Any]]]


def reader_names() -> list[str]:
    """Return the names of the native reader, of installed ones, and of known ones."""
    return list(dict.fromkeys((NATIVE, *(point.name for point in entry_points(group=GROUP)), *KNOWN_READERS)))


def find_reader(name: str) -> Reader:
    """Return the reader of another package.

    Raises:
        ConfigError: The name is unknown.
        PluginError: The package, or a package that it imports, is not installed; or it fails to load.
    """
    points = tuple(entry_points(group=GROUP, name=name))
    if not points and name not in KNOWN_READERS:
        names = ", ".join(reader_names())
        raise ConfigError(f"from_pretrained: unknown reader {name!r}", hint=f"the readers are {names}")
    if not points:
        raise PluginError(
            f"from_pretrained: reader={name!r} is not installed",
            hint=f"python -m pip install '{KNOWN_READERS[name]}'",
        )
    return _load(points[0])


def _load(point: EntryPoint) -> Reader:
    try:
        reader: Reader = point.load()
    except ModuleNotFoundError as error:
        requirement = KNOWN_READERS.get(point.name) or (point.dist.name if point.dist else point.value)
        raise PluginError(
            f"from_pretrained: reader={point.name!r} needs {error.name}, which is not installed",
            hint=f"python -m pip install '{requirement}'",
        ) from error
    return reader
