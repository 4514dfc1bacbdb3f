"""A file, or a model in memory, as an `rlx.Model`."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import optree
from attrs import evolve
from google.protobuf.message import DecodeError

import rlx_core as rlx
from rlx_core.errors import Fact, FileError, FormatError, RlxError, UnknownNameError, UnsupportedError, nearest
from rlx_core.files.reading import mapped
from rlx_core.functions.model import Model, argument_names
from rlx_core.importing.report import expect_handlers
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.pipeline.set_up import working_on
from rlx_onnx.reading.converting import converted
from rlx_onnx.reading.external import bytes_in
from rlx_onnx.reading.inputs import ModelInput, inputs_of
from rlx_onnx.reading.parts import WalkedModel, partitioned, result_of, results_of
from rlx_onnx.reading.structure import check_signatures, check_structure, each_graph, node_words
from rlx_onnx.reading.tensors import DTYPES, array_of
from rlx_onnx.reading.weights import mapped_weights
from rlx_onnx.specialised import Specialising
from rlx_onnx.walking.table import TABLE, operation_name
from rlx_onnx.walking.walk import ModelWalk, NeedsKnown, NeedsSizes, entered

FLOATS: Final = frozenset({"f16", "bf16", "f32", "f64"})
"""Dtypes of tensors that are parameters, where they have an axis."""


def import_file(path: Path, host: Any = None) -> Model:
    """The importer of `.onnx` files: what `rlx.load` calls."""
    return load(path)


def load(
    model: str | os.PathLike[str] | Any,
    *,
    inputs: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Model:
    """A model of ONNX as a model of rlx.

    Tensors of floats with an axis are parameters, by their names in the file; other tensors are constants, and so are tensors
    whose numbers determine a shape, and scales of codes for a tensor or an axis. The tensors of a file, and of external files,
    are memory-mapped and not copied.

    Args:
        model: A file, or an `onnx.ModelProto`, which may be changed.
        inputs: Input → its type (`"f32[batch, 64]"`; a list of them for a sequence), if the model does not declare it or if its
            type is to be narrowed.
        known: Input → its value. It is then no input of the result: for sizes that the model takes as an input.

    Returns:
        A function of the inputs. One result is returned as it is, several in a dictionary by their names.

    Raises:
        FormatError, CycleError: The model is invalid; the message names the node.
        FileError: The file cannot be read.
        BudgetError: It causes more work than `[budget]` of the configuration allows.
        UnsupportedError: It uses operations that are not there, all of which are named, or a value in a place where it must be
            known when the program is compiled.
    """
    with working_on(f"loading {called(model)}"):
        return _loaded(model, inputs, known)


def _loaded(model: Any, inputs: Mapping[str, Any] | None, known: Mapping[str, Any] | None) -> Model:
    proto, weights, folder, name = read_proto(model)
    try:
        check_structure(proto)
        check_signatures(proto)
        proto, taken = prepared(proto)
        return _Reading(proto, bytes_in(folder, weights | taken), name, dict(inputs or {}), dict(known or {})).model()
    except RlxError as error:
        raise error.about(name) from error.__cause__


def called(model: Any) -> str:
    """Return a model's name in errors: the name of its file or of its graph."""
    if isinstance(model, onnx.ModelProto):
        return model.graph.name or "model"
    return Path(model).name


def read_proto(model: Any) -> tuple[Any, dict[str, np.ndarray], Path | None, str]:
    """The `ModelProto`, the bytes of a file's large tensors, which are not in it, its folder, and what errors call it.

    Raises:
        FileError, FormatError: The file cannot be read, or is no model.
    """
    if isinstance(model, onnx.ModelProto):
        return model, {}, None, called(model)
    path = Path(model)
    try:
        data, taken = mapped_weights(mapped(path))
    except OSError as error:
        raise FileError(f"load: {path} cannot be read ({error.strerror or error})") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise FormatError(f"{path.name}: it is no ONNX model ({error})") from None
    return proto, taken, path.parent, called(path)


