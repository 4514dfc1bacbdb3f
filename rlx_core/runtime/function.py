"""Compiled Python functions: `jit` compiles for the types it meets, `compile` ahead of time with parameters bound."""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import numpy as np
from attrs import frozen

from rlx_core.errors import ConfigError, Fact, TraceError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.errors.memory import enough_memory
from rlx_core.floating import in_standard_modes
from rlx_core.ir.apply import as_array
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.graph import Graph, Literal, ambient_builder
from rlx_core.ir.op import exact
from rlx_core.ir.types import TensorType
from rlx_core.locks import Lock, forks_wait
from rlx_core.pipeline.collecting import collecting_seldom
from rlx_core.pipeline.compile import Config, compile_graph
from rlx_core.pipeline.forward import transforming_for
from rlx_core.pipeline.report import Report
from rlx_core.plugins import PluginHost
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.references import expect_default_host, made_again
from rlx_core.runtime.signature import Signature
from rlx_core.runtime.straight import StraightCall
from rlx_core.transforms.trace import Trace, is_static_leaf, not_an_array, trace
from rlx_core.transforms.tree import bind_arguments, expect_function, flatten_arguments, function_name, same_structure

__all__ = ["CompiledFunction", "Jitted", "compile", "compile_bundle", "compile_function", "jit"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Rest = ParamSpec("Rest")
Owner = TypeVar("Owner")

_MANY_VARIANTS = 32
"""Compiled variants of one function after which a warning says why there are so many."""


_STRAIGHT_VARIANTS = 4
"""Variants that a plain call is offered to, the one that was last checked first, before its types are looked up."""


@frozen(eq=False)
class Variant:
    """One compiled variant of a function: how its arguments and results are put together."""

    executable: Executable
    traced: Trace
    inputs: tuple[int, ...]
    straight: StraightCall

    def __call__(self, leaves: Sequence[Any]) -> Any:
        results = self.executable.run_slots([leaves[i] for i in self.inputs])
        return self.traced.results.unflatten(results)


class Jitted(Generic[P, R_co]):
    """A function that is compiled on its first call with each combination of types; see `rlx.jit`.

    Args:
        function: What is traced.
        options: Of the compilation.
        donate: Names of donated arguments.
        made: How to make it again, for pickles; nothing for what no user gets hold of.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        options: Mapping[str, Any],
        donate: Sequence[str],
        made: functools.partial[Any] | None = None,
    ) -> None:
        expect_function("jit", function)
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._donate = _donated_names(donate)
        self._made = made
        self._variants: dict[Any, Variant] = {}
        self._lock = Lock(f"the compiling of {function_name(function)}")
        self._straight: tuple[StraightCall, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if ambient_builder() is not None:
            return self._function(*args, **kwargs)
        if not kwargs:
            for straight in self._straight:
                found: R_co = straight(args)
                if found is not NotImplemented:
                    return found
        return self._checked(args, kwargs)

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves, tree = flatten_arguments(bind_arguments(self._function, args, kwargs))
        key = (tree, *map(_leaf_key, tree.names, leaves))
        variant = self._variants.get(key)
        if variant is None:
            with self._lock:
                variant = self._variants.get(key) or self._compile(key, args, kwargs)
        results = variant(leaves)
        if not kwargs:
            # Names and positions are one only where all arguments are by position.
            others = (s for s in self._straight if s is not variant.straight)
            self._straight = (variant.straight, *others)[:_STRAIGHT_VARIANTS]
        return results

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Jitted[P, R_co]: ...
    @overload
    def __get__(
        self: Jitted[Concatenate[Owner, Rest], R_co], instance: Owner, owner: Any = None
    ) -> Callable[Rest, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled function in a class is a method, like any function."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return made_again(self, self._made)

    def __copy__(self) -> Jitted[P, R_co]:
        """The same function made again, with nothing compiled yet."""
        return self if self._made is None else self._made()

    def __deepcopy__(self, memo: object) -> Jitted[P, R_co]:
        return self.__copy__()

    @property
    def executables(self) -> list[Executable]:
        """Every variant compiled so far, in the order of compilation."""
        return [v.executable for v in list(self._variants.values())]

    @property
    def report(self) -> Report:
        """What the latest variant was compiled to.

        Raises:
            ConfigError: The function was not called yet, so nothing was compiled.
        """
        if not self._variants:
            raise ConfigError(f"jit: {function_name(self._function)} was not called yet, so it is not compiled")
        return self.executables[-1].report

    def __repr__(self) -> str:
        count = len(self._variants)
        return f"<jit {function_name(self._function)}: {count} compiled {'variant' if count == 1 else 'variants'}>"

    def _repr_html_(self) -> str:
        from rlx_core.runtime.display import executable_html, page

        latest = list(self._variants.values())[-1:]
        return "".join(executable_html(v.executable, v.traced.results.names, above=repr(self)) for v in latest) or page(
            repr(self)
        )

    @enough_memory("compile")
    @in_standard_modes
    def _compile(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        with transforming_for(self._options.get("config"), self._options.get("host")), collecting_seldom():
            traced = trace(self._function, args, kwargs)
        if self._donate:
            self._expect_donated(bind_arguments(self._function, args, kwargs), traced)
        donated = [leaf.name for leaf in traced.leaves if leaf.role == "input" and _is_under(leaf.name, self._donate)]
        donations = next_values(donated, traced)
        executable = Executable(
            compile_graph(traced.graph, donations=donations, **{"cache": default_cache, **self._options})
        )
        inputs = tuple(i for i, leaf in enumerate(traced.leaves) if leaf.role == "input")
        tree, *_ = key
        straight = StraightCall.of(executable.door, tree, traced.leaves, traced.results)
        variant = self._variants[key] = Variant(executable, traced, inputs, straight)
        if len(self._variants) == _MANY_VARIANTS:
            scalars = [leaf.name for leaf in traced.leaves if leaf.role == "static"]
            reason = f"; {', '.join(scalars)} is a Python scalar, each value of which is compiled" if scalars else ""
            warnings.warn(
                f"jit: {function_name(self._function)} has {_MANY_VARIANTS} compiled variants{reason}. Pass NumPy scalars for "
                "values that vary, or compile with symbolic sizes",
                RuntimeWarning,
                stacklevel=6,
            )
        return variant

    def _expect_donated(self, arguments: Mapping[str, Any], traced: Trace) -> None:
        for name in self._donate:
            if name not in arguments and not any(_is_under(leaf.name, [name]) for leaf in traced.leaves):
                raise UnknownNameError(
                    f"jit: {function_name(self._function)} has no argument {name!r} to donate",
                    Fact("arguments", ", ".join(arguments)),
                    hint=nearest(name, [*arguments, *(leaf.name for leaf in traced.leaves)]),
                )


def _donated_names(donate: str | Sequence[str]) -> tuple[str, ...]:
    named = tuple(donate) if isinstance(donate, Iterable) and not isinstance(donate, str) else (donate,)
    for each in named:
        if not isinstance(each, str):
            raise ConfigError(f"jit: donate takes names of arguments, not {each!r}", hint='@rlx.jit(donate="params")')
    return named


def _leaf_key(name: str, leaf: Any) -> Any:
    if is_static_leaf(leaf):
        return type(leaf), exact(leaf)  # 0.0 and -0.0 are different programs, and NaN is the same one again
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype, leaf.shape
    try:
        array = as_array(leaf)
    except TraceError as error:
        raise not_an_array(name, leaf, error) from None
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


class JitDecorator(Protocol):
    """What `rlx.jit(donate=…)` returns: it takes the function."""

    def __call__(self, function: Callable[P, R], /) -> Jitted[P, R]: ...


@overload
def jit(
    function: Callable[P, R],
    /,
    *,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> JitDecorator: ...
def jit(
    function: Callable[P, R] | None = None,
    /,
    *,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> Any:
    """Compile a function for the types it is called with, once for each combination.

    Arguments and results are pytrees of arrays: NumPy, or anything with DLPack or a buffer. Python scalars among the
    arguments are constants of the program (each value is compiled); pass NumPy scalars for values that vary. Inside
    another traced function the call is traced in place.

    Args:
        function: What to compile; without it, a decorator is returned.
        donate: Names of arguments (or of leaves of them, `params.w1`) whose arrays the program may overwrite and return.
            An array that cannot be overwritten, because it is read-only, strided or passed twice, is copied instead.
        target, config, host: As for `rlx.compile`.

    >>> double = jit(lambda x: x + x)
    >>> double(np.float32([1, 2]))
    array([2., 4.], dtype=float32)
    """
    options = {"target": target, "config": config, "host": host}
    if function is None:
        return functools.partial(jit, donate=donate, **options)
    return Jitted(function, options, donate, functools.partial(jit, function, donate=donate, **options))


class CompiledFunction(Bundled, Generic[P, R_co]):
    """A function compiled ahead of time, its parameters bound; call it with its inputs. See `rlx.compile`.

    `rlx.save` writes it to a file, with its weights; pickles hold the same. A copy has programs and state of its own, and a
    deep one weights of its own too.

    Args:
        executable: What was compiled.
        graph: The program that it was compiled from.
        signature: How it is called.
        options: Of the compilation: target, config, host.
    """

    def __init__(self, executable: Executable, graph: Graph, signature: Signature, options: Mapping[str, Any]) -> None:
        self.executable = executable
        self._graph = graph
        self._signature = signature
        self._options = options
        self._arguments = signature.bound
        self._free = signature.free
        self._wanted = signature.wanted
        self._leaves = signature.leaves
        self._results = signature.results
        self._straight = StraightCall.of(executable.door, self._wanted, self._leaves, self._results)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if not kwargs:
            found: R_co = self._straight(args)
            if found is not NotImplemented:
                return found
        return self._checked(args, kwargs)

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves, tree = flatten_arguments(self._named(args, kwargs))
        same_structure(self._graph.name, self._wanted, tree)
        arrays = []
        for leaf, given in zip(self._leaves, leaves, strict=True):
            if leaf.role == "input":
                arrays.append(given)
            elif not is_static_leaf(given) or exact(given) != exact(leaf.static):
                raise ConfigError(
                    f"{self._graph.name}: {leaf.name} was compiled as {leaf.static!r}, not {given!r}",
                    hint="compile again, or declare it with rlx.spec and pass an array",
                )
        return self._results.unflatten(self.executable.run_slots(arrays))

    @property
    def report(self) -> Report:
        """What was compiled; after a run, for the sizes of the latest run."""
        return self.executable.report

    def emit(self, level: str, step: int | str | None = None) -> str:
        """What was compiled, as text at a level: `mir`, `lir`, `loops`, then the target's own; see `Executable.emit`."""
        return self.executable.emit(level, step)

    def bundle(self) -> Bundle:
        """The program with the weights of now, as files hold it: for any target, because it is compiled where it is read.

        Raises:
            FormatError: A container among arguments or results is of a kind that a file cannot hold.
        """
        weights = self.executable.weights
        return Bundle(self._graph, {name: Literal(array) for name, array in weights.items()}, self._signature.form())

    def __reduce__(self) -> tuple[Any, ...]:
        import rlx_core  # whose function is the public one: pickles name it

        expect_default_host(self._graph.name, self._options["host"])
        given = {name: self._options[name] for name in ("target", "config") if self._options[name] is not None}
        if self._signature.classes:
            given["classes"] = self._signature.classes
        read = functools.partial(rlx_core.from_bytes, **given) if given else rlx_core.from_bytes
        return read, (rlx_core.to_bytes(self),)

    def __copy__(self) -> CompiledFunction[P, R_co]:
        return CompiledFunction(copy.copy(self.executable), self._graph, self._signature, self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction[P, R_co]:
        return CompiledFunction(copy.deepcopy(self.executable, memo), self._graph, self._signature, self._options)

    def rebind(self, **parameters: Any) -> None:
        """Bind other arrays to the function's parameters, argument by argument, with the same structure and types.

        Raises:
            UnknownNameError: The function has no such parameter.
            ShapeError, DtypeError: The structure, or an array's type, is another; then nothing was bound.
        """
        name = self._graph.name
        for argument in parameters:
            if argument not in self._arguments:
                problem = "is an input" if argument in self._free else "is unknown"
                raise UnknownNameError(
                    f"{name}: {argument} {problem}; its parameters are {', '.join(self._arguments) or 'none'}",
                    hint=nearest(argument, self._arguments),
                )
        arrays: dict[str, Any] = {}
        for argument, value in parameters.items():
            leaves, tree = flatten_arguments({argument: value})
            same_structure(name, self._arguments[argument], tree)
            arrays |= dict(zip(tree.names, leaves, strict=True))
        self.executable.set_params(arrays)

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name, in order.

        Raises:
            WrongInputCountError: One is missing, unknown or given twice.
        """
        twice = [n for n in self._free[: len(args)] if n in kwargs]
        named = dict(zip(self._free, args, strict=False)) | dict(kwargs)
        if twice or len(args) > len(self._free) or set(named) != set(self._free):
            missing = [n for n in self._free if n not in named]
            unknown = [n for n in kwargs if n not in self._free]
            found = {"missing": missing, "unknown": unknown, "given twice": twice, "bound": list(self._arguments)}
            raise WrongInputCountError(
                f"{self._graph.name}: takes ({', '.join(self._free)}), not {len(args) + len(kwargs)} arguments",
                *(Fact(label, ", ".join(names)) for label, names in found.items() if names),
            )
        return {n: named[n] for n in self._free}

    def _repr_html_(self) -> str:
        from rlx_core.runtime.display import executable_html

        return executable_html(self.executable, self._results.names)

    def _repr_svg_(self) -> str:
        from rlx_core.ir.display import program_svg

        return program_svg(self.executable.lir.graph, self._results.names)

    def __repr__(self) -> str:
        return f"<compiled {self._graph.name}({', '.join(self._free)}): {self.executable!r}>"


# Which arguments stay is known to a type checker where specs are written as such: all of them, or all after the parameters.
@overload
def compile_function(
    function: Callable[P, R],
    spec: TensorType,
    /,
    *specs: TensorType,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> CompiledFunction[P, R]: ...
@overload
def compile_function(
    function: Callable[Concatenate[Any, P], R],
    params: object,
    spec: TensorType,
    /,
    *specs: TensorType,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> CompiledFunction[P, R]: ...
@overload
def compile_function(
    function: Callable[..., R],
    /,
    *args: Any,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> CompiledFunction[..., R]: ...
@enough_memory("compile")
@in_standard_modes
@forks_wait
def compile_function(
    function: Callable[..., Any],
    /,
    *args: Any,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> CompiledFunction[..., Any]:
    """Compile a function ahead of time: arrays among the arguments are bound as parameters, `rlx.spec`s are its inputs.

    An argument is either all arrays (a pytree of weights) or all specs; Python scalars in either are constants. Names in the
    specs' dims are symbols: the program is optimised once and specialised for each combination of sizes that it meets.

    Args:
        function: The Python function.
        args: One an argument: a pytree of arrays, or a pytree of `rlx.spec`s.
        target: The device; by default what the configuration says, else the preferred one that is available.
        config: A configuration: a table, a path, a `Configuration`, or nothing (the nearest file).
        host: The plugins to use; everything installed by default.

    Raises:
        ConfigError: One argument mixes arrays and specs.
    """
    named = bind_arguments(function, args, {})
    free = [name for name, argument in named.items() if _is_input(name, argument)]
    with transforming_for(config, host):
        traced = trace(function, args, params=lambda name, leaf: not isinstance(leaf, TensorType))
    compiled = compile_graph(traced.graph, target=target, config=config, host=host, cache=default_cache)
    leaves, tree = flatten_arguments(named)
    executable = Executable(compiled)
    params = executable.params
    executable.set_params({n: leaf for n, leaf in zip(tree.names, leaves, strict=True) if n in params})
    signature = Signature.of(named, free, traced)
    return CompiledFunction(executable, traced.graph, signature, {"target": target, "config": config, "host": host})


def compile_bundle(
    bundle: Bundle,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    classes: Iterable[type[Any]] = (),
) -> CompiledFunction[..., Any]:
    """The compiled function that was made a bundle, on this target.

    Args:
        bundle: The program with its weights; these are used where they lie.
        target, config, host: As for `rlx.compile`.
        classes: The named tuples among its arguments and results.

    Raises:
        FormatError: It cannot be called as it says, or has a named tuple that is not among `classes`.
    """
    signature = Signature.read(bundle.call, bundle.graph, classes)
    compiled = compile_graph(bundle.graph, target=target, config=config, host=host, cache=default_cache)
    executable = Executable(compiled)
    executable.set_params({name: each.array for name, each in bundle.params.items()})
    return CompiledFunction(executable, bundle.graph, signature, {"target": target, "config": config, "host": host})


def _is_input(name: str, argument: Any) -> bool:
    """Whether an argument is fed on every call; ConfigError if only a part of it is."""
    leaves, _ = flatten_arguments({name: argument})
    kinds = {isinstance(leaf, TensorType) for leaf in leaves if not is_static_leaf(leaf)}
    if len(kinds) == 2:
        raise ConfigError(
            f"compile: argument {name} mixes arrays and specs",
            Fact("arrays", "are bound as parameters"),
            Fact("specs", "are inputs of each call"),
            hint="split it into two arguments",
        )
    return True in kinds


compile = compile_function
"""The public name, `rlx.compile`."""
