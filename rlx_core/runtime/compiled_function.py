"""`compile`: a Python function compiled ahead of time with its parameters bound, and the resulting `CompiledFunction`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from rlx_core.errors import ConfigError, Fact, UnknownNameError, nearest
from rlx_core.errors.lacks import typed_lacks
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.graph import Graph, Literal, leaf_name
from rlx_core.ir.module import Module
from rlx_core.ir.types import TensorType
from rlx_core.ops.arguments import names
from rlx_core.pipeline.backend import Outputs
from rlx_core.pipeline.compile import Config, compile_graph
from rlx_core.pipeline.forward import transforming_for
from rlx_core.pipeline.report import CompilationReport
from rlx_core.pipeline.set_up import with_precision
from rlx_core.plugins import PluginHost
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.donations import donations_of
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.program import compile_program
from rlx_core.runtime.references import expect_default_host
from rlx_core.runtime.signature import Signature
from rlx_core.runtime.straight import StraightCall
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import forks_wait
from rlx_core.transforms.trace import is_static_leaf, trace
from rlx_core.trees.flatten import bind_arguments, flatten_arguments, same_structure

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CompiledFunction(Bundled, Generic[P, R_co]):
    """A function compiled ahead of time, its parameters bound; call it with its inputs. See `rlx.compile`.

    `rlx.save` writes it to a file, with its weights; pickles hold the same. A copy has separate programs and state, and a
    deep copy also separate weights.

    Args:
        executable: The compiled program.
        graph: The program that it was compiled from.
        signature: The structure of its arguments and results.
        options: Of the compilation: target, config, host, donations.
    """

    def __init__(self, executable: Executable, graph: Graph, signature: Signature, options: Mapping[str, Any]) -> None:
        self.executable = executable
        self._graph = graph
        self._signature = signature
        self._options = options
        self._arguments = signature.bound
        self._free = signature.free
        self._results = signature.results
        donated = options.get("donations") or ()
        self._straight = StraightCall.of(
            executable.entry_cell, signature.wanted, signature.leaves, signature.results, donated
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if not kwargs:
            result: R_co = self._straight.call(args)
            if result is not NotImplemented:
                return result
        return self._checked(args, kwargs)

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return self._results.unflatten(
            self.executable.run_slots(self._signature.inputs(self._graph.name, args, kwargs))
        )

    @property
    def report(self) -> CompilationReport:
        """The compilation report; after a run, for the sizes of the latest run."""
        return self.executable.report

    def emit(self, level: str, step: int | str | None = None) -> str:
        """Return the program as text at a level: `mir`, `lir`, `loops`, then the target's own; see `Executable.emit`."""
        return self.executable.emit(level, step)

    def bundle(self) -> Bundle:
        """The program with the weights of now, as files hold it: for any target, because it is compiled where it is read.

        Raises:
            FormatError: A container among arguments or results is of a kind that a file cannot hold.
        """
        weights = self.executable.weights
        return Bundle(self._graph, {name: Literal(array) for name, array in weights.items()}, self._signature.form())

    def on(self, target: str) -> CompiledFunction[..., Any]:
        """The same function with the weights of now, compiled for another target."""
        options = {**self._options, "target": target}
        return compile_bundle(self.bundle(), **options, classes=self._signature.classes)

    def __reduce__(self) -> tuple[Any, ...]:
        import rlx_core  # whose function is the public one: pickles name it

        expect_default_host(self._graph.name, self._options["host"])
        options = {name: self._options[name] for name in ("target", "config") if self._options[name] is not None}
        if self._signature.classes:
            options["classes"] = self._signature.classes
        read = functools.partial(rlx_core.from_bytes, **options) if options else rlx_core.from_bytes
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

    def _repr_html_(self) -> str:
        return self.executable.page(self._results.names)

    def _repr_svg_(self) -> str:
        from rlx_core.draw.pages import program_svg  # here, because programs are run more often than looked at

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
    donate: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> CompiledFunction[P, R]: ...
