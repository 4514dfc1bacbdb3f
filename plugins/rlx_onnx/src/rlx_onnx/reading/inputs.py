"""A model's declared inputs as types of rlx: names of sizes become symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnx import TensorProto

import rlx_core as rlx
from rlx_core.errors import FormatError, UnsupportedError
from rlx_core.importing.symbols import SymbolTable
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.system.records import frozen
from rlx_onnx.reading.tensors import DTYPES, HELD
from rlx_onnx.walking.values import Coded

#: Several exporters write this `dim_value` for a size that is not known, instead of a `dim_param` or nothing.
UNKNOWN_SIZE = -1

#: And these `dim_param`s: Paddle writes "?" for every size that it does not know, whether or not they are equal.
UNKNOWN_NAMES = frozenset({"", "?", "-1"})


@frozen
class ModelInput:
    """An input of a model.

    Attributes:
        name: Its name in the file.
        spec: Its type, or a list of types for a sequence.
        element: ONNX's element type if rlx has no equivalent, else 0.
    """

    name: str
    spec: Any
    element: int = 0

    def entered(self, value: Any) -> Any:
        """Return the representation of a traced value in the walk."""
        return Coded(value, self.element) if self.element else list(value) if isinstance(value, tuple) else value


def inputs_of(declared: Iterable[Any], types: Mapping[str, Any]) -> list[ModelInput]:
    """Return the inputs that a graph declares.

    Args:
        declared: `ValueInfoProto`s.
        types: Input → its type, where the caller specifies it.

    Raises:
        FormatError, UnsupportedError: An input has a type that rlx does not have, or no type.
    """
    symbols = SymbolTable()
    return [_input(each, types.get(each.name), symbols) for each in declared]


def _input(declared: Any, message: Any, symbols: SymbolTable) -> ModelInput:
    name, kind = declared.name, declared.type
    tensor = kind.tensor_type
    element = tensor.elem_type if kind.HasField("tensor_type") and tensor.elem_type in HELD else 0
    if message is not None:
        is_list = isinstance(message, list | tuple)
        return ModelInput(name, [rlx.spec(each) for each in message] if is_list else rlx.spec(message), element)
    hint = f'rlx_onnx.load(file, inputs={{"{name}": "f32[n, 3]"}}) says it'
    if not kind.HasField("tensor_type"):
        what = kind.WhichOneof("value") or "nothing"
        raise UnsupportedError(
            f"input {name}: it is a {what.removesuffix('_type')}, whose length is not known", hint=hint
        )
    if not tensor.HasField("shape"):
        raise UnsupportedError(f"input {name}: the model does not say how many axes it has", hint=hint)
    if tensor.elem_type == TensorProto.STRING:
        raise UnsupportedError(f"input {name}: texts are not supported", hint="texts outside of the model")
    dtype = dtype_of(HELD[element]) if element else DTYPES.dtype(tensor.elem_type, f"input {name}")
    dims = [_dim(name, axis, each, symbols) for axis, each in enumerate(tensor.shape.dim)]
    return ModelInput(name, rlx.TensorType(dtype, tuple(dims)), element)


def _dim(name: str, axis: int, dim: Any, symbols: SymbolTable) -> Any:
    if dim.HasField("dim_value") and dim.dim_value != UNKNOWN_SIZE:
        if dim.dim_value < 0:
            raise FormatError(f"input {name}: a size is at least 0, not {dim.dim_value}")
        return int(dim.dim_value)
    return symbols[f"{name}_{axis}" if dim.dim_param in UNKNOWN_NAMES else dim.dim_param]
