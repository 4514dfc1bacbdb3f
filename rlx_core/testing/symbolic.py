"""A sample with symbols for its sizes: a law for one size has to be satisfied for all that the op accepts."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_core.errors import RlxError
from rlx_core.ir.dims import Dim, DimBinding, symbol
from rlx_core.ir.graph import Graph
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram


@frozen
class Generalized:
    """A program with symbols in place of sizes.

    Attributes:
        program: The program with sizes.
        graph: The same call with symbols.
        bindings: Sizes to try: those of the program, and others.
    """

    program: OpProgram
    graph: Graph
    symbols: dict[int, str]
    bindings: tuple[dict[str, int], ...]

    def outputs(self, sizes: dict[str, int]) -> list[TensorType]:
        """Return the types that were inferred with symbols, with sizes substituted."""
        binding = DimBinding.of(**{s: sizes[s] for s in sizes})
        return [value.type.bind(binding) for value in self.graph.outputs]

    def at(self, sizes: dict[str, int]) -> OpProgram | None:
        """The program of these sizes without symbols; `None` if the op refuses them."""
        if sizes == self.bindings[0]:
            return self.program
        types = [
            renamed(t, {size: sizes[name] for size, name in self.symbols.items()}) for t in self.program.sample.types
        ]
        result = self.program.with_types(types)
        return None if result.is_refused else result


def generalized(program: OpProgram) -> Generalized | None:
    """The program with a symbol for each size above 1; equal sizes are taken for one.

    `None` if it has no such size, or the op refuses symbols with a typed error.
    """
    program = program.widened
    sizes = dict.fromkeys(d for t in program.sample.types if t is not None for d in t.static_shape if d not in (0, 1))
    symbols = {size: f"n{i}" for i, size in enumerate(sizes)}
    if not symbols:
        return None
    types = [renamed(t, {size: symbol(name) for size, name in symbols.items()}) for t in program.sample.types]
    try:
        graph = program.with_types(types).graph
    except RlxError:
        return None
    bindings = [{name: size for size, name in symbols.items()}]
    if program.sample.make is None:
        bindings.append({name: size + 1 for size, name in symbols.items()})
    return Generalized(program, graph, symbols, tuple(bindings))


def renamed(type: TensorType | None, to: Mapping[int, Dim]) -> TensorType | None:
    return None if type is None else type.with_shape(to.get(d, d) if isinstance(d, int) else d for d in type.shape)
