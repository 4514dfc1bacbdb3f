"""The modules of a program's functions: a few of them, built by several threads, and kept between processes.

A driver's compiler takes from a tenth of a second to many for one kernel, and a program has dozens. So functions are distributed
over one module per build thread; the compiler's output is cached under the hash of everything that it was
made from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from rlx_core.device.device import Device
from rlx_core.device.driver import Driver
from rlx_core.emit.emitters import Function, Language
from rlx_core.errors import Fact, KernelBuildError
from rlx_core.pipeline.backend import ObjectStore
from rlx_core.plugins.digest import sha256
from rlx_core.system.logs import log_event
from rlx_core.system.records import frozen

T = TypeVar("T")
R = TypeVar("R")

MOST_AT_ONCE: Final = 8
"""Modules that are built at the same time; each may take a few hundred megabytes in the driver's compiler."""


@frozen(eq=False)
class Modules:
    """Built functions.

    Attributes:
        by_function: Function → the driver's module that has it.
        is_cached: Whether nothing had to be compiled.
    """

    by_function: Mapping[str, Any]
    is_cached: bool


def build_modules(
    device: Device,
    language: Language,
    functions: Sequence[Function],
    objects: ObjectStore | None,
    facts_of: Callable[[Function], Sequence[Fact]] = lambda function: (),
) -> Modules:
    """Build all functions; the ones that are in `device.ahead` are taken from there.

    Args:
        facts_of: Facts about a function that an error shows in addition to its name.

    Raises:
        KernelBuildError: The device's compiler refuses one.
    """
    ahead = {f.name: device.ahead[f.name] for f in functions if f.name in device.ahead}
    functions = [f for f in functions if f.name not in ahead]
    if not functions:
        return Modules(ahead, True)
    driver = device.driver  # opened here, and not by the first of the threads
    at_once = min(MOST_AT_ONCE, os.cpu_count() or 1)
    parts = dealt(functions, len(functions) if language.has_one_entry else at_once)

    def build(part: Sequence[Function]) -> tuple[Any, bool]:
        source = language.module(part)
        facts = device.facts
        key = sha256(["device module", language.level.name, language.identity, facts.name, facts.driver, source])
        binary = None if objects is None else objects.get(key)
        if binary is not None:
            try:
                return driver.build(source, binary), True
            except KernelBuildError as error:  # another version of the driver, say
                assert objects is not None, "the binary came from there"
                objects.drop(key, error.message)
                log_event("binary-refused", {"device": device.name, "reason": f"compiled again, {error.message}"})
        try:
            module = driver.build(source)
        except KernelBuildError as error:
            refused = next((f for f in part if is_refused(driver, language.module([f]))), part[0])
            raise error.with_fact(Fact("function", refused.name), *facts_of(refused))  # noqa: B904  it is the same error
        compiled = driver.binary_of(module) if objects is not None else None
        if objects is not None and compiled is not None:
            objects.put(key, compiled)
        return module, False

    if len(parts) == 1:
        built = [build(parts[0])]
    else:
        with ThreadPoolExecutor(min(len(parts), at_once), "rlx-build") as threads:
            built = [each() for each in [started(threads, build, part) for part in parts]]
    modules = {f.name: module for part, (module, _) in zip(parts, built, strict=True) for f in part}
    return Modules({**ahead, **modules}, all(is_cached for _, is_cached in built))


def started(threads: ThreadPoolExecutor, function: Callable[[T], R], item: T) -> Callable[[], R]:
    """Return a callable for `function(item)`, which a thread computes meanwhile, or the caller if no thread is available."""
    try:
        return threads.submit(function, item).result
    except RuntimeError:  # of `submit` alone: exceptions of the function are raised by the result
        return partial(function, item)


def is_refused(driver: Driver, source: str) -> bool:
    """Return whether the device's compiler refuses a source."""
    try:
        driver.build(source)
    except KernelBuildError:
        return True
    return False


def dealt(functions: Sequence[Function], hands: int) -> list[list[Function]]:
    """Functions in at most `hands` parts of about equal length, always the same for the same functions."""
    parts: list[list[Function]] = [[] for _ in range(min(hands, len(functions)))]
    for function in sorted(functions, key=lambda f: (-len(f.text), f.name)):
        min(parts, key=lambda part: sum(len(f.text) for f in part)).append(function)
    return parts
