"""`Bench`: the device under test, as each step sees it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import field

import rlx_core as rlx
from rlx_core.cli.validating.results import CheckRow
from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics
from rlx_core.emit.backend import DeviceBackend
from rlx_core.errors import ConfigError, RlxError
from rlx_core.ir.graph import Graph
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.set_up import set_up
from rlx_core.pipeline.targets import find_target
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable
from rlx_core.system.records import define
from rlx_core.testing.special_points import same_bits

HOST_TIERS: Final = {"dispatch.allow-host": ["*"]}
"""Ops without a kernel run on the host: a row reports it instead of failing."""

MAX_REASON: Final = 300
"""Characters of a reason."""


class Skip(Exception):
    """A check that cannot be made here; its text is the reason."""


@define(eq=False, slots=False)
class Bench:
    """The device under test.

    Attributes:
        deadline: The `time.monotonic` at which a step stops by itself, before its process is ended.
        built: The source and the module of every program that was built since the last check began.
    """

    target: str
    host: PluginHost
    folder: Path
    step: str = ""
    deadline: float = float("inf")
    built: list[tuple[str, Any]] = field(factory=list)

    @cached_property
    def device(self) -> Device:
        """The device.

        Raises:
            ConfigError: The target computes in the host's memory.
        """
        _, backend, _ = find_target(self.host, self.target)
        _, configuration = set_up(None, self.host)
        device = backend.target_for(configuration.options).device
        if not isinstance(device, Device):
            raise ConfigError(f"check: {self.target} has no device of its own to validate")
        self._record_builds(device)
        return device

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The vendor's diagnostics of the device; none for a backend with a custom device interface."""
        _, backend, _ = find_target(self.host, self.target)
        return backend.diagnostics if isinstance(backend, DeviceBackend) else Diagnostics()

    @property
    def place(self) -> str:
        return self.device.name

    def _record_builds(self, device: Device) -> None:
        driver: Any = device.driver
        build = driver.build

        def recorded(source: str, binary: bytes | None = None) -> Any:
            self.built.append((source, None))  # kept if the build itself fails
            result = build(source, binary)
            self.built[-1] = (source, result)
            return result

        driver.build = recorded

    def jit(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any] | None = None,
        *,
        host_ops: Sequence[str] = ("*",),
        **kwargs: Any,
    ) -> Any:
        """The function, compiled for the device.

        Args:
            host_ops: Patterns of ops that may run on the host.
        """
        config: dict[str, Any] = {"dispatch.allow-host": list(host_ops)}
        if options:
            config["options"] = dict(options)
        return rlx.jit(function, target=self.target, host=self.host, config=config, **kwargs)

    def put(self, array: np.ndarray) -> Any:
        """A copy of the array on the device."""
        return rlx.device_put(array, self.place, host=self.host)

    def executable(self, graph: Graph) -> Executable:
        """A graph, compiled for the device."""
        return Executable(compile_graph(graph, target=self.target, host=self.host, config=HOST_TIERS))

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def check(self, name: str, run: Callable[..., str | dict[str, Any] | None], *arguments: Any) -> Iterator[CheckRow]:
        """Run one check, and yield its row; what was built for a failed one is added to the report.

        Args:
            run: Returns a reason or facts of a check that passed, and raises otherwise.
            arguments: The arguments of `run`.
        """
        self.built.clear()
        if self.is_late:
            yield CheckRow(name, "skipped", "the step's time is used up")
            return
        try:
            _ = self.device  # opened, so that built modules are recorded
            result = run(*arguments)
        except Skip as skip:
            yield CheckRow(name, "skipped", str(skip))
        except Exception as error:  # noqa: BLE001  whatever is raised on a device is a finding
            self.keep(name, error)
            yield CheckRow(name, "failed", one_line(error), {"error": type(error).__name__})
        else:
            facts = result if isinstance(result, dict) else {}
            yield CheckRow(name, "passed", result if isinstance(result, str) else "", facts)

    def keep(self, name: str, error: Exception) -> None:
        """Write the traceback, and sources and binaries of the built modules, into the report."""
        folder = self.folder / "failed" / file_name(self.step) / file_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        for number, (source, module) in enumerate(self.built):
            (folder / f"{number}.source.txt").write_text(source, encoding="utf-8")
            if module is None:
                continue
            try:
                binary = self.device.driver.binary_of(module)
            except Exception as failure:  # noqa: BLE001  the device may be lost
                (folder / f"{number}.binary.txt").write_text(f"not read: {one_line(failure)}", encoding="utf-8")
                continue
            if binary is not None:
                (folder / f"{number}.binary").write_bytes(binary)


def file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:80] or "_"


def one_line(error: BaseException) -> str:
    """The error as one line."""
    facts = "; ".join(f"{fact.label}: {fact.value}" for fact in error.facts) if isinstance(error, RlxError) else ""
    message = error.message if isinstance(error, RlxError) else str(error) or "no message"
    text = f"{type(error).__name__}: {message}" + (f" ({facts})" if facts else "")
    return " ".join(text.split())[:MAX_REASON]


def expect_same_bits(actual: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    """Require equal bits; every NaN equals every NaN.

    Raises:
        AssertionError: They differ.
    """
    for a, b in zip(actual, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            raise AssertionError(f"{what}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}")
        different = int(np.sum(~same_bits(a, b)))
        if different:
            raise AssertionError(f"{what}: {different} of {a.size} elements differ")
