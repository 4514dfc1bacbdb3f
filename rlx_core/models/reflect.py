"""Reflection: the inputs and outputs of a program, and the offsets of its weights when laid out as one block of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx_core.errors import ShapeError
from rlx_core.ir.graph import Graph, leaf_name
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen


@frozen
class Port:
    """One input, param or output: its name and type."""

    name: str
    type: TensorType


@frozen
class Reflection:
    """The signature of a program, in calling order."""

    inputs: tuple[Port, ...]
    params: tuple[Port, ...]
    outputs: tuple[Port, ...]


def reflect(graph: Graph, output_names: Iterable[str] | None = None) -> Reflection:
    """Return the inputs, params and outputs of `graph`; outputs are `out0`, `out1`, … unless they are named."""
    names = list(output_names) if output_names is not None else [f"out{i}" for i in range(len(graph.outputs))]
    return Reflection(
        tuple(Port(leaf_name(v), v.type) for v in graph.inputs),
        tuple(Port(leaf_name(v), v.type) for v in graph.params),
        tuple(Port(name, v.type) for name, v in zip(names, graph.outputs, strict=True)),
    )


@frozen
class WeightPlace:
    """Location of one param: `offset` and `nbytes` are bytes from the start of the weight region."""

    name: str
    type: TensorType
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


@frozen
class BindingManifest:
    """The layout of all params of a program in one region, sorted by name.

    Attributes:
        places: Each param's bytes.
        nbytes: The size of the region; it holds weights and nothing else.
    """

    places: tuple[WeightPlace, ...]
    nbytes: int

    def find(self, name: str) -> WeightPlace:
        """Return the location of the param called `name`; KeyError if no param has this name."""
        return {p.name: p for p in self.places}[name]

    def blocks(self, depth: int = 1) -> Mapping[str, tuple[WeightPlace, ...]]:
        """The params by the first `depth` parts of their dotted names: the weight blocks of a model."""
        by_prefix: dict[str, list[WeightPlace]] = {}
        for place in self.places:
            by_prefix.setdefault(".".join(place.name.split(".")[:-1][:depth]), []).append(place)
        return {prefix: tuple(places) for prefix, places in by_prefix.items()}


def binding_manifest(graph: Graph, alignment: int = 64) -> BindingManifest:
    """A layout for the params of `graph`, each at a multiple of `alignment` bytes.

    Raises:
        ShapeError: A param's size is still unknown.
    """
    places: list[WeightPlace] = []
    end = 0
    for name, type in sorted(graph.param_types.items()):
        if not type.is_static:
            raise ShapeError(f"manifest: param {name} is {type}, whose size is unknown", hint="bind the symbols first")
        offset = -(-end // alignment) * alignment
        places.append(WeightPlace(name, type, offset, type.static_nbytes))
        end = places[-1].end
    return BindingManifest(tuple(places), end)
