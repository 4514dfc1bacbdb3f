"""`onnx.backend.base.Backend` for rlx, for ONNX's test runner and programs written against it.

A backend receives arrays, not types, so a model is compiled for the types of the arrays of its first run. An input that must be
known at compile time, such as the sizes of `Reshape`, is fixed to its value: another value requires another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

import rlx_core as rlx
from rlx_core.errors import UnsupportedError, WrongInputCountError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.reading.model import InputsNeeded, load
from rlx_onnx.reading.tensors import HELD, numpy_dtype


class RlxRep(BackendRep):  # type: ignore[misc]  # onnx has no types
    """A model that is compiled when it is run, once for each set of types.

    Attributes:
        held: The inputs whose values are constants of the last program.
    """

    def __init__(self, model: Any, target: str) -> None:
        self.model, self.target = model, target
        self.held: tuple[str, ...] = ()
        initial = {each.name for each in model.graph.initializer}
        self._inputs = [each for each in model.graph.input if each.name not in initial]
        self._programs: dict[Any, Any] = {}
        self._needed: set[str] = set()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results, in the order in which the model has them."""
        values = self._given(inputs)
        while True:
            try:
                program = self._program(values)
                break
            except UnsupportedError as error:
                needed = [name for fact in error.facts if isinstance(fact.value, InputsNeeded) for name in fact.value]
                if not set(needed) - self._needed:
                    raise
                self._needed |= set(needed)
        self.held = tuple(name for name in values if self._is_held(name, values[name]))
        result = program(*(_arrays(value) for name, value in values.items() if name not in self.held))
        outputs = self.model.graph.output
        ordered = [result] if len(outputs) == 1 else [result[each.name] for each in outputs]
        return tuple(_result(value, each.type) for value, each in zip(ordered, outputs, strict=True))

    def _given(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return {each.name: _plain(inputs[each.name]) for each in self._inputs}
        values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(self._inputs):
            names = ", ".join(each.name for each in self._inputs)
            raise WrongInputCountError(f"{self.model.graph.name}: takes {names}, not {len(values)} arrays")
        return {each.name: _plain(value) for each, value in zip(self._inputs, values, strict=True)}

    def _is_held(self, name: str, value: Any) -> bool:
        """Return whether a program is compiled for the value itself: one that must be known, and one without an array in it."""
        return name in self._needed or value is None or (isinstance(value, list | tuple) and not value)

    def _program(self, values: Mapping[str, Any]) -> Any:
        fixed = {name: value for name, value in values.items() if self._is_held(name, value)}
        types = {name: _types(value) for name, value in values.items() if name not in fixed}
        key = (str(types), str({name: (_types(value), _bytes(value)) for name, value in fixed.items()}))
        if key not in self._programs:
            model = onnx.ModelProto()
            model.CopyFrom(self.model)
            self._programs[key] = load(model, inputs=types, known=fixed).compile(target=self.target)
        return self._programs[key]


class RlxBackend(Backend):  # type: ignore[misc]  # as above
    """rlx as ONNX's tools see it: `rlx_onnx.backend.RlxBackend.prepare(model, "CPU").run(arrays)`."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> RlxRep:
        """The model, ready to be run; it is compiled when the types of its inputs are known."""
        return RlxRep(model, _target(device))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device is there: `CPU`, or `CUDA` where rlx-cuda finds one."""
        return rlx.is_available(_target(device))


def _target(device: str) -> str:
    return {DeviceType.CPU: "cpu", DeviceType.CUDA: "cuda"}[Device(device).type]


def _plain(value: Any) -> Any:
    """Return a value, converted to an array if it is a message as in a file."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _types(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_types(each) for each in value]
    array = _arrays(value)
    if array.dtype.kind in "OSU":
        raise UnsupportedError("texts are not supported", hint="texts outside of the model")
    return f"{dtype_of(array.dtype).name}[{', '.join(map(str, array.shape))}]"


def _bytes(value: Any) -> Any:
    return [_bytes(each) for each in value] if isinstance(value, list | tuple) else np.asarray(value).tobytes()


def _arrays(value: Any) -> Any:
    """Arrays as programs of rlx take them: elements of few bits in the dtype that holds them."""
    if isinstance(value, list | tuple):
        return [_arrays(each) for each in value]
    array = np.asarray(value)
    storage = next((HELD[element] for element in HELD if numpy_dtype(element) == array.dtype), None)
    return array if storage is None else array.astype(storage)


def _result(value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return [_result(each, kind.sequence_type.elem_type) for each in value]
    if isinstance(value, dict):
        return {key: _result(each, kind.map_type.value_type) for key, each in value.items()}
    if value is None:
        return None
    element = kind.tensor_type.elem_type
    array = np.asarray(value)
    return array.astype(numpy_dtype(element)) if element in HELD else array
