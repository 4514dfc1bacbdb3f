"""A model whose graph depends on the sizes of its inputs: it is read and compiled for the sizes that it is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import numpy as np
import optree
from attrs import field

from rlx_core.errors import UnsupportedError, WrongInputCountError
from rlx_core.functions.model import Model
from rlx_core.importing.host_steps import signature_of
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.solve import infer_binding
from rlx_core.ir.types import TensorType
from rlx_core.system.lru import LruCache
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import bind_arguments

CAPACITY: Final = 64
"""Maximum number of cached programs: the same as for a program with symbols."""


@frozen(eq=False)
class Specialising:
    """The data from which a model is read again once sizes are known.

    Attributes:
        name: The model.
        why: The node whose graph depends on sizes, in words.
        inputs: Name of an argument → its type, or a pytree of them.
        read: A binding of the symbols, and parameters → the model with these sizes.
    """

    name: str
    why: str
    inputs: Mapping[str, Any]
    read: Callable[[DimBinding, Mapping[str, Any]], Model] = field(repr=False)

    def compiled(self, parameters: Mapping[str, Any], **how: Any) -> SpecialisedFunction:
        """A function that compiles for the sizes of each call; `how` is what `rlx.compile` takes."""
        return SpecialisedFunction(self, parameters, how)

    def refuse(self, why: str) -> NoReturn:
        """Say that there is no program for all sizes.

        Raises:
            UnsupportedError: Always.
        """
        name = next((name for name, each in self.inputs.items() if hasattr(each, "shape")), "x")
        raise UnsupportedError(
            f"{self.name}: its graph depends on sizes ({self.why}), and {why}",
            hint=f'rlx_onnx.load(file, inputs={{"{name}": "f32[2, 512]"}}) reads it for one size',
        )


@frozen(eq=False, repr=False)
class SpecialisedReport:
    """The reports of the compiled programs, by their sizes.

    Attributes:
        name: The model.
        why: The node whose graph depends on sizes.
        programs: Sizes → the report of the program for them.
    """

    name: str
    why: str
    programs: Mapping[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.name}: a program for each size, because of {self.why}; {len(self.programs)} so far"]
        lines += [f"  {sizes}\n{report}" for sizes, report in self.programs.items()]
        return "\n".join(lines)

    __repr__ = __str__


class SpecialisedFunction(Bundled):
    """A model that is compiled for each size; call it with its inputs, in order or by name."""

    def __init__(self, made_from: Specialising, parameters: Mapping[str, Any], how: Mapping[str, Any]) -> None:
        self.name = made_from.name
        self._from, self._parameters, self._how = made_from, parameters, dict(how)
        self._programs: LruCache[str, Any] = LruCache(CAPACITY)

    def __call__(self, *args: Any, **named: Any) -> Any:
        values = list(bind_arguments(signature_of(self.name, self._from.inputs), args, named).values())
        return self.for_sizes(self._binding(values))(*values)

    def for_sizes(self, binding: DimBinding) -> Any:
        """Return the program for these sizes, compiled on first use."""
        sizes = ", ".join(f"{symbol.name}={size}" for symbol, size in binding.sizes.items())

        return self._programs.get_or_make(
            sizes, lambda: self._from.read(binding, self._parameters).compile(**self._how)
        )

    def _binding(self, values: list[Any]) -> DimBinding:
        types: dict[str, TensorType] = {}
        arrays: dict[str, Any] = {}
        for (name, spec), value in zip(self._from.inputs.items(), values, strict=True):
            specs, result = optree.tree_leaves(spec), optree.tree_leaves(value)
            if len(specs) != len(result):
                raise WrongInputCountError(f"{self.name}: {name} has {len(specs)} arrays, not {len(result)}")
            labels = [name] if len(specs) == 1 else [f"{name}.{i}" for i in range(len(specs))]
            types |= dict(zip(labels, specs, strict=True))
            arrays |= {label: _shaped(each) for label, each in zip(labels, result, strict=True)}
        return infer_binding(types, arrays)

    @property
    def report(self) -> SpecialisedReport:
        """The reports of the programs that are compiled and cached."""
        programs = {sizes: self._programs.get(sizes) for sizes in self._programs.keys()}  # noqa: SIM118  (it is no mapping)
        retained = {sizes: each.report for sizes, each in programs.items() if each is not None}
        return SpecialisedReport(self.name, self._from.why, retained)

    def bundle(self) -> Bundle:
        """Nothing: a file holds one program.

        Raises:
            UnsupportedError: Always.
        """
        self._from.refuse("a file holds one program")

    def __repr__(self) -> str:
        return f"<compiled {self.name}({', '.join(self._from.inputs)}) for each size>"


def _shaped(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)
