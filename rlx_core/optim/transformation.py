"""Gradient transformations: pairs of functions, one that creates a state and one that converts gradients to updates.

Transformations chain, because updates have the structure of gradients: each takes the result of the previous one. Finally,
updates are added to the parameters (`apply_updates`), so a descent multiplies by a negative rate in one of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol

from attrs import evolve, field

import rlx_core as rlx
from rlx_core.errors import ConfigError, FormatError, WrongInputCountError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.array import wrapped
from rlx_core.ops.linalg import operand
from rlx_core.optim.trees import wide
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import flatten, map_leaves, same_structure


class Transformation(Protocol):
    """Protocol of transformations, which can be chained, wrapped, and passed to `rlx.train_step`."""

    @property
    def init(self) -> Callable[[Any], Any]: ...
    @property
    def update(self) -> Callable[..., tuple[Any, Any]]: ...


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with rlx's arrays in place of NumPy's among its arguments: their operators are those of a program."""

    if getattr(function, "takes_arrays", False):  # `evolve` creates a transformation from the functions of another
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        trees: Any = (args, kwargs)
        taken, named = map_leaves(wrapped, trees)
        return function(*taken, **named)

    called.takes_arrays = True  # type: ignore[attr-defined]
    return called


@frozen
class GradientTransformation:
    """A transformation of gradients.

    Attributes:
        init: `init(params) -> state`: a pytree of arrays.
        update: `update(grads, state, params=None) -> (updates, state)`: updates have the structure of the gradients, and are
            to be added to the parameters.
        description: The call that created it, as shown by `repr`.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    description: str | None = field(default=None, kw_only=True, eq=False)

    def __attrs_post_init__(self) -> None:
        # Not by converters: to pyright their fields are descriptors, which `Transformation` does not have.
        for name in ("init", "update"):
            object.__setattr__(self, name, _on_arrays(getattr(self, name)))

    def __repr__(self) -> str:
        return self.description or f"<gradient transformation {self.update.__qualname__.partition('.')[0]}>"

    def __copy__(self) -> GradientTransformation:
        return self

    def __deepcopy__(self, memo: object) -> GradientTransformation:
        return self

    def __reduce__(self) -> Any:
        raise FormatError(
            "pickle: a gradient transformation is made of functions, which do not travel; its state does",
            hint="make it again in the other process, and save the state: rlx.save(path, state)",
        )


P = ParamSpec("P")


def described(make: Callable[P, GradientTransformation]) -> Callable[P, GradientTransformation]:
    """Return a function that creates transformations whose `repr` is the call that created them."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> GradientTransformation:
        result = make(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return evolve(result, description=f"{make.__name__}({shown})")

    return call


class EmptyState(NamedTuple):
    """The state of a stateless transformation."""


@checked_call
def stateless(update: Callable[[Any, Any], Any]) -> GradientTransformation:
    """A stateless transformation, from `update(grads, params) -> updates`."""
    return GradientTransformation(lambda params: EmptyState(), lambda g, state, params=None: (update(g, params), state))


@checked_call
def identity() -> GradientTransformation:
    """The identity: gradients unchanged."""
    return stateless(lambda grads, params: grads)


def transformation(what: str, value: Any) -> Transformation:
    """Return the argument, which must be a transformation.

    Raises:
        ConfigError: It has no `init` and `update`.
    """
    if not (callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))):
        hint = "call it: rlx.optim.adam(1e-3)" if callable(value) else "rlx.optim.adam(1e-3) makes one"
        raise ConfigError(f"{what}: takes a transformation with init and update, not {value!r}", hint=hint)
    result: Transformation = value
    return result


@checked_call
def chain(*transformations: Transformation) -> GradientTransformation:
    """Transformations one after another; the state is the tuple of theirs.

    >>> clipped = chain(rlx.optim.clip_by_global_norm(2.5), rlx.optim.scale(-1.0))
    >>> clipped.update(np.float32([3, 4]), clipped.init(np.float32([0, 0])))[0]
    Array([-1.5, -2. ], dtype=float32)
    """
    parts = [transformation("chain", t) for t in transformations]

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if len(state) != len(parts):
            raise ConfigError(
                f"chain: a state of {len(state)} parts for {len(parts)} transformations",
                hint="the state comes from init of the same chain",
            )
        states = []
        for part, its in zip(parts, state, strict=True):
            grads, its = part.update(grads, its, params)
            states.append(its)
        return grads, tuple(states)

    return GradientTransformation(lambda params: tuple(part.init(params) for part in parts), update)


@checked_call
def apply_updates(params: Any, updates: Any) -> Any:
    """`params + updates`, leaf by leaf, each rounded once to the dtype of its parameter.

    Raises:
        ShapeError: The structures differ.
    """
    leaves, structure = flatten(params)
    update_leaves, its_structure = flatten(updates)
    same_structure("apply_updates", structure, its_structure)
    return structure.unflatten([_moved(p, u) for p, u in zip(map(operand, leaves), update_leaves, strict=True)])


def _moved(param: Any, update: Any) -> Any:
    return rlx.astype(wide(param) + wide(update), param.dtype, copy=False)


def expect_params(what: str, params: Any) -> Any:
    """Return the parameters, which `what` needs.

    Raises:
        WrongInputCountError: They are missing.
    """
    if params is None:
        raise WrongInputCountError(
            f"{what}: needs the parameters besides the gradients", hint="optimiser.update(grads, state, params)"
        )
    return params
