"""The types of GGUF files: those of metadata, and those of tensors that are not blocks of a scheme.

Source:
    The format's description, docs/gguf.md of github.com/ggml-org/ggml, versions 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rlx_core.errors import UnsupportedError
from rlx_core.ir import dtypes
from rlx_core.ir.dtypes import DType
from rlx_core.ir.schemes import Scheme
from rlx_core.pipeline.contributed import expectation
from rlx_core.plugins.host import PluginHost

MAGIC: Final = b"GGUF"
VERSIONS: Final = (1, 2, 3)
MAX_AXES: Final = 4
"""The axes of a tensor of GGML."""
MAX_DEPTH: Final = 8
"""Arrays of arrays; GGML itself has none."""
MAX_NUMBER: Final = 2**63 - 1
DEFAULT_ALIGNMENT: Final = 32

NUMBERS: Final[Mapping[int, np.dtype[Any]]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
"""Types of numbers in metadata."""
BOOL: Final = 7
STRING: Final = 8
ARRAY: Final = 9

DTYPES: Final[Mapping[int, DType]] = {
    0: dtypes.f32,
    1: dtypes.f16,
    24: dtypes.i8,
    25: dtypes.i16,
    26: dtypes.i32,
    27: dtypes.i64,
    28: dtypes.f64,
    30: dtypes.bf16,
}
"""Types of tensors that are plain arrays."""

LAYOUT_KEYS: Final = ("general.alignment", "split.no", "split.count", "split.tensors.count")
"""Metadata that describe the files, not the model."""


class TensorTypes:
    """Types of tensors by number: plain arrays, and the schemes of all plugins."""

    def __init__(self, host: PluginHost) -> None:
        self._host = host
        self._schemes: dict[int, Scheme | None] = {}

    def scheme(self, type_id: int) -> Scheme | None:
        """Return the scheme of a type, or `None` if no plugin has one.

        Raises:
            PluginError: The scheme does not load.
        """
        if type_id not in self._schemes:
            self._schemes[type_id] = self._find(type_id)
        return self._schemes[type_id]

    def _find(self, type_id: int) -> Scheme | None:
        for attempted in (self._host.registry, self._host.activate_all):
            registry = attempted()
            for name, spec in registry.table("schemes").items():
                if getattr(spec, "ggml_id", None) == type_id:
                    scheme: Scheme = registry.load("schemes", name, expectation("schemes", spec, registry))()
                    return scheme
        return None


def unknown_type(name: str, type_id: int) -> UnsupportedError:
    """Return the error of a tensor whose type has neither a dtype nor a scheme."""
    return UnsupportedError(
        f"gguf: {name!r} has the type {type_id}, which no plugin decodes",
        hint="convert the file to another type, such as Q4_K, or add a scheme with this number (hook rlx_schemes)",
    )
