"""Parameters of programs: the record that is passed from the executable to the backend's program.

A weight has five stages. It is *given* by the caller; *checked* against its declared type, in the caller's memory; *prepared* by
the plan's prepare program, which folds what depends on parameters alone; *bound* to a buffer in the memory of a program; and
*packed*, in the arrangement that a kernel reads.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from itertools import count
from typing import Any, Final

import numpy as np

_versions: Final = count(1)


class Params(dict[str, Any]):
    """One version of the parameters: checked or prepared arrays by name, and their copies in programs.

    Several programs may be bound to the same object, one for each combination of sizes. What one of them derives from a value
    alone is cached in one of the three mappings, where the others reuse it.

    Attributes:
        immutable: The names of the arrays that are read-only (`rlx_core.ir.array.is_immutable`), whose packed
            copies several executables share.
        version: Number of the version, unique in the process; prepared parameters have that of the checked ones.
        prepared: Of checked parameters: the prepared ones, once computed; the same for all sizes.
        on_device: Copies on devices, by the names of the device and of the parameter.
        on_host: Copies on the host of arrays on a device, by name.
        packed: Packed operands, by keys of the backend.
        transferred: Bytes copied between the host and a device for these parameters, until a program has reported them.
    """

    def __init__(self, arrays: Mapping[str, Any], immutable: Collection[str] = (), version: int | None = None) -> None:
        super().__init__(arrays)
        self.immutable = frozenset(immutable)
        self.version = next(_versions) if version is None else version
        self.prepared: Params | None = None
        self.on_device: dict[tuple[str, str], Any] = {}
        self.on_host: dict[str, np.ndarray] = {}
        self.packed: dict[Hashable, Any] = {}
        self.transferred = 0
