"""The public names and their modules, as one table: `rlx_core` and `rlx_core.ops` import a name when it is first used.

Importing every op at once would cost more than everything else in `import rlx_core`. The names of functions follow the
Python Array API; type checkers read `__init__.pyi`, which `rlx_core.testing.api.stubs` prints from
this table, and a test compares the two.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def listed(rows: Mapping[str, str]) -> dict[str, str]:
    """Each name with its module, from the names of each module."""
    return {name: module for module, names in rows.items() for name in names.split()}


FUNCTIONS = listed(
    {
        "rlx_core.ops.arithmetic": (
            "abs add atan2 divide floor_divide hypot logaddexp maximum minimum multiply negative pow "
            "reciprocal remainder sign square subtract"
        ),
        "rlx_core.ops.activation": (
            "cbrt erf erfc erfinv exp exp2 expm1 gelu gelu_approx log log10 log1p log2 relu rsqrt sigmoid silu softplus "
            "mish sqrt tanh"
        ),
        "rlx_core.ops.trigonometry": "acos acosh asin asinh atan atanh cos cosh sin sinh tan",
        "rlx_core.ops.piecewise": ("celu elu hard_sigmoid hard_swish hard_tanh leaky_relu relu6 selu"),
        "rlx_core.ops.gamma": "digamma lgamma polygamma",
        "rlx_core.ops.floating": "bitcast copysign nextafter",
        "rlx_core.ops.comparison": (
            "equal greater greater_equal isfinite isinf isnan less less_equal logical_and logical_not logical_or "
            "logical_xor not_equal signbit"
        ),
        "rlx_core.ops.bitwise": (
            "bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
        ),
        "rlx_core.ops.complex": "complex_abs complex_norm_sq make_complex",
        "rlx_core.ops.pairs.pairs": "view_as_complex view_as_real",
        "rlx_core.ops.selection": "optimization_barrier stop_gradient straight_through where",
        "rlx_core.ops.along_axis": "put_along_axis",
        "rlx_core.ops.array_creation": "arange asarray empty empty_like eye from_dlpack linspace meshgrid",
        "rlx_core.ops.array_elementwise": "ceil clip conj conjugate floor imag positive real round trunc",
        "rlx_core.ops.array_search": (
            "argmax argmin argsort nonzero searchsorted sort take take_along_axis top_k unique_all unique_counts "
            "unique_inverse unique_values"
        ),
        "rlx_core.ops.array_shapes": (
            "broadcast_arrays broadcast_to diag diagonal expand_dims flip matrix_transpose moveaxis pad permute_dims repeat "
            "reshape roll split squeeze stack swapaxes tile unstack"
        ),
        "rlx_core.ops.array_statistics": (
            "all any astype count_nonzero cumulative_logsumexp cumulative_max cumulative_min cumulative_prod cumulative_sum diff "
            "logsumexp max mean min prod std sum var"
        ),
        "rlx_core.ops.movement": "concat",
        "rlx_core.ops.rearrange": "tril triu",
        "rlx_core.ops.array_info": "can_cast finfo iinfo isdtype result_type",
        "rlx_core.ops.creation": "full full_like iota one_hot ones ones_like zeros zeros_like",
        "rlx_core.ops.at": "at",
        "rlx_core.ops.indexing": "gather scatter_add",
        "rlx_core.ops.scatter": "scatter",
        "rlx_core.ops.gather_nd": "gather_nd scatter_nd",
        "rlx_core.ops.windows": "dynamic_slice dynamic_update_slice",
        "rlx_core.ops.cumulative": "linear_recurrence",
        "rlx_core.ops.products": "grouped_matmul lora_matmul",
        "rlx_core.ops.linalg": "matmul outer tensordot vecdot",
        "rlx_core.ops.einsum": "einsum",
        "rlx_core.ops.solve": "solve",
        "rlx_core.ops.softmax": "log_softmax softmax",
        "rlx_core.ops.batch_norm": "batch_norm batch_norm_inference",
        "rlx_core.ops.normalization": "group_norm layer_norm rms_norm",
        "rlx_core.ops.attention": "attention",
        "rlx_core.ops.rope": "rope",
        "rlx_core.ops.numeric.elementwise": (
            "allclose angle array_equal deg2rad fmax fmin fmod heaviside isclose isneginf isposinf logaddexp2 nan_to_num rad2deg "
            "sinc"
        ),
        "rlx_core.ops.numeric.without_nan": ("nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar"),
        "rlx_core.ops.numeric.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "rlx_core.ops.numeric.statistics": "average corrcoef cov trapezoid",
        "rlx_core.ops.numeric.bins": (
            "bincount histogram segment_max segment_mean segment_min segment_prod segment_sum"
        ),
        "rlx_core.ops.numeric.interpolation": "interp polyval",
        "rlx_core.ops.numeric.signals": "convolve correlate",
    }
)
"""Functions of arrays: on values they build the program, on arrays outside of one they are evaluated at once. `CORE` has those of
the same names that `rlx_core` offers instead."""

OPERATORS = FUNCTIONS | {
    **dict.fromkeys(("astype", "matrix_transpose"), "rlx_core.ops.operators"),
    **{name: f"rlx_core.ops.{name}" for name in ("getitem", "setitem")},
    "array_namespace": "rlx_core.ops.array_info",
    "device": "rlx_core.ops.device:device_of",
    "dim_value": "rlx_core.ops.creation",
    "to_device": "rlx_core.ops.device",
}
"""Functions of the operators and methods of arrays, by the operator's name in the Python Array API."""

