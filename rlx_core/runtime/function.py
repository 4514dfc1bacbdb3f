"""Compiled Python functions: `jit` compiles for the types it meets, `compile` ahead of time with parameters bound."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
from attrs import frozen

from rlx_core.errors import ConfigError, Fact, WrongInputCountError
from rlx_core.ir.apply import as_array
from rlx_core.ir.graph import ambient_builder
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.report import Report
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.executable import Executable
from rlx_core.transforms.trace import Trace, is_static_leaf, trace
from rlx_core.transforms.tree import Tree, bind_arguments, flatten_arguments, same_structure

__all__ = ["CompiledFunction", "Jitted", "compile", "compile_function", "jit"]

P = ParamSpec("P")
R = TypeVar("R")

_MANY_VARIANTS = 32
"""Compiled variants of one function after which a warning says why there are so many."""


@frozen(eq=False)
class Variant:
    """One compiled variant of a function: how its arguments and results are put together."""

    executable: Executable
    traced: Trace
    inputs: tuple[int, ...]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        results = self.executable.run_slots([leaves[i] for i in self.inputs])
        return self.traced.results.unflatten(results)


class Jitted(Generic[P, R]):
    """A function that is compiled on its first call with each combination of types; see `rlx.jit`."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any], donate: Sequence[str]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._donate = tuple(donate)
        self._variants: dict[Any, Variant] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if ambient_builder() is not None:
            return self._function(*args, **kwargs)
        leaves, tree = flatten_arguments(bind_arguments(self._function, args, kwargs))
        key = (tree, *map(_leaf_key, leaves))
        variant = self._variants.get(key)
        if variant is None:
            with self._lock:
                variant = self._variants.get(key) or self._compile(key, args, kwargs)
        return variant(leaves)

    @property
    def executables(self) -> list[Executable]:
        """Every variant compiled so far, in the order of compilation."""
        return [v.executable for v in self._variants.values()]

    @property
    def report(self) -> Report:
        """What the latest variant was compiled to.

        Raises:
            ConfigError: The function was not called yet, so nothing was compiled.
        """
        if not self._variants:
            raise ConfigError(f"jit: {self._function.__name__} was not called yet, so it is not compiled")
        return self.executables[-1].report

    def _compile(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        traced = trace(self._function, args, kwargs)
        donated = [leaf.name for leaf in traced.leaves if leaf.role == "input" and _is_under(leaf.name, self._donate)]
        donations = next_values(donated, traced)
        executable = Executable(
            compile_graph(traced.graph, donations=donations, **{"cache": default_cache, **self._options})
        )
        inputs = tuple(i for i, leaf in enumerate(traced.leaves) if leaf.role == "input")
        variant = self._variants[key] = Variant(executable, traced, inputs)
        if len(self._variants) == _MANY_VARIANTS:
            scalars = [leaf.name for leaf in traced.leaves if leaf.role == "static"]
            reason = f"; {', '.join(scalars)} is a Python scalar, each value of which is compiled" if scalars else ""
            warnings.warn(
                f"jit: {self._function.__name__} has {_MANY_VARIANTS} compiled variants{reason}. Pass NumPy scalars for "
                "values that vary, or compile with symbolic sizes",
                RuntimeWarning,
                stacklevel=4,
            )
        return variant


def _leaf_key(leaf: Any) -> Any:
    if is_static_leaf(leaf):
        return type(leaf), leaf
    array = leaf if isinstance(leaf, np.ndarray | np.generic) else as_array(leaf)
    return array.dtype, array.shape


def _is_under(name: str, roots: Sequence[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def next_values(donated: Sequence[str], traced: Trace) -> dict[str, int | None]:
    """Donated input → the output that is its next value: of the same type, and best of the same name.

    `params.w1` is continued by `result.0.w1` rather than by another matrix that happens to have its type.
    """
    outputs = list(zip(traced.results.names, traced.graph.outputs, strict=True))
    taken: set[int] = set()
    found: dict[str, int | None] = {}
    for name in donated:
        wanted = traced.graph.input_types[name]
        fitting = [i for i, (_, v) in enumerate(outputs) if v.type == wanted and i not in taken]
        tail = name.rpartition(".")[2]
        best = min(fitting, key=lambda i: outputs[i][0].rpartition(".")[2] != tail, default=None)
        found[name] = best
        taken |= {best} if best is not None else set()
    return found


def jit(function: Callable[P, R] | None = None, /, *, donate: Sequence[str] = (), **options: Any) -> Any:
    """Compile a function for the types it is called with, once for each combination.

    Arguments and results are pytrees of arrays: NumPy, or anything with DLPack or a buffer. Python scalars among the
    arguments are constants of the program (each value is compiled); pass NumPy scalars for values that vary. Inside
    another traced function the call is traced in place.

    Args:
        function: What to compile; without it, a decorator is returned.
        donate: Names of parameters whose arrays the program may overwrite and return.
        options: As for `rlx.compile`: target, config, host.

    >>> double = jit(lambda x: x + x)
    >>> double(np.float32([1, 2]))
    array([2., 4.], dtype=float32)
    """
    if function is None:
        return lambda f: Jitted(f, options, donate)
    return Jitted(function, options, donate)


class CompiledFunction:
    """A function compiled ahead of time, its parameters bound; call it with its inputs. See `rlx.compile`."""

    def __init__(
        self, executable: Executable, traced: Trace, parameters: tuple[str, ...], names: Sequence[str]
    ) -> None:
        self._traced = traced
        self._bound = parameters
        self._free = tuple(n for n in names if n not in parameters)
        self._inputs = tuple(leaf.name for leaf in traced.leaves if leaf.role == "input")
        self.executable = executable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = dict(zip(self._free, args, strict=False)) | kwargs
        if len(args) > len(self._free) or set(named) != set(self._free):
            name = self._traced.graph.name
            bound = f"; {', '.join(self._bound)} is bound" if self._bound else ""
            raise WrongInputCountError(
                f"{name}: takes ({', '.join(self._free)}), not {len(args) + len(kwargs)} arguments{bound}"
            )
        leaves, tree = flatten_arguments({n: named[n] for n in self._free})
        if tuple(n for n in tree.names) != self._inputs:
            same_structure(self._traced.graph.name, self._tree_of_inputs(), tree)
        return self._traced.results.unflatten(self.executable.run_slots(leaves))

    @property
    def report(self) -> Report:
        """What was compiled; after a run, for the sizes of the latest run."""
        return self.executable.report

    def rebind(self, **parameters: Any) -> None:
        """Bind other arrays to the function's parameters, argument by argument, with the same structure and types."""
        leaves, tree = flatten_arguments(parameters)
        self.executable.set_params(dict(zip(tree.names, leaves, strict=True)))

    def _tree_of_inputs(self) -> Tree:
        return Tree(self._traced.arguments.structure, self._inputs)

    def __repr__(self) -> str:
        return f"<compiled {self._traced.graph.name}({', '.join(self._free)}): {self.executable!r}>"


def compile_function(function: Callable[..., Any], /, *args: Any, **options: Any) -> CompiledFunction:
    """Compile a function ahead of time: arrays among the arguments are bound as parameters, `rlx.spec`s are its inputs.

    An argument is either all arrays (a pytree of weights) or all specs. Names in the specs' dims are symbols: the program
    is optimised once and specialised for each combination of sizes that it meets.

    Args:
        function: The Python function.
        args: One an argument: a pytree of arrays, or a pytree of `rlx.spec`s.
        options: target (a device name), config (a `Config`, a dictionary or a path), host (the plugins to use).

    Raises:
        ConfigError: One argument mixes arrays and specs.
    """
    named = bind_arguments(function, args, {})
    leaves, tree = flatten_arguments(named)
    roles: dict[str, set[bool]] = {}
    for name, leaf in zip(tree.names, leaves, strict=True):
        if not is_static_leaf(leaf):
            roles.setdefault(name.split(".", 1)[0], set()).add(isinstance(leaf, TensorType))
    for name, kinds in roles.items():
        if len(kinds) == 2:
            raise ConfigError(
                f"compile: argument {name} mixes arrays and specs",
                Fact("arrays", "are bound as parameters"),
                Fact("specs", "are inputs of each call"),
                hint="split it into two arguments",
            )
    traced = trace(function, args, params=lambda name, leaf: not isinstance(leaf, TensorType))
    executable = Executable(compile_graph(traced.graph, **{"cache": default_cache, **options}))
    arrays = {n: leaf for n, leaf in zip(tree.names, leaves, strict=True) if n in executable.params}
    executable.set_params(arrays)
    free = {n for n, kinds in roles.items() if True in kinds}
    bound = tuple(n for n in named if n not in free)
    return CompiledFunction(executable, traced, bound, list(named))


compile = compile_function
"""The public name, `rlx.compile`."""
