"""Registration of classes whose instances hold arrays as pytrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import attrs
import optree
from optree.registry import __GLOBAL_NAMESPACE as EVERYWHERE

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.hints.keywords import checked_call
from rlx_core.trees.static import Static

C = TypeVar("C", bound=type[Any])


@overload
def register_dataclass(cls: C, *, meta_fields: str | Sequence[str] = ()) -> C: ...
@overload
def register_dataclass(cls: None = None, *, meta_fields: str | Sequence[str] = ()) -> Any: ...
@checked_call
def register_dataclass(cls: Any = None, *, meta_fields: str | Sequence[str] = ()) -> Any:
    """Register a dataclass (or an attrs class) as a pytree: for `jit`, `grad`, `scan`, optimisers.

    They are rebuilt field by field, without `__init__`, since traced values in the fields need not pass its checks.

    Args:
        cls: The class; without it, a decorator is returned.
        meta_fields: Fields that are part of the program instead of holding arrays: sizes, names, functions. They need a hash.

    Raises:
        ConfigError: It is no such class, was registered before, or has no such field.

    >>> @rlx.register_dataclass
    ... @dataclasses.dataclass
    ... class Line:
    ...     slope: np.ndarray
    ...     offset: np.ndarray
    >>> rlx.jit(lambda line, x: line.slope * x + line.offset)(Line(np.float32(2), np.float32(1)), np.float32(3))
    Array(7., dtype=float32)
    """
    if cls is None:
        return lambda decorated: register_dataclass(decorated, meta_fields=meta_fields)
    meta = frozenset([meta_fields] if isinstance(meta_fields, str) else meta_fields)
    names = _fields(cls)
    for name in sorted(meta - set(names)):
        raise ConfigError(
            f"register_dataclass: {cls.__name__} has no field {name!r}",
            Fact("fields", ", ".join(names)),
            hint=nearest(name, names),
        )
    data_fields = tuple(name for name in names if name not in meta)
    fixed = tuple(name for name in names if name in meta)

    def flatten(instance: Any) -> tuple[tuple[Any, ...], Any, tuple[str, ...]]:
        return (
            tuple(getattr(instance, n) for n in data_fields),
            tuple(Static(getattr(instance, n)) for n in fixed),
            data_fields,
        )

    def unflatten(metadata: Any, leaves: Any) -> Any:
        instance = object.__new__(cls)
        for name, value in zip(data_fields, leaves, strict=True):
            object.__setattr__(instance, name, value)
        for name, static in zip(fixed, metadata, strict=True):
            object.__setattr__(instance, name, static.value)
        return instance

    try:
        optree.register_pytree_node(cls, flatten, unflatten, namespace=EVERYWHERE)
    except ValueError:
        raise ConfigError(f"register_dataclass: {cls.__name__} is a pytree already") from None
    return cls


@checked_call
def register_pytree_node(
    cls: C, flatten: Callable[[Any], tuple[Any, ...]], unflatten: Callable[[Any, Iterable[Any]], Any]
) -> C:
    """Register any class as a pytree: for `jit`, `grad`, `scan`, optimisers. The class is returned.

    Args:
        cls: The class.
        flatten: `flatten(instance) -> (children, aux)`: pytrees of arrays, and the rest, which is part of the program and
            needs a hash and `==`; or `(children, aux, names)`, where names of leaves begin with their child's name instead of
            its number.
        unflatten: `unflatten(aux, children) -> instance`. The children may be stand-ins for arrays, so it must not check them.

    Raises:
        ConfigError: It is no class, or was registered before; or one of the functions cannot be called.

    >>> class Line:
    ...     def __init__(self, slope, offset):
    ...         self.slope, self.offset = slope, offset
    >>> _ = rlx.register_pytree_node(Line, lambda line: ((line.slope, line.offset), None), lambda aux, both: Line(*both))
    >>> rlx.grad(lambda line: line.slope * 3 + line.offset)(Line(np.float32(2), np.float32(1))).slope
    Array(3., dtype=float32)
    """
    if not isinstance(cls, type):
        raise ConfigError(f"register_pytree_node: takes a class, not {type(cls).__name__}")
    for name, function in (("flatten", flatten), ("unflatten", unflatten)):
        if not callable(function):
            raise ConfigError(f"register_pytree_node: {name} is {type(function).__name__}, not a function")

    def flattened(instance: Any) -> tuple[Any, ...]:
        flat: Any = flatten(instance)
        if not isinstance(flat, tuple) or len(flat) not in (2, 3):
            raise ConfigError(
                f"register_pytree_node: flatten of {cls.__name__} returned {type(flat).__name__}, not a pair",
                hint="return (children, aux), with None for aux where everything is a child",
            )
        children, aux, *names = flat
        return (tuple(children), Static(aux), *map(tuple, names))

    def unflattened(aux: Any, children: Any) -> Any:
        return unflatten(aux.value, children)

    try:
        optree.register_pytree_node(cls, flattened, unflattened, namespace=EVERYWHERE)
    except ValueError:
        raise ConfigError(f"register_pytree_node: {cls.__name__} is a pytree already") from None
    return cls


def _fields(cls: Any) -> list[str]:
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        return [each.name for each in dataclasses.fields(cls)]
    if isinstance(cls, type) and attrs.has(cls):
        return [each.name for each in attrs.fields(cls)]
    raise ConfigError(
        f"register_dataclass: {getattr(cls, '__name__', cls)!s} is no dataclass",
        hint="decorate it with dataclasses.dataclass first, below rlx.register_dataclass",
    )
