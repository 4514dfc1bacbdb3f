"""Digests of records, from which the registry's hash is computed.

A digest covers all fields of a record and the distribution and version that contributed it; nothing that differs
between two machines with the same packages (paths, the order of installation, Python's hash seed).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from rlx_core.contributions import Contribution, LazyRef
from rlx_core.errors import PluginError
from rlx_core.plugins.entry import PluginEntry, normalized


def record_digest(record: Contribution, entry: PluginEntry) -> str:
    """Return the digest of one record of a plugin."""
    owner = [entry.name, normalized(entry.distribution), entry.version]
    return sha256([type(record).__name__, owner, fields_of(record)])


def sha256(content: object) -> str:
    """Return the digest of a JSON value, in its one canonical spelling."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: object) -> Any:
    """Return a field's value as JSON; types that JSON would confuse are tagged."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}  # 1.0 is not 1, and no digit is lost
    if isinstance(value, LazyRef):
        return {"reference": str(value)}
    if attrs.has(type(value)):
        return {"record": fields_of(value)}
    if isinstance(value, type):
        return {"type": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, Mapping):
        return {"table": {key: canonical(each) for key, each in value.items()}}
    if isinstance(value, Iterable):
        return [canonical(each) for each in value]
    raise PluginError(f"a record holds a {type(value).__name__}, which cannot be hashed the same way everywhere")


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record as JSON, by name."""
    return {each.name: canonical(getattr(record, each.name)) for each in attrs.fields(type(record))}
