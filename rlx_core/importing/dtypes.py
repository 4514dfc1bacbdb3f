"""Element types of another system and dtypes of rlx."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from rlx_core.errors import DtypeError, Fact, RlxError
from rlx_core.ir.dtypes import DType

K = TypeVar("K", bound=Hashable)


class DtypeMap(Mapping[K, DType], Generic[K]):
    """Element type of another system → dtype of rlx, with the inverse mapping.

    Args:
        dtypes: The mapping, one to one.
        label: Returns the name of an element type in errors.
        error: The class of the error for other element types, which mean an invalid file where they are numbers in a file.
    """

    def __init__(
        self, dtypes: Mapping[K, DType], label: Callable[[Any], str] = str, error: type[RlxError] = DtypeError
    ) -> None:
        self._dtypes, self._label, self._error = dict(dtypes), label, error
        self._elements = {dtype: element for element, dtype in self._dtypes.items()}

    def dtype(self, element: K, location: str) -> DType:
        """Return the dtype for an element type.

        Args:
            element: The element type.
            location: The object that has it, at the beginning of the error's message.

        Raises:
            DtypeError: rlx has no such dtype; or the error class of the map.
        """
        if element not in self._dtypes:
            supported = Fact("supported", ", ".join(map(self._label, self._dtypes)))
            raise self._error(f"{location}: rlx has no dtype for elements of {self._label(element)}", supported)
        return self._dtypes[element]

    def element(self, dtype: DType) -> K:
        """Return the element type for a dtype.

        Raises:
            DtypeError: The other system has none; or the error class of the map.
        """
        if dtype not in self._elements:
            raise self._error(
                f"there is no element type for {dtype}", Fact("supported", ", ".join(map(str, self.values())))
            )
        return self._elements[dtype]

    def __getitem__(self, element: K) -> DType:
        return self._dtypes[element]

    def __iter__(self) -> Iterator[K]:
        return iter(self._dtypes)

    def __len__(self) -> int:
        return len(self._dtypes)
