"""`StagedTransform`: a transformed function, compiled like a `jit` function and traced again when a captured value changes.

A captured value is a value that a function reads besides its arguments. `rlx.jit` treats it as a constant, like JAX; a
transform that is called outside of `jit` uses its current value, because the function without the transform would do so too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from attrs import evolve

from rlx_core.errors.base import shorten
from rlx_core.errors.lacks import typed_lacks
from rlx_core.functions.calls import differentiable_arguments
from rlx_core.functions.captured import Captured, Guards, captured_values
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import ambient_builder, ops_inside
from rlx_core.runtime.jit import Jitted, Variant, leaf_key
from rlx_core.runtime.straight import StraightCall
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.logs import log_event
from rlx_core.system.records import frozen
from rlx_core.transforms.trace import Trace
from rlx_core.trees.flatten import bind_arguments, flatten_arguments, function_name

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

MAX_TRACES: Final = 8
"""Maximum number of traces kept for one combination of argument types: a flag that changes back reuses its trace."""

MAX_PROGRAMS: Final = 64
"""Maximum number of programs of one function; a captured Python scalar that changes in every call adds one per value."""


@frozen(eq=False)
class GuardedCall:
    """The fast path of one trace, valid while its guards hold."""

    guards: Guards
    straight: StraightCall

    def call(self, args: tuple[Any, ...]) -> Any:
        return self.straight.call(args) if self.guards.hold() else NotImplemented


@frozen(eq=False)
class GuardedVariant(Variant):
    """A compiled variant for captured values that the guards compare; without guards it serves one call."""

    guards: Guards | None = None


class StagedTransform(Jitted[P, R_co]):
    """A transformation of a function that is compiled on its first call with each combination of types.

    Args:
        function: The function to trace: the transformation of the user's function.
        made: How to create it again, for pickles.
    """

    def __init__(self, function: Callable[P, R_co], recipe: functools.partial[Any]) -> None:
        super().__init__(function, {}, (), recipe)
        self._guarded: dict[Any, tuple[GuardedVariant, ...]] = {}
        self._is_reported = False

    def __repr__(self) -> str:
        recipe = self._made
        count = len(self._variants)
        name = "transform" if recipe is None else recipe.func.__name__
        transformed = function_name(self._function if recipe is None else recipe.args[0])
        return f"<{name} of {transformed}: {count} compiled {'variant' if count == 1 else 'variants'}>"

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves, tree = flatten_arguments(bind_arguments(self._function, args, kwargs))
        key = (tree, *map(leaf_key, tree.names, leaves))
        variant = self._current(key)
        if variant is None:
            with self._lock:
                variant = self._current(key) or self._traced_again(key, args, kwargs)
        return variant(leaves) if variant.guards is None else self._called(variant, leaves, kwargs)

    def _current(self, key: Any) -> GuardedVariant | None:
        """Return the variant whose captured values are the current ones."""
        for variant in self._guarded.get(key, ()):
            if variant.guards is not None and variant.guards.hold():
                return variant
        return None

    @typed_lacks("compile")
    @in_standard_modes
    def _traced_again(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> GuardedVariant:
        # Captured before the function runs, which may change the values that it reads.
        captured = captured_values(self._function, (*args, *kwargs.values()))
        traced = self._traced(args, kwargs, captured.arrays)
        program = self._program(key, traced, args, kwargs)
        straight = evolve(program.straight, lifted=traced.lifted, pack=traced.results.packer())
        guarded: Any = straight if captured.guards is None else GuardedCall(captured.guards, straight)
        variant = GuardedVariant(program.executable, traced, program.inputs, guarded, traced.lifted, captured.guards)
        if captured.guards is None:
            self._report(captured)
        else:
            self._guarded[key] = (variant, *self._guarded.get(key, ()))[:MAX_TRACES]
        return variant

    def _program(self, key: Any, traced: Trace, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        """Return the compiled program of a trace, reusing that of an earlier trace with the same graph."""
        graph = traced.graph
        name = (key, fingerprint(graph), frozenset(map(type, ops_inside(graph))), traced.results)
        if name not in self._variants:
            self._kept(name, self._built(key, traced, args, kwargs), MAX_PROGRAMS)
            self._expect_few_variants(traced, "; a Python value that it reads besides its arguments changes")
        return self._variants[name]

    def _report(self, captured: Captured) -> None:
        if not self._is_reported:
            self._is_reported = True
            facts = {"program": function_name(self._function), "reason": captured.reason}
            log_event("traced-for-every-call", facts)


class Gradient(StagedTransform[..., Any]):
    """A compiled gradient: a Python float that it differentiates by becomes an array, to avoid a compilation for every value."""

    def __init__(
        self, function: Callable[..., Any], argnums: int | Sequence[int], recipe: functools.partial[Any]
    ) -> None:
        super().__init__(function, recipe)
        self._argnums = argnums

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if float in map(type, args):
                args = tuple(differentiable_arguments(args, self._argnums))
            return super().__call__(*args, **kwargs)
        except Exception as error:
            if ambient_builder() is None:
                shorten(error)
            raise
