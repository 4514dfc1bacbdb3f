"""Compiled programs kept for the next call and the next process.

Two layers under one key: an LRU cache in memory, and files on disk. The key (`pipeline.job.Job.key`) covers
everything that may change the result, so an entry is never stale; it can only be missing or damaged, and both mean
"compile again".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from rlx_core.errors import CacheError
from rlx_core.pipeline.backend import ObjectStore
from rlx_core.pipeline.config.records import CacheConfig, Configuration
from rlx_core.system.disk import DiskCache
from rlx_core.system.locks import Lock
from rlx_core.system.lru import LruCache
from rlx_core.system.private import cache_directory

T = TypeVar("T")


class CompileCache:
    """Compiled programs by key: in memory, and on disk if there is a directory for it.

    Args:
        capacity: Maximum number of programs in memory.
        disk: The disk cache of their bytes, or `None`.
        objects: The backends' cache of machine code, or `None`.
    """

    def __init__(self, capacity: int = 128, disk: DiskCache | None = None, objects: ObjectStore | None = None) -> None:
        self.memory: LruCache[str, object] = LruCache(capacity)
        self.disk = disk
        self.objects = objects

    def get_or_compile(
        self,
        key: str,
        compile: Callable[[], T],
        *,
        to_bytes: Callable[[T], bytes | None] | None = None,
        from_bytes: Callable[[bytes], T] | None = None,
    ) -> T:
        """The program for `key`: from memory, else read from disk, else compiled and kept in both.

        Args:
            key: The key: a digest, 64 hex digits.
            compile: Compiles the program; its exceptions are propagated, and nothing is cached then.
            to_bytes, from_bytes: Its serialisation; without them, or where `to_bytes` gives `None`, it stays in
                memory only. Any exception of `from_bytes` counts as damage: the entry is dropped and the program compiled.
        """

        def make() -> object:
            stored = self._read(key, from_bytes)
            if stored is not None:
                return stored
            compiled = compile()
            data = to_bytes(compiled) if self.disk is not None and to_bytes is not None else None
            if self.disk is not None and data is not None:
                self.disk.put(key, data)
            return compiled

        return self.memory.get_or_make(key, make)  # type: ignore[return-value]

    def _read(self, key: str, from_bytes: Callable[[bytes], T] | None) -> T | None:
        if self.disk is None or from_bytes is None:
            return None
        data = self.disk.get(key)
        if data is None:
            return None
        try:
            return from_bytes(data)
        except Exception as error:  # noqa: BLE001  a decoder may be a plugin's; every fault in reading means "compile again"
            self.disk.drop(key, f"{type(error).__name__}: {error}")
            return None


KINDS: Final = ("programs", "objects")
"""The kinds of files on disk; each has a separate directory."""

_caches: dict[CacheConfig, CompileCache] = {}
_lock = Lock("the list of caches")


def default_cache(configuration: Configuration) -> CompileCache:
    """Return the process-wide cache for the cache settings of a configuration: equal settings share one."""
    settings = configuration.cache
    with _lock:
        if settings not in _caches:
            files = disk_caches(settings) if settings.disk else [None] * len(KINDS)
            _caches[settings] = CompileCache(settings.entries, *files)
        return _caches[settings]


def disk_caches(settings: CacheConfig) -> list[DiskCache | None]:
    """Return the disk caches of programs and of objects; where files cannot be stored safely, one warning gives the reason."""
    base = Path(settings.directory) if settings.directory else cache_directory()
    caches: list[DiskCache | None] = []
    reasons: dict[str, list[str]] = {}
    for kind in KINDS:
        try:
            caches.append(DiskCache(base / kind, max_nbytes=settings.limit))
        except CacheError as error:
            caches.append(None)
            reasons.setdefault(f"{error.message}; {error.hint}" if error.hint else error.message, []).append(kind)
    for reason, kinds in reasons.items():
        warnings.warn(f"{' and '.join(kinds)} are not kept on disk: {reason}", RuntimeWarning, stacklevel=2)
    return caches