def prepared(proto: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A checked model in the form that is walked, and the bytes of its large tensors, which are not in it any more.

    Raises:
        UnsupportedError: Operations are left for which there is no handler.
    """
    proto, _, taken = converted(proto)
    nodes = (node for graph in each_graph(proto.graph) for node in graph.node)
    expect_handlers("", TABLE, ((operation_name(node.domain, node.op_type), node_words(node)) for node in nodes))
    return proto, taken


class _Reading:
    """A model under construction: one walk determines which tensors are parameters."""

    def __init__(
        self,
        proto: Any,
        outside: Callable[[Any], np.ndarray],
        name: str,
        types: dict[str, Any],
        known: dict[str, Any],
    ) -> None:
        self.proto, self.outside, self.name, self.given = proto, outside, name, known
        graph = proto.graph
        self.tensors = {each.name: self._tensor(each) for each in graph.initializer}
        for each in graph.sparse_initializer:
            raise UnsupportedError(f"tensor {each.values.name}: sparse tensors are not supported", hint="a dense one")
        declared = [each for each in graph.input if each.name not in self.tensors]
        for each in (*types, *known):
            if each not in {one.name for one in graph.input}:
                names = [one.name for one in graph.input]
                raise UnknownNameError(f"there is no input {each!r}", Fact("inputs", names), hint=nearest(each, names))
        self.inputs: list[ModelInput] = inputs_of([each for each in declared if each.name not in known], types)
        scales = _scales_of(graph)
        self.constants = {
            name
            for name, value in self.tensors.items()
            if not _is_parameter(value) or (name in scales and value.ndim < 2)
        }

    def _tensor(self, tensor: Any) -> Any:
        return entered(array_of(tensor, f"tensor {tensor.name}", self.outside), tensor.data_type)

    def model(self) -> Model:
        try:
            parameters, walked = self._verified()
        except NeedsSizes as error:
            return self._specialised(error.said)
        if walked.steps:
            return partitioned(walked, parameters)
        specs, results = self._arguments(), walked.results

        def function(parameters: Mapping[str, Any], *values: Any) -> Any:
            scope = self._walk(parameters, values)[0]
            return results_of({name: result_of(scope[name]) for name in results})

        return Model(name=walked.name, function=function, parameters=parameters, inputs=specs)

    def _arguments(self) -> dict[str, Any]:
        """The inputs as arguments of a function, with their types."""
        names = argument_names(each.name for each in self.inputs)
        return {name: each.spec for name, each in zip(names, self.inputs, strict=True)}

    def _specialised(self, why: str) -> Model:
        """The model as one that is read again for the sizes that it is called with."""
        specialising = Specialising(self.name.removesuffix(".onnx"), why, self._arguments(), self._with_sizes)

        def function(parameters: Mapping[str, Any], *values: Any) -> Any:
            try:
                scope = self._walk(parameters, values)[0]
            except NeedsSizes:
                specialising.refuse("a transformation or a file takes one program")
            except NeedsKnown as error:
                raise UnsupportedError(error.said, hint="inputs= with all sizes, when the model is read") from None
            return results_of({each.name: result_of(scope[each.name]) for each in self.proto.graph.output})

        return Model(
            name=specialising.name,
            function=function,
            parameters={name: value for name, value in self.tensors.items() if name not in self.constants},
            inputs=specialising.inputs,
            compiler=specialising.compiled,
        )

    def _with_sizes(self, binding: DimBinding, parameters: Mapping[str, Any]) -> Model:
        """The model with numbers for its sizes and other parameters."""
        sized = copy.copy(self)
        sized.tensors = self.tensors | {name: np.asarray(value) for name, value in parameters.items()}
        sized.constants = set(self.constants)
        sized.inputs = [
            evolve(each, spec=optree.tree_map(lambda type: type.bind(binding), each.spec)) for each in self.inputs
        ]
        try:
            return sized.model()
        except RlxError as error:
            raise error.about(self.name) from error.__cause__

    def _verified(self) -> tuple[dict[str, Any], WalkedModel]:
        """Walk until every tensor that must be known is a constant; this also detects errors of the model.

        Returns:
            The parameters, and the walked model.
        """
        while True:
            parameters = {name: value for name, value in self.tensors.items() if name not in self.constants}
            seen: list[Any] = []

            def function(parameters: Mapping[str, Any], *values: Any, seen: list[Any] = seen) -> Any:
                seen += self._walk(parameters, values)
                return [result_of(seen[0][each.name]) for each in self.proto.graph.output]

            try:
                types = {name: _type_of(each) for name, each in parameters.items()}
                rlx.eval_shape(function, types, *(each.spec for each in self.inputs))
                name = self.name.removesuffix(".onnx")
                return parameters, WalkedModel(name, self.proto.graph, self.inputs, *seen)
            except NeedsKnown as error:
                inputs = error.names - self.tensors.keys()
                if inputs:
                    source = ", ".join(sorted(inputs))
                    raise UnsupportedError(
                        f"{error.said}; it comes from {source}",
                        hint=f'rlx_onnx.load(file, known={{"{min(inputs)}": …}}) compiles it for one value',
                    ).with_fact(Fact("inputs", InputsNeeded(inputs))) from None
                self.constants |= error.names

    def _walk(self, parameters: Mapping[str, Any], values: Sequence[Any]) -> tuple[dict[str, Any], ModelWalk]:
        """Return every value of the graph by its name, and the walk that computed them."""
        walk = ModelWalk(self.outside, parameters)
        elements = {each.name: each.type.tensor_type.elem_type for each in self.proto.graph.input}
        scope: dict[str, Any] = {name: self.tensors[name] for name in self.constants}
        scope |= {name: walk.named(name, value) for name, value in parameters.items()}
        for each, value in zip(self.inputs, values, strict=True):
            scope[each.name] = walk.named(each.name, each.entered(value))
        scope |= {name: _given(value, elements.get(name, 0)) for name, value in self.given.items()}
        walk.nodes(self.proto.graph.node, scope)
        return scope, walk


class InputsNeeded(tuple[str, ...]):
    """Names of inputs that must be known, as a fact of an error: `known=` is given for them."""

    __slots__ = ()

    def __new__(cls, names: Any) -> InputsNeeded:
        return super().__new__(cls, sorted(names))

    def __str__(self) -> str:
        return ", ".join(self)


def _is_parameter(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype != object and rlx_name(value) in FLOATS


def _scales_of(graph: Any) -> set[str]:
    """Return the names of the scales of codes in a graph."""
    return {n.input[1] for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear") and len(n.input) > 1}


def rlx_name(array: np.ndarray) -> str:
    """Return the name of an array's dtype in rlx; empty for texts."""
    return dtype_of(array.dtype).name if array.dtype.kind in "biufcV" else ""


def _type_of(array: np.ndarray) -> rlx.TensorType:
    return rlx.spec(f"{rlx_name(array)}[{', '.join(map(str, array.shape))}]")


def _given(value: Any, element: int) -> Any:
    if isinstance(value, list | tuple) or value is None:
        return list(value) if value is not None else None
    return entered(np.asarray(value), element) if element and element not in DTYPES else np.asarray(value)
