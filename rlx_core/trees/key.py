"""A random key: two words that only the functions of `rlx.random` read, as a pytree, so that it is accepted like arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeAlias

import optree
from optree.registry import __GLOBAL_NAMESPACE as EVERYWHERE

from rlx_core.errors import AxisError, DtypeError

Leaves: TypeAlias = tuple[tuple[Any], None, tuple[str]]


class Key:
    """A key, or an array of keys.

    It is made by `rlx.random.key`, and others from it by `split` and `fold_in`. To `jit`, `vmap` and everything that takes
    pytrees it is a container of one array, `words`. It is no number: arithmetic with it is an error.

    Attributes:
        words: u32[.., 2], an array or a traced value.

    Raises:
        DtypeError: It is computed with, compared, or made an array.
    """

    __slots__ = ("words",)
    __array_ufunc__: Final = None  # so that NumPy's arrays leave `array + key` to the key, which refuses
    __hash__ = None  # type: ignore[assignment]  # without equality, no hash

    def __init__(self, words: Any) -> None:
        self.words = words

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the array of keys; `()` for one key."""
        return tuple(self.words.shape[:-1])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        if not self.ndim:
            raise AxisError(
                "random key: it is one key, which has no length", hint="rlx.random.split(key, n) gives n keys"
            )
        length: int = self.shape[0]
        return length

    def __iter__(self) -> Iterator[Key]:
        return (Key(self.words[i]) for i in range(len(self)))

    def __getitem__(self, index: Any) -> Key:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > self.ndim or any(part is None or part is Ellipsis for part in indices):
            raise AxisError(f"random key: {len(indices)} indices of keys with {self.ndim} axes")
        return Key(self.words[indices])

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _refusal("an array of it")

    def __repr__(self) -> str:
        return f"Key({self.words!r})"


def _refusal(what: str) -> DtypeError:
    return DtypeError(
        f"random key: {what} was asked for, and a key is no number",
        hint="draw with it: rlx.random.uniform(key, shape); its two words are key.words",
    )


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: Key, *others: object) -> NoReturn:
        raise _refusal(name)

    method.__name__ = name
    return method


_OPERATORS: Final = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
_ALONE: Final = "eq ne lt le gt ge neg pos abs invert bool int float complex index round"

for _name in (*_ALONE.split(), *_OPERATORS.split(), *(f"r{each}" for each in _OPERATORS.split())):
    setattr(Key, f"__{_name}__", _refusing(f"__{_name}__"))


def _flatten(key: Any) -> Leaves:
    return (key.words,), None, ("words",)


def _unflatten(metadata: object, leaves: Any) -> Any:
    return Key(*leaves)


_CONTAINER: Any = Key  # required by optree
optree.register_pytree_node(_CONTAINER, _flatten, _unflatten, namespace=EVERYWHERE)
