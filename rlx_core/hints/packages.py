"""What to type to install something: a package index only where the name there is known to be the right one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rlx_core.system.records import frozen

__all__ = ["KnownPackage", "known_packages", "reinstalling"]

PIP: Final = "python -m pip install"


@frozen
class KnownPackage:
    """A package that is known to have something that may be asked for.

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
    """The packages by the condition that they make true, from the table of this folder."""
    import tomllib  # here, because only an error needs it and rlx is imported more often than it fails

    table = tomllib.loads(Path(__file__).with_name("known_packages.toml").read_text(encoding="utf-8"))
    return {condition: KnownPackage(name) for condition, name in table.items()}


def reinstalling(distribution: str, metadata: str, option: str) -> str:
    """The command that installs a distribution again, from where it was installed.

    One that came from a folder, a file or a repository need not be on the index at all; its installer has written down
    where it came from (`direct_url.json`).

    Args:
        metadata: The directory of its metadata.
        option: `--upgrade` or `--force-reinstall`.
    """
    origin = direct_origin(Path(metadata) / "direct_url.json")
    return f"{PIP} {option} {distribution if origin is None else origin}"


def direct_origin(file: Path) -> str | None:
    """Where a distribution was installed from, if not from an index."""
    try:
        found = json.loads(file.read_bytes())
        url = found["url"]
        parts = urlsplit(url)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if parts.scheme != "file":
        return f'"{url}"'
    editable = "-e " if (found.get("dir_info") or {}).get("editable") is True else ""
    return f"{editable}{unquote(parts.path)}"