SPELLINGS = {
    "rlx.cast": "astype",
    "rlx.expand": "broadcast_to",
    "rlx.gather": "take",
    "rlx.transpose": "permute_dims matrix_transpose moveaxis swapaxes",
    "rlx.reshape": "reshape expand_dims squeeze",
    "rlx.concat": "concat stack",
    "rlx.narrow": "split unstack",
    "rlx.cumsum": "cumulative_sum",
    "rlx.cumprod": "cumulative_prod",
    "rlx.reduce_max": "max",
    "rlx.reduce_min": "min",
    "rlx.arg_max": "argmax",
    "rlx.arg_min": "argmin",
    "rlx.arg_sort": "argsort",
    "rlx.search_sorted": "searchsorted",
    "rlx.log_sum_exp": "logsumexp",
    "rlx.dot_general": "tensordot einsum",
    "rlx.dense_solve": "solve",
    "rlx.batched_dense_solve": "solve",
    "rlx.full": "full full_like ones ones_like zeros zeros_like",
    "rlx.linear_block": "nn.linear",
    "rlx.fft": "fft.fft fft.ifft fft.fftn fft.ifftn",
    "rlx.real_fft": "fft.rfft fft.rfftn fft.ihfft fft.stft",
    "rlx.inverse_real_fft": "fft.irfft fft.irfftn fft.hfft fft.istft",
}
"""Op → the public functions that write it, where those are more than the op's own function and are called otherwise."""

PLUGIN_KIT = listed(
    {
        "rlx_core.ir.op": "Kink Op ZERO Zero define_op",
        "rlx_core.ops.arity": "op_function",
        "rlx_core.ops.samples": "Rejected Sample",
        "rlx_core.ir.types": "TensorType broadcast_shapes expect_dtype expect_rank expect_shape same_dim spec",
        "rlx_core.ir.graph": "Value",
        "rlx_core.ir.dims": "Dim",
        "rlx_core.ops.kinds": "promoted",
        "attrs": "field",
    }
)
"""Names that a package needs to write its own ops."""

