"""`FileTensor`: a tensor of a file, whose data are read on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from rlx_core.ir.dtypes import DType

if TYPE_CHECKING:
    from rlx_core.ir.schemes import Scheme
    from rlx_core.quantization import QuantizedArray


class FileTensor(ABC):
    """A tensor of a file; a reader of files with quantised tensors returns a mapping of these by name.

    Attributes:
        name: Its name.
        dtype: The dtype of `numpy()`; `None` if the type is unknown.
        scheme: The scheme of its blocks; `None` for plain arrays and unknown types.
        shape: Its shape, the outermost axis first.
        nbytes: Its bytes in the file; `None` if the type is unknown.
    """

    name: str
    dtype: DType | None
    scheme: Scheme | None
    shape: tuple[int, ...]
    nbytes: int | None

    @abstractmethod
    def numpy(self) -> np.ndarray:
        """Return the values: plain arrays as views of the file where they are aligned, quantised ones decoded to f32.

        Raises:
            UnsupportedError: The type is unknown.
        """

    @abstractmethod
    def quantized(self) -> QuantizedArray:
        """Return the fields of its blocks with its scheme.

        Raises:
            UnsupportedError: The type is unknown, or is no scheme.
        """
