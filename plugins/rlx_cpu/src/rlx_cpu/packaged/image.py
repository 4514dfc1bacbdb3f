"""Linked code: position-independent, with a table of external functions to be filled.

All references between its parts were resolved as relative distances (`linking`), so loading requires no relocation: the loader
copies it, writes addresses into a table behind the code, and makes both read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from rlx_core.ir.forms import Json, need
from rlx_core.pipeline.backend import Blobs, Keep
from rlx_core.system.records import frozen

PAGE: Final = 1 << 16
"""Bytes between which protection can differ on every machine: the largest page of AArch64."""


@frozen
class Image:
    """Linked code.

    Attributes:
        code: Instructions and constants.
        table: Bytes from the start of the code to the table, beyond its last page.
        imports: The functions whose addresses are the table's words.
        exports: Function → bytes from the start.
    """

    code: bytes
    table: int
    imports: tuple[str, ...]
    exports: Mapping[str, int]


def image_form(image: Image, keep: Keep) -> Json:
    """An image as `image_from` reads it, its code in a blob."""
    code = keep(np.frombuffer(image.code, np.uint8))
    return {"code": code, "table": image.table, "imports": list(image.imports), "exports": dict(image.exports)}


def image_from(form: Json, blobs: Blobs) -> Image:
    """Return the image that was written.

    Raises:
        FormatError: The form is no image, or its code is damaged.
    """
    row = need(form, dict, "code")
    (code,) = blobs.arrays([need(row.get("code"), int, "a blob")])
    imports = need(row.get("imports"), list, "imports")
    exports = need(row.get("exports"), dict, "exports")
    return Image(
        code.tobytes(),
        need(row.get("table"), int, "a table"),
        tuple(need(name, str, "a function") for name in imports),
        {name: need(address, int, "an address") for name, address in exports.items()},
    )