CORE = listed(
    {
        "rlx_core.runtime.compiled_function": "compile",
        "rlx_core.runtime.jit": "jit",
        "rlx_core.functions.transforms": "eval_shape grad hessian hvp jacfwd jacrev jvp linearize trace value_and_grad vjp vmap",
        "rlx_core.ops.collectives": "axis_index axis_size pmax pmean pmin psum",
        "rlx_core.functions.callbacks": "pure_callback",
        "rlx_core.functions.checkpoint": "checkpoint checkpoint_name",
        "rlx_core.functions.custom_jvp": "custom_jvp",
        "rlx_core.functions.custom_vjp": "custom_vjp",
        "rlx_core.functions.control.calls": "associative_scan cond fori_loop map scan switch while_loop",
        "rlx_core.functions.model": "Model",
        "rlx_core.trees.classes": "register_dataclass register_pytree_node",
        "rlx_core.functions.forward_backward": "forward_backward",
        "rlx_core.functions.profiling": "profile",
        "rlx_core.functions.training": "train_step",
        "rlx_core.files.load_save": "from_bytes load save to_bytes",
        "rlx_core.files.packages.packing": "package",
        "rlx_core.runtime.devices": "device_put devices",
        "rlx_core.runtime.session": "Session available_devices is_available",
        "rlx_core.builder": "GraphBuilder",
        "rlx_core.typing": "Array ArrayLike DTypeLike PyTree",
        "rlx_core.ir.types": "TensorType spec",
        "rlx_core.ir.graph": "Graph Value",
        "rlx_core.ir.interpret": "interpret",
        "rlx_core.ir.dims": "symbol",
        "rlx_core.ir.dtypes": "bf16 c64 c128 f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    }
) | {
    # Functions of arrays whose op takes other attributes than a user writes: `rlx_core.ops` has the op's function.
    **dict.fromkeys(
        ("gather", "gather_nd", "put_along_axis", "scatter", "scatter_add", "scatter_nd"), "rlx_core.ops.array_indexing"
    ),
    **dict.fromkeys(("attention", "rope"), "rlx_core.nn.attending"),
    **dict.fromkeys(
        ("batch_norm", "batch_norm_inference", "group_norm", "layer_norm", "rms_norm"), "rlx_core.nn.normalization"
    ),
    **dict.fromkeys(("gelu", "leaky_relu"), "rlx_core.nn.activations"),
    "one_hot": "rlx_core.nn.layers",
    "polygamma": "rlx_core.special.gamma_family",
    "bool_": "rlx_core.ir.dtypes",
    "checkpoint_policies": "rlx_core.functions.checkpoint_policies:",
    "fft": "rlx_core.fft:",
    "debug": "rlx_core.debug:",
    "linalg": "rlx_core.linalg:",
    "nn": "rlx_core.nn:",
    "optim": "rlx_core.optim:",
    "quantization": "rlx_core.quantization:",
    "random": "rlx_core.random:",
    "special": "rlx_core.special:",
    "__array_api_version__": "rlx_core.ops.array_info:API_VERSION",
    "__array_namespace_info__": "rlx_core.ops.array_info:namespace_info",
    **dict.fromkeys(("e", "inf", "nan", "newaxis", "pi"), "rlx_core.ops.array_info"),
    # The dtypes by the names of the standard, and bfloat16 by its name in ml_dtypes.
    "bool": "rlx_core.ir.dtypes:bool_",
    "bfloat16": "rlx_core.ir.dtypes:bf16",
    "complex64": "rlx_core.ir.dtypes:c64",
    "complex128": "rlx_core.ir.dtypes:c128",
    **{f"float{n}": f"rlx_core.ir.dtypes:f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"rlx_core.ir.dtypes:i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"rlx_core.ir.dtypes:u{n}" for n in (8, 16, 32, 64)},
}


def place_of(places: Mapping[K, str], name: K) -> tuple[str, str]:
    """Return the module and the attribute of a public name; the attribute is empty where the name is the module itself.

    A place is `module`, `module:attribute`, or `module:` for a module.
    """
    module, colon, attribute = places[name].partition(":")
    return module, attribute if colon else str(name)


def found_at(module: str, attribute: str) -> Any:
    """Import a module and return its attribute, or the module if the attribute is empty."""
    imported = importlib.import_module(module)
    return getattr(imported, attribute) if attribute else imported


class LazyTable(dict[K, V]):
    """A dictionary whose entries are imported when they are first read.

    Args:
        places: Key → the entry's place, as `place_of` reads it.
    """

    def __init__(self, places: Mapping[K, str]) -> None:
        super().__init__()
        self.places = places

    def __missing__(self, key: K) -> V:
        # Set once: of two threads that import an entry, both get the first one's.
        return self.setdefault(key, found_at(*place_of(self.places, key)))


class Registered(dict[K, V]):
    """A table filled by modules of a later layer when they are imported, which happens on the first missing key.

    Args:
        modules: The modules that fill the table, by name; nothing else of them is known here.
    """

    def __init__(self, *modules: str) -> None:
        super().__init__()
        self.modules = modules

    def __missing__(self, key: K) -> V:
        for module in self.modules:
            importlib.import_module(module)
        entry = self.get(key)
        assert entry is not None, f"{', '.join(self.modules)} enter {key!r}"
        return entry


def lazy_modules(package: str, modules: Iterable[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package whose modules are imported when they are first read as its attributes."""
    get, names, _ = lazy_names(package, {name: f"{package}.{name}:" for name in modules})
    return get, names


def lazy_names(
    module: str, *tables: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for a module whose names are imported on first use."""
    places = {name: place for table in tables for name, place in table.items()}

    def get(name: str) -> Any:
        if name not in places:
            value = offered(module, name)
            if value is None:
                raise absent(module, name, places)
            return value
        try:
            # Imported here, because importing rlx imports none of its parts.
            from rlx_core.system.locks import forks_wait

            # Stored, so that only the first use comes here: an attribute costs 30 ns and a call of this function microseconds.
            with forks_wait:  # a module that a fork finds half imported stays so in the child
                from rlx_core.system.collecting import collecting_seldom  # as above
                from rlx_core.system.interpreters import expect_main_interpreter

                expect_main_interpreter()
                with collecting_seldom():
                    value = vars(sys.modules[module])[name] = found_at(*place_of(places, name))
        except Exception as error:
            from rlx_core.errors.lacks import in_our_words  # as above

            translated = in_our_words(f"{module}.{name}", error)
            if translated is None:
                raise
            raise translated from error
        return value

    return get, lambda: sorted(places), sorted(places)


def reexports(module: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` for a module that re-exports names of other modules: all its names except modules."""
    namespace = vars(sys.modules[module])
    names = sorted(n for n, value in namespace.items() if not n.startswith("_") and not isinstance(value, ModuleType))

    def get(name: str) -> Any:
        raise absent(module, name, names)

    return names, get


def offered(module: str, name: str) -> Any:
    """The function that a plugin offers under a name of rlx's own; `None` if no installed package declares one.

    Not kept in the module: plugins can be blocked and changed while the process lives.
    """
    if module != "rlx_core" or name.startswith("_") or is_submodule(module, name):
        return None
    return importlib.import_module("rlx_core.plugins.offered").offered_function(name)  # rlx imports no plugin by itself


def installing(name: str) -> str | None:
    """Return the command that installs the package that is known to offer a name of rlx's own, if one is known."""
    package = importlib.import_module("rlx_core.hints.packages").known_packages().get(f"function.{name}")
    return None if package is None else package.command


def is_submodule(module: str, name: str) -> bool:
    """Return whether a package has a module of this name, which `from package import name` looks up before it imports that."""
    folders: Iterable[str] = getattr(sys.modules[module], "__path__", ())
    return any(os.path.exists(os.path.join(folder, each)) for folder in folders for each in (f"{name}.py", name))


def absent(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have: with rlx's name for it, or the reason why it is absent."""
    # Python's own probes, some of which occur with every import; computing the hint takes milliseconds.
    if name.startswith("__") or is_submodule(module, name):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    # Both are imported only for this error.
    expected = importlib.import_module("rlx_core.hints.expected")
    errors = importlib.import_module("rlx_core.errors")
    hint = expected.hint_for(name, known) or installing(name) or errors.nearest(name, known, cutoff=0.75)
    error: AttributeError = errors.AbsentNameError(f"{module} has no {name}", hint=hint)
    return error


def _at_forks(name: str) -> Callable[[], None]:
    """Return a function that calls one of `rlx_core.system.locks`, and waits if another thread is importing just that."""

    def call() -> None:
        locks = importlib.import_module("rlx_core.system.locks")
        function = vars(locks).get(name)  # a signal handler may fork in the middle of the import
        if function is not None:
            function()

    return call


if hasattr(os, "register_at_fork"):  # here, because a fork may come while another thread imports the first part of rlx
    os.register_at_fork(
        before=_at_forks("before_fork"),
        after_in_parent=_at_forks("after_fork"),
        after_in_child=_at_forks("after_fork_in_child"),
    )
