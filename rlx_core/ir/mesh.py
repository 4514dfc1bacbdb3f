"""Named axes and their sizes, and the ops that communicate over them.

A name refers to an axis that a function does not see: it is written for one member of the axis, and `vmap(axis_name=)` runs it
for all of them. While such a function is traced, the names that it may use are the current mesh. An op over named axes stays in
the graph until the batching of its axis replaces it by ops over an ordinary axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rlx_core.errors import AxisNameError, Fact, nearest
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Node, nested_graphs
from rlx_core.ir.op import Op
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.ir.graph import Value


@frozen
class Mesh:
    """Axis names with their sizes, from the outermost axis to the innermost.

    >>> Mesh(("batch", "model"), (8, 2))
    Mesh(names=('batch', 'model'), sizes=(8, 2))
    """

    names: tuple[str, ...] = ()
    sizes: tuple[Dim, ...] = ()

    def extended(self, what: str, name: str, size: Dim) -> Mesh:
        """The mesh with one more axis, inside the others.

        Raises:
            AxisNameError: The name is not a string, is empty, or belongs to an axis of the mesh already.
        """
        (name,) = axis_names(what, name, "a string")
        if name in self.names:
            raise AxisNameError(
                f"{what}: an enclosing vmap has an axis {name!r} already",
                Fact("axes in scope", self),
                hint="choose another name: one name refers to one axis",
            )
        return Mesh((*self.names, name), (*self.sizes, size))

    def select(self, what: str, names: object) -> Mesh:
        """The axes of these names, in the order of the names.

        Args:
            what: The name of the calling function, for errors.
            names: One name, or a tuple or list of names.

        Raises:
            AxisNameError: A name is not a string, is given twice, or is not an axis of the mesh.
        """
        chosen = axis_names(what, names, "a string or a tuple of strings")
        for name in chosen:
            if name not in self.names:
                raise self.unknown(what, name)
            if chosen.count(name) > 1:
                raise AxisNameError(f"{what}: axis {name!r} is named twice in {chosen}")
        return Mesh(chosen, tuple(self.sizes[self.names.index(name)] for name in chosen))

    def unknown(self, what: str, name: str, *facts: Fact) -> AxisNameError:
        """The error for a name that is not an axis of this mesh."""
        return AxisNameError(
            f"{what}: no axis {name!r} is in scope",
            Fact("axes in scope", self if self.names else "none"),
            *facts,
            hint=nearest(name, self.names)
            or f"call it in a function that is mapped: rlx.vmap(function, axis_name={name!r})",
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} of size {size}" for name, size in zip(self.names, self.sizes, strict=True))


NO_AXES: Final = Mesh()
"""The mesh without axes."""


def axis_names(what: str, names: object, expected: str) -> tuple[str, ...]:
    """One name or several as a tuple of strings.

    Raises:
        AxisNameError: One of them is not a string, or is empty.
    """
    candidates = tuple(names) if isinstance(names, tuple | list) and expected != "a string" else (names,)
    chosen: list[str] = []
    for name in candidates:
        if not isinstance(name, str):
            raise AxisNameError(f"{what}: axis_name must be {expected}, not {name!r} ({type(name).__name__})")
        if not name:
            raise AxisNameError(f"{what}: axis_name is an empty string")
        chosen.append(name)
    return tuple(chosen)


_current: ContextVar[Mesh] = ContextVar("axis names in scope", default=NO_AXES)


def current_mesh() -> Mesh:
    """The axes whose names the function that is being traced may use."""
    return _current.get()


def in_mesh(mesh: Mesh) -> assigned[Mesh]:
    """Let `current_mesh()` return `mesh` inside the block."""
    return assigned(_current, mesh)


class OverNamedAxes:
    """Marks an op over named axes.

    Its ordinary rules are for one member: `batch` maps it over another axis, and its operands and results have no axis for the
    names. If no axis is mapped, its value is the first member's in a group whose members have equal operands.

    Attributes:
        communicates: Whether the result depends on operands of other members, which must all reach the op.
    """

    __slots__ = ()
    communicates: ClassVar[bool] = True

    @property
    def over_names(self) -> tuple[str, ...]:
        """The axes that are not replaced yet."""
        raise NotImplementedError

    def over(self, name: str, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        """The results where the axis `name` is the first axis of the batched operands.

        They are the results of a `batch` rule: with the axis first, or `Replicated`. The other names stay.
        """
        raise NotImplementedError


_NAMES: Final = "_named_axes"


def named_axes(op: Op) -> frozenset[str]:
    """The axis names that an op, or an op of a graph inside it, is over."""
    cache = vars(op)  # batching reads this for every node, and an op does not change
    names: frozenset[str] | None = cache.get(_NAMES)
    if names is None:
        direct = op.over_names if isinstance(op, OverNamedAxes) else ()
        nested = (named_axes(n.op) for body in nested_graphs(op).values() for n in body.nodes)
        names = cache[_NAMES] = frozenset(direct).union(*nested)
    return names


def nodes_over(graph: Graph, names: Sequence[str]) -> Iterator[Node]:
    """The nodes of a graph, and of the graphs inside it, that communicate over one of these axes."""
    for node in graph.nodes:
        if named_axes(node.op).isdisjoint(names):
            continue
        if isinstance(node.op, OverNamedAxes) and node.op.communicates:
            yield node
        for body in nested_graphs(node.op).values():
            yield from nodes_over(body, names)


def expect_named_axes(graph: Graph, mesh: Mesh) -> None:
    """Require that every named axis of a traced program is an axis of `mesh`, so that a mapping replaces it.

    Raises:
        AxisNameError: An op is over another axis.
    """
    for node in graph.nodes:
        used = named_axes(node.op)
        if used and not used.issubset(mesh.names):
            name = min(used.difference(mesh.names))
            raise mesh.unknown(node.op.title, name, Fact("node", node.label, node.origin.source))
