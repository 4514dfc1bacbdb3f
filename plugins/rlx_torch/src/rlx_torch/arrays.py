"""Tensors as arrays and arrays as tensors, in the same memory."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from rlx_core.importing.dtypes import DtypeMap
from rlx_core.ir.array import unwrapped
from rlx_core.ir.dtypes import ALL

DTYPES: Final[DtypeMap[torch.dtype]] = DtypeMap({getattr(torch, dtype.numpy.name): dtype for dtype in ALL})
"""torch's dtypes and rlx's, which have NumPy's names in torch."""


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor on the CPU as an array of NumPy's, without a copy."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:  # which torch does not pass to NumPy: the same two bytes under another name
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """Return the elements of an array, or of a DLPack object on another device, as a tensor, without a copy."""
    array = unwrapped(array)
    if not isinstance(array, np.ndarray | np.generic):
        return torch.from_dlpack(array)
    array = np.require(array, requirements="W")  # torch has no read-only tensors
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
