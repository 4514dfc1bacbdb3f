"""A small cache of recently used values, safe to share between threads.

A value that is missing is computed once even if several threads need it at the same time; different keys are computed in
parallel. A failed attempt leaves nothing behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from rlx_core.errors import ConfigError
from rlx_core.system.locks import Lock
from rlx_core.system.records import define

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define
class CacheCounts:
    """Hits, misses and evictions of a cache so far."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0


class LruCache(Generic[K, V]):
    """At most `capacity` values; the least recently used is evicted first.

    Raises:
        ConfigError: The capacity is not positive.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"cache: capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.counts = CacheCounts()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, Lock] = {}
        self._lock = Lock("a cache's order")

    def get(self, key: K) -> V | None:
        """Return the value for `key`, which becomes the most recently used, or `None`."""
        # Without the lock: each step is atomic in the interpreter, and a value that is evicted meanwhile was present at the
        # look-up.
        value = self._values.get(key)
        if value is None:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        with suppress(KeyError):
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self.capacity:
                self._values.popitem(last=False)
                self.counts.evictions += 1

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value for `key`, computed by `make` if it is missing; exceptions of `make` are raised here."""
        with self._lock:
            gate = self._making.setdefault(key, Lock("what is being compiled"))
        with gate:
            try:
                value = self.get(key)
                if value is None:
                    value = make()
                    self.put(key, value)
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def keys(self) -> list[K]:
        """The keys, least recently used first."""
        with self._lock:
            return list(self._values)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._values

    def __len__(self) -> int:
        return len(self._values)
