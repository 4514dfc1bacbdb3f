"""`from_jax`, importable without jax; the implementation is in `importing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core.errors import Fact, PluginError


def from_jax(function: Callable[..., Any], /, *args: Any, name: str | None = None) -> rlx.Model:
    """Return a function of JAX as a model: its jaxpr, translated to rlx's functions.

    An argument is, as for `rlx.compile`, either all arrays, which become parameters, or all specs, which become inputs. Names
    in the specs' sizes are symbols: the model takes any size there. Rules of `jax.custom_jvp` and `jax.custom_vjp` are kept.
    The parameters of the model are a dict, an argument each; `jax.random` keys among them become words of u64.

    Args:
        function: Anything that `jax.make_jaxpr` takes.
        args: One for each argument: a pytree of arrays, or a pytree of `rlx.spec`s or `jax.ShapeDtypeStruct`s.
        name: Name of the model in reports and errors; by default the function's name.

    Raises:
        UnsupportedError: The jaxpr has primitives without an rlx equivalent; all are named, with the lines that use them.
        ConfigError: An argument mixes arrays and specs, or no argument is an input.
        DtypeError: An input has 64 bits, and `jax_enable_x64` is off.

    >>> model = rlx.from_jax(lambda w, x: jax.nn.softmax(x @ w), np.eye(2, dtype=np.float32), rlx.spec("f32[batch, 2]"))
    >>> model(np.zeros((1, 2), np.float32))
    Array([[0.5, 0.5]], dtype=float32)
    """
    try:
        import jax  # noqa: F401 asked for first, so that only its absence is said to be that
    except ImportError as error:
        hint = "python -m pip install jax"
        raise PluginError("from_jax: jax cannot be imported", Fact("cause", error), hint=hint) from None
    from rlx_jax.importing import imported

    return imported(function, args, name)
