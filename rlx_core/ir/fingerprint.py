"""The fingerprint of a program: a SHA-256 over everything that can change its results, and over nothing else.

Two programs that may give different results differ in it; the origins, names and creation order of nodes
do not matter. It is the same in every process and on every machine, so caches and files can be keyed by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from rlx_core.errors import FormatError
from rlx_core.ir.encoding import Encoder, literal_bytes
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Graph, Literal

FINGERPRINT_VERSION = 1
"""Part of every fingerprint; raised whenever the canonical encoding changes."""


def fingerprint(graph: Graph, *, context: Mapping[str, object] | None = None) -> str:
    """Return the hex digest of a graph and of its compilation context.

    Args:
        graph: Ops with versions and all attributes, nested graphs and constant bytes included; types of all results;
            operands; guards and symbols; names and order of inputs and params; outputs.
        context: Everything else that can change code or results, by name: target, claimed kernels and their versions,
            precision, pass options, device properties, plugins. Values are attributes, mappings or sequences of them.

    Raises:
        FormatError: A value of the context has no canonical form.
    """
    form = {
        "version": FINGERPRINT_VERSION,
        "graph": Encoder(literal_digest, keeps_names=False).graph(graph),
        "context": canonical(context or {}),
    }
    return digest_of(form)


def digest_of(form: Json) -> str:
    """The SHA-256 of a JSON form, as hex."""
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def literal_digest(value: Literal) -> str:
    """Return the form of a constant that is hashed."""
    return hashlib.sha256(literal_bytes(value)).hexdigest()


def canonical(value: object) -> Json:
    """Context as JSON: mappings by sorted key, sets by sorted content, sequences in order, the rest as attributes.

    Raises:
        FormatError: A value is not of these kinds, or a key is not a string.
    """
    if isinstance(value, Mapping):
        strange = [k for k in value if not isinstance(k, str)]
        if strange:
            raise FormatError(f"fingerprint: keys are strings, not {type(strange[0]).__name__} ({strange[0]!r})")
        return {"map": {k: canonical(value[k]) for k in sorted(value)}}
    if isinstance(value, set | frozenset):
        return {"set": sorted((canonical(v) for v in value), key=lambda form: json.dumps(form, sort_keys=True))}
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return Encoder(literal_digest, keeps_names=False).value(value)
