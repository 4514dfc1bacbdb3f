"""Pytrees of arrays in files of named arrays: parameters, the state of an optimiser, keys, the number of a step.

A leaf is named by its path in the tree, `params.layers.0.w` or `state.0.mu.w`: keys of dictionaries, indices of lists and tuples,
fields of named tuples. A file holds no classes, so the caller who reads one passes the structure as `like`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import optree

from rlx_core.errors import ConfigError, Fact, FormatError
from rlx_core.ir.apply import as_array
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.types import TensorType
from rlx_core.transforms.trace import leaf_type
from rlx_core.trees.flatten import Tree, flatten


def by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by the names of their places.

    Raises:
        FormatError: Two places have one name, or a key is neither a text nor an integer.
    """
    leaves, structure = flatten(tree)
    names = _names(structure)
    result = dict(zip(names, leaves, strict=True))
    if len(result) != len(leaves):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise FormatError(f"state: two leaves are called {twice!r}", hint="keys with dots hide where a place ends")
    return result


def _names(structure: Tree) -> list[str]:
    return [".".join(map(_word, accessor)) for accessor in structure.structure.accessors()]


def _word(entry: optree.PyTreeEntry) -> str:
    key = entry.field if isinstance(entry, optree.NamedTupleEntry) else entry.entry
    if isinstance(key, str | int):
        return str(key)
    raise FormatError(f"state: the key {key!r} is neither a text nor an integer, and names no array in a file")


def restored(arrays: Any, like: Any) -> Any:
    """Return named arrays as the pytree that they were saved from, in newly allocated memory: a donated one can be overwritten.

    Args:
        arrays: The contents of a file.
        like: A pytree of the same structure, of arrays, `rlx.spec`s or Python numbers, of which only the types are read.

    Raises:
        ConfigError: The file holds something else than arrays by name.
        FormatError: A name is missing or unexpected, or an array has another type.
    """
    if not isinstance(arrays, Mapping):
        raise ConfigError(f"load: like is for arrays by name, not a {type(arrays).__name__}", hint="load it without")
    expected = by_name(like)
    missing, extra = [n for n in expected if n not in arrays], [n for n in arrays if n not in expected]
    if missing or extra:
        raise FormatError(
            "load: the file has other arrays than what it is to be like",
            *([Fact("missing", _some(missing))] if missing else []),
            *([Fact("not asked for", _some(extra))] if extra else []),
            hint="without like=, all arrays come by name",
        )
    _, structure = flatten(like)
    return structure.unflatten([_restored(name, arrays[name], leaf) for name, leaf in expected.items()])


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _restored(name: str, stored: Any, like: Any) -> Any:
    array = as_array(stored)
    is_number = type(like) in (bool, int, float, complex)
    expected = leaf_type(np.asarray(like)) if is_number else leaf_type(like)
    actual = TensorType(dtype(array.dtype), array.shape)
    if actual != expected:
        raise FormatError(f"load: {name!r} is {actual} in the file, not {expected}")
    return array.item() if is_number else array.copy()
