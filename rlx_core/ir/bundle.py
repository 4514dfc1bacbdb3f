"""A program with its weights: the content of a file that can be called once it is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rlx_core.errors import FormatError
from rlx_core.ir.attributes import Decoder, Encoder
from rlx_core.ir.forms import Json, need
from rlx_core.ir.graph import Graph, Literal
from rlx_core.ir.protocols import Travels
from rlx_core.ir.types import TensorType
from rlx_core.ir.verify import IrStage, check
from rlx_core.system.records import frozen


@frozen(eq=False)
class Bundle(Travels):
    """A graph, arrays for its params, and how it is called.

    Attributes:
        graph: HIR or MIR, for no target yet.
        params: An array for each of the graph's params, by name.
        call: The structure of arguments and results, in the form that the caller's layer wrote it; this layer stores it.
    """

    graph: Graph
    params: Mapping[str, Literal]
    call: Mapping[str, Json]

    @property
    def nbytes(self) -> int:
        """The bytes of all params."""
        return sum(each.array.nbytes for each in self.params.values())

    def encoded(self, encoder: Encoder) -> dict[str, Json]:
        """The program in canonical form; see `serialize.py`."""
        params = {name: encoder.value(each) for name, each in self.params.items()}
        return {"graph": encoder.graph(self.graph), "params": params, "call": dict(self.call)}

    @classmethod
    def decoded(cls, form: Mapping[str, Json], decoder: Decoder) -> Bundle:
        """Return the program that was encoded, verified; its arrays match the params of its graph.

        Raises:
            FormatError: The form is another, or an array is missing, unknown or of another type.
            VerifyError: The graph is broken.
        """
        graph = decoder.graph(form.get("graph"))
        check(graph, IrStage.HIR)
        stored = need(form.get("params"), dict, "params")
        params = {name: _array(name, each, decoder) for name, each in stored.items()}
        expected = graph.param_types
        if params.keys() != expected.keys():
            differing = sorted(params.keys() ^ expected.keys())
            raise FormatError(f"params: {', '.join(differing[:5])} are not in both, the graph and the file")
        for name, each in params.items():
            if not _fits(each.type, expected[name]):
                raise FormatError(f"params: {name} is {each.type}, and the graph has {expected[name]}")
        return cls(graph, params, need(form.get("call"), dict, "the call"))


class Bundled(ABC):
    """An object that can be converted to a bundle, such as a compiled function."""

    @abstractmethod
    def bundle(self) -> Bundle:
        """The program with its weights, as files hold it."""


def _array(name: str, form: Json, decoder: Decoder) -> Literal:
    value: Any = decoder.value(form)
    if not isinstance(value, Literal):
        raise FormatError(f"params: {name} is no array")
    return value


def _fits(actual: TensorType, expected: TensorType) -> bool:
    dims = zip(actual.shape, expected.shape, strict=False)
    return (
        actual.dtype is expected.dtype
        and actual.rank == expected.rank
        and all(not isinstance(size, int) or size == have for have, size in dims)
    )