@overload
def compile_function(
    function: Callable[Concatenate[Any, P], R],
    params: object,
    spec: TensorType,
    /,
    *specs: TensorType,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> CompiledFunction[P, R]: ...
@overload
def compile_function(
    function: Graph | Module,
    /,
    *,
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> Executable: ...
@overload
def compile_function(
    function: Callable[..., R],
    /,
    *args: Any,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> CompiledFunction[..., R]: ...
@checked_call
@typed_lacks("compile")
@in_standard_modes
@forks_wait
@collecting_seldom()
def compile_function(
    function: Callable[..., Any] | Graph | Module,
    /,
    *args: Any,
    donate: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> CompiledFunction[..., Any] | Executable:
    """Compile a function ahead of time: arrays among the arguments are bound as parameters, `rlx.spec`s are its inputs.

    An argument is either all arrays (a pytree of weights) or all specs; Python scalars in either are constants. Names in the
    specs' dims are symbols: the program is optimised once and specialised for each combination of sizes that it meets.

    Args:
        function: The Python function; or a graph or module, which becomes an `Executable`.
        args: One an argument: a pytree of arrays, or a pytree of `rlx.spec`s. A graph or module takes none.
        donate: Names of inputs, or of leaves of them, whose arrays the program may overwrite and return, as for `rlx.jit`: state
            that is kept between calls. Files do not hold it. A graph or module takes none.
        target: The device; by default the configured one, else the preferred one that is available.
        precision: The dtype of matrix products, convolutions and attention in f32 programs: "f32", or "bf16" or "f16" where the
            target is faster with them. By default it is the configured one (`precision.policy`), else f32.
        config: A configuration: a table, a path, a `Configuration`, or nothing (the nearest file).
        host: The plugins to use; everything installed by default.
        outputs: The location of results: on the "host" or the "device"; by default on the device if an input lies there.

    Raises:
        ConfigError: One argument mixes arrays and specs; a graph is given names to donate; or the precision is not known.
        UnknownNameError: No input has a name that is donated.
    """
    donated = names("compile: donate", donate, 'donate="params"')
    config = with_precision("compile", config, precision, host)
    if isinstance(function, Graph | Module):
        if donated:
            raise ConfigError(
                "compile: a graph has no arguments to donate", hint="rlx.Session().compile(graph, donations=...)"
            )
        return compile_program(function, args, target=target, config=config, host=host, outputs=outputs)
    named = bind_arguments(function, args, {})
    free = [name for name, argument in named.items() if is_input(name, argument)]
    with transforming_for(config, host):
        traced = trace(function, args, params=lambda name, leaf: not isinstance(leaf, TensorType))
    free_arguments = {name: named[name] for name in free}
    donations = donations_of("compile", function, donated, free_arguments, traced)
    options: dict[str, Any] = {"target": target, "config": config, "host": host, "donations": donations}
    compiled = compile_graph(traced.graph, **options, cache=default_cache)
    leaves, tree = flatten_arguments(named)
    executable = Executable(compiled, outputs=outputs, traced=traced.graph)
    params = executable.params
    executable.set_params({n: leaf for n, leaf in zip(tree.names, leaves, strict=True) if n in params})
    signature = Signature.of(named, free, traced)
    return CompiledFunction(executable, traced.graph, signature, options)


def compile_bundle(
    bundle: Bundle,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    donations: Mapping[str, int | None] | None = None,
    classes: Iterable[type[Any]] = (),
) -> CompiledFunction[..., Any]:
    """The compiled function that was made a bundle, on this target.

    Args:
        bundle: The program with its weights; these are used where they lie.
        target, config, host: See `rlx.compile`.
        donations: Inputs that runs may overwrite, each with the output that is its next value.
        classes: The named tuples among its arguments and results.

    Raises:
        FormatError: The stored signature does not fit the program, or a named tuple is not among `classes`.
    """
    graph = bundle.graph
    inputs, params = ([leaf_name(value) for value in values] for values in (graph.inputs, graph.params))
    signature = Signature.read(bundle.call, inputs, params, len(graph.outputs), classes)
    options: dict[str, Any] = {"target": target, "config": config, "host": host, "donations": donations}
    executable = Executable(compile_graph(graph, **options, cache=default_cache), traced=graph)
    executable.set_params({name: each.array for name, each in bundle.params.items()})
    return CompiledFunction(executable, bundle.graph, signature, options)


def is_input(name: str, argument: Any) -> bool:
    """Return whether an argument is fed on every call; ConfigError if only a part of it is."""
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
