"""`jit`: a Python function compiled for the types it meets, on its first call with each combination of them."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from rlx_core import runtime
from rlx_core.errors import ConfigError, TraceError
from rlx_core.errors.base import shorten
from rlx_core.errors.lacks import typed_lacks
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import is_array
from rlx_core.ir.graph import ambient_builder
from rlx_core.ir.op import exact
from rlx_core.ir.placed import placed_type
from rlx_core.pipeline.backend import Outputs
from rlx_core.pipeline.compile import Config, compile_graph, set_up
from rlx_core.pipeline.forward import transforming_for
from rlx_core.pipeline.report import CompilationReport
from rlx_core.pipeline.set_up import with_precision
from rlx_core.plugins import PluginHost
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.straight import StraightCall
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import Lock
from rlx_core.system.records import frozen
from rlx_core.transforms.trace import Trace, is_static_leaf, not_an_array, trace
from rlx_core.trees.flatten import bind_arguments, expect_function, flatten_arguments, function_name

if TYPE_CHECKING:
    from rlx_core.trees.static import StaticArguments

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Remaining = ParamSpec("Remaining")
Owner = TypeVar("Owner")

_MANY_VARIANTS = 32
"""Number of compiled variants of one function after which a warning explains why there are so many."""


_STRAIGHT_VARIANTS = 4
"""Variants that a plain call is offered to, the one that was last checked first, before its types are looked up."""


@frozen(eq=False)
class Variant:
    """One compiled variant of a function: how its arguments and results are flattened and unflattened.

    `lifted` are the arrays that the program reads in addition to the arguments.
    """

    executable: Executable
    traced: Trace
    inputs: tuple[int, ...]
    straight: StraightCall
    lifted: tuple[Any, ...] = ()

    def __call__(self, leaves: Sequence[Any]) -> Any:
        results = self.executable.run_slots([*(leaves[i] for i in self.inputs), *self.lifted])
        return self.traced.results.unflatten(results)


class Jitted(Generic[P, R_co]):
    """A function that is compiled on its first call with each combination of types; see `rlx.jit`.

    Args:
        function: The function to trace.
        options: Of the compilation.
        donate: Names of donated arguments.
        recipe: Call that creates it again, for pickles; `None` for internal functions.
        outputs: The location of results.
        prefers_device: Whether results lie on the device by default, if its memory is not the host's.
        static: Arguments that are no arrays, if there are such.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        options: Mapping[str, Any],
        donate: Sequence[str],
        recipe: functools.partial[Any] | None = None,
        outputs: Outputs | None = None,
        static: StaticArguments | None = None,
        *,
        prefers_device: bool = False,
    ) -> None:
        expect_function("jit", function)
        functools.update_wrapper(self, function)
        self._static = static
        self._function = function if static is None else static.unwrapping()
        self._options = options
        self._donate = donated_names(donate)
        self._made = recipe
        self._outputs = outputs
        self._prefers_device = prefers_device
        self._variants: dict[Any, Variant] = {}
        self._lock = Lock(f"the compiling of {function_name(function)}")
        self._straight: tuple[StraightCall, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if ambient_builder() is not None:
            return self._function(*args, **kwargs)
        try:
            if self._static is not None:
                args, kwargs = self._static.wrapped(args, kwargs)  # type: ignore[assignment]
            if not kwargs:
                for straight in self._straight:
                    result: R_co = straight.call(args)
                    if result is not NotImplemented:
                        return result
            return self._checked(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves, tree = flatten_arguments(bind_arguments(self._function, args, kwargs))
        key = (tree, *map(leaf_key, tree.names, leaves))
        variant = self._variants.get(key)
        if variant is None:
            with self._lock:
                variant = self._variants.get(key) or self._compile(key, args, kwargs)
        return self._called(variant, leaves, kwargs)

    def _called(self, variant: Variant, leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a checked call, after which similar calls take the fast path."""
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
        self: Jitted[Concatenate[Owner, Remaining], R_co], instance: Owner, owner: Any = None
    ) -> Callable[Remaining, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled function in a class is a method, like any function."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return runtime.references.made_again(self, self._made)

    def __copy__(self) -> Jitted[P, R_co]:
        """Return a new function of the same definition, with nothing compiled yet."""
        return self if self._made is None else self._made()

    def __deepcopy__(self, memo: object) -> Jitted[P, R_co]:
        return self.__copy__()

    @property
    def executables(self) -> list[Executable]:
        """Every variant compiled so far, in the order of compilation."""
        return [v.executable for v in list(self._variants.values())]

    @property
    def report(self) -> CompilationReport:
        """Return the compilation report of the latest variant.

        Raises:
            ConfigError: The function was not called yet, so nothing was compiled.
        """
        if not self._variants:
            raise ConfigError(f"jit: {function_name(self._function)} was not called yet, so it is not compiled")
        return self.executables[-1].report

    @property
    def traced_function(self) -> Callable[..., Any]:
        """The function that is traced: the user's, or the transformation of it."""
        return self._function

    def __repr__(self) -> str:
        count = len(self._variants)
        return f"<jit {function_name(self._function)}: {count} compiled {'variant' if count == 1 else 'variants'}>"

    def _repr_html_(self) -> str:
        from rlx_core.draw.pages import page  # here, because functions are called more often than looked at

        latest = list(self._variants.values())[-1:]
        return "".join(v.executable.page(v.traced.results.names, repr(self)) for v in latest) or page(repr(self))

    @typed_lacks("compile")
    @in_standard_modes
    def _compile(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        built = self._built(key, self._traced(args, kwargs), args, kwargs)
        # Bounded, because sizes may be ever new.
        _, configuration = set_up(self._options.get("config"), self._options.get("host"))
        variant = self._kept(key, built, configuration.budget.variants)
        self._expect_few_variants(variant.traced)
        return variant

    def _traced(self, args: Sequence[Any], kwargs: Mapping[str, Any], lifted: Mapping[str, Any] | None = None) -> Trace:
        with transforming_for(self._options.get("config"), self._options.get("host")), collecting_seldom():
            return trace(self._function, args, kwargs, lifted=lifted)

    def _built(self, key: Any, traced: Trace, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        donations: Mapping[str, int | None] = {}
        if self._donate:
            arguments = bind_arguments(self._function, args, kwargs)
            donations = runtime.donations.donations_of("jit", self._function, self._donate, arguments, traced)
        compiled = compile_graph(traced.graph, donations=donations, **{"cache": default_cache, **self._options})
        has_memory = compiled.target.device is not None
        outputs: Outputs | None = "device" if self._prefers_device and has_memory else None
        executable = Executable(compiled, outputs=self._outputs or outputs, traced=traced.graph)
        inputs = tuple(i for i, leaf in enumerate(traced.leaves) if leaf.role == "input")
        tree, *_ = key
        straight = StraightCall.of(executable.entry_cell, tree, traced.leaves, traced.results, donations)
        return Variant(executable, traced, inputs, straight)

    def _kept(self, key: Any, variant: Variant, limit: int) -> Variant:
        """Return the variant after storing it under its key; the oldest is evicted if there are `limit` of them."""
        while len(self._variants) >= limit:
            del self._variants[next(iter(self._variants))]
        self._variants[key] = variant
        return variant

    def _expect_few_variants(self, traced: Trace, why: str = "") -> None:
        """Warn once where a function is compiled again and again; `why` where that is not for its arguments."""
        if len(self._variants) == _MANY_VARIANTS:
            scalars = [leaf.name for leaf in traced.leaves if leaf.role == "static"]
            reason = f"; {', '.join(scalars)} is a Python scalar, each value of which is compiled" if scalars else why
            warnings.warn(
                f"jit: {function_name(self._function)} has {_MANY_VARIANTS} compiled variants{reason}. Pass NumPy scalars for "
                "values that vary, or compile with symbolic sizes",
                RuntimeWarning,
                stacklevel=7,
            )


def leaf_key(name: str, leaf: Any) -> Any:
    """Return the part of a variant's cache key for one leaf of an argument: a type, or the exact value of a Python scalar."""
    if is_static_leaf(leaf):
        return type(leaf), exact(leaf)  # 0.0 and -0.0 are different programs, and NaN is the same one again
    if is_array(leaf):
        return leaf.dtype, leaf.shape
    placed = placed_type(leaf)
    if placed is not None:
        return placed.dtype.numpy, placed.shape
    try:
        array = as_array(leaf)
    except TraceError as error:
        raise not_an_array(name, leaf, error) from None
    return array.dtype, array.shape


class JitDecorator(Protocol):
    """The decorator that `rlx.jit(donate=…)` returns: it takes the function."""

    def __call__(self, function: Callable[P, R], /) -> Jitted[P, R]: ...


@overload
def jit(
    function: Callable[P, R],
    /,
    *,
    donate: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    donate: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> JitDecorator: ...
@checked_call
def jit(
    function: Callable[P, R] | None = None,
    /,
    *,
    donate: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    target: str | None = None,
    precision: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    outputs: Outputs | None = None,
) -> Any:
    """Compile a function for the types it is called with, once for each combination; the last 1,024 (`budget.variants`) are kept.

    Arguments and results are pytrees of arrays: NumPy, or anything with DLPack or a buffer. Python scalars among the
    arguments are constants of the program (each value is compiled); pass NumPy scalars for values that vary. A leaf that is
    not an array (a function, a configuration) is a constant too if it is declared static. Inside another traced function
    the call is traced in place.

    Args:
        function: The function to compile; without it, a decorator is returned.
        donate: Names of arguments (or of leaves of them, `params.w1`) whose arrays the program may overwrite and return.
            An array that cannot be overwritten, because it is read-only, strided or passed twice, is copied instead.
        static_argnums, static_argnames: Parameters whose arguments are constants of the program: any value that is
            hashable. Equal arguments of one type share a compiled variant.
        target, precision, config, host, outputs: See `rlx.compile`.

    Raises:
        UnknownNameError, AxisError: There is no such parameter.
        ConfigError: The precision is not known.

    >>> double = jit(lambda x: x + x)
    >>> double(np.float32([1, 2]))
    Array([2., 4.], dtype=float32)
    """
    options = {"target": target, "config": with_precision("jit", config, precision, host), "host": host}
    again = functools.partial(
        jit, donate=donate, static_argnums=static_argnums, static_argnames=static_argnames, outputs=outputs, **options
    )
    if function is None:
        return again
    expect_function("jit", function)
    recipe = functools.partial(again, function)
    return Jitted(
        function, options, donate, recipe, outputs, static_arguments(function, static_argnums, static_argnames)
    )


def donated_names(donate: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of donated arguments.

    Raises:
        ConfigError: An item is not a string.
    """
    if isinstance(donate, tuple) and not donate:
        return ()
    from rlx_core.ops.arguments import names  # here, because few functions have donated arguments

    return names("jit: donate", donate, 'donate="params"')


def static_arguments(
    function: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str]
) -> StaticArguments | None:
    """Return the static arguments of a function; `None` if it has none.

    Raises:
        UnknownNameError, AxisError: The function has no such parameter.
    """
    if isinstance(numbers, tuple) and isinstance(names, tuple) and not numbers and not names:
        return None
    from rlx_core.trees.static import StaticArguments  # here, because few functions have static arguments

    static = StaticArguments.of("jit", function, numbers, names)
    return static if static.names else None


def run_compiled(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of `function(*args)`, traced as a part of the current program, or compiled and run."""
    return function(*args) if ambient_builder() is not None else Jitted(function, {}, ())(*args)
