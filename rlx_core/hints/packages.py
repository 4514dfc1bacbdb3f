"""Install commands: from a package index only if the name there is known to be correct."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rlx_core.system.records import frozen

PIP: Final = "python -m pip install"


@frozen
class KnownPackage:
    """A package that is known to provide a condition.

    Args:
        name: The distribution.
    """

    name: str

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"{PIP} {self.name}"


@cache
def known_packages() -> dict[str, KnownPackage]:
    """The packages by the condition that they satisfy, from the table of this folder."""
    import tomllib  # here, because only an error needs it and rlx is imported more often than it fails

    table = tomllib.loads(Path(__file__).with_name("known_packages.toml").read_text(encoding="utf-8"))
    return {condition: KnownPackage(name) for condition, name in table.items()}


def reinstalling(distribution: str, metadata: str, option: str) -> str:
    """The command that reinstalls a distribution from its original source.

    A distribution from a folder, a file or a repository need not be on the index; its installer recorded the origin
    (`direct_url.json`).

    Args:
        metadata: The directory of its metadata.
        option: `--upgrade` or `--force-reinstall`.
    """
    origin = direct_origin(Path(metadata) / "direct_url.json")
    return f"{PIP} {option} {distribution if origin is None else origin}"


def direct_origin(file: Path) -> str | None:
    """The origin of a distribution, if it was not installed from an index."""
    try:
        record = json.loads(file.read_bytes())
        url = record["url"]
        parts = urlsplit(url)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if parts.scheme != "file":
        return f'"{url}"'
    editable = "-e " if (record.get("dir_info") or {}).get("editable") is True else ""
    return f"{editable}{unquote(parts.path)}"
