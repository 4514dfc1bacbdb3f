"""Tensors as arrays and arrays as tensors, in the same memory."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

import rlx_core as rlx
from rlx_core.errors import DtypeError, Fact
from rlx_core.ir.array import unwrapped
from rlx_core.ir.dtypes import DType

__all__ = ["DTYPES", "array_of", "dtype_of", "tensor_of", "torch_dtype"]

DTYPES: Final[dict[torch.dtype, DType]] = {
    torch.bool: rlx.bool_,
    torch.uint8: rlx.u8,
    torch.int8: rlx.i8,
    torch.int16: rlx.i16,
    torch.int32: rlx.i32,
    torch.int64: rlx.i64,
    torch.uint16: rlx.u16,
    torch.uint32: rlx.u32,
    torch.uint64: rlx.u64,
    torch.float16: rlx.f16,
    torch.bfloat16: rlx.bf16,
    torch.float32: rlx.f32,
    torch.float64: rlx.f64,
    torch.complex64: rlx.c64,
    torch.complex128: rlx.c128,
}
_BACK = {dtype: name for name, dtype in DTYPES.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """rlx's dtype of torch's.

    Raises:
        DtypeError: rlx has no such elements.
    """
    if dtype not in DTYPES:
        raise DtypeError(f"torch: rlx has no elements like {dtype}", Fact("dtypes", ", ".join(map(str, DTYPES))))
    return DTYPES[dtype]


def torch_dtype(dtype: DType) -> torch.dtype:
    return _BACK[dtype]


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
