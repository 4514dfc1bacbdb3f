"""Representations of programs in notebooks: declared here, and drawn by a layer on which this one does not depend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rlx_core.public import Registered

_DRAWN_BY: Final = "rlx_core.draw.pages"

PAGES: Final[Registered[type, Callable[[Any], str]]] = Registered(_DRAWN_BY)
"""Class → its page, as HTML."""

PICTURES: Final[Registered[type, Callable[[Any], str]]] = Registered(_DRAWN_BY)
"""Class → its picture, as SVG."""


class Shown:
    """An object with a page. The module that draws it is loaded for the first one shown, since most programs never are."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return PAGES[type(self)](self)


class Drawn(Shown):
    """Something with a page and a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return PICTURES[type(self)](self)
