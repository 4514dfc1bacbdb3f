"""Base classes for protocols: of Python for pickles and copies of values and their representations in notebooks, and of arrays
in another form.

A pickle of a graph holds the bytes of a `.rlx` file and the name of one public function that reads them, so unpickling
validates as much as loading does. Types and sizes are pickled as their text, as in files. Pages and pictures are declared here,
and drawn by a layer on which this one does not depend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from rlx_core.errors import FormatError
from rlx_core.public import Registered

if TYPE_CHECKING:
    from typing import Self

_DRAWN_BY: Final = "rlx_core.draw.pages"

PAGES: Final[Registered[type, Callable[[Any], str]]] = Registered(_DRAWN_BY)
"""Class → its page, as HTML."""

PICTURES: Final[Registered[type, Callable[[Any], str]]] = Registered(_DRAWN_BY)
"""Class → its picture, as SVG."""


class EncodedArray(ABC):
    """An array in another form, such as codes and scales, of which an op may be called with the values."""

    __slots__ = ()

    @abstractmethod
    def dequantize(self) -> Any:
        """Return the values."""


class Travels:
    """Something immutable that the format can hold: pickled as its bytes; a copy of it is itself."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        import rlx_core  # whose functions know the plugins that ops come from; this layer does not

        return rlx_core.from_bytes, (rlx_core.to_bytes(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Stays:
    """A part of another object: not picklable, and a copy of it is itself, because another would belong to nothing.

    Attributes:
        travels_with: The object to pickle instead.
    """

    __slots__ = ()

    travels_with: ClassVar[str] = "the graph"

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__.lower()
        raise FormatError(
            f"pickle: a {kind} ({self!r}) belongs to a program and does not travel alone",
            hint=f"pickle {self.travels_with} that it belongs to",
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


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
