"""Where rlx's programs are timed: in the host's memory, or on a device with the data there from the start.

On a device a repetition ends when the device has finished it; no value is transferred that a program in use would
leave where it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from attrs import evolve, frozen

import rlx_core as rlx
from benchmarks.case import Data, Program
from rlx_core.device.device import Device
from rlx_core.pipeline.compile import set_up
from rlx_core.pipeline.profile import Profile, profiled
from rlx_core.pipeline.targets import find_target


@frozen
class BenchmarkPlace:
    """A target, and its device if it has one.

    Attributes:
        target: As users write it.
        device: `None` for the host's memory.
    """

    target: str
    device: Device | None

    def made(self, make: Callable[[Data], Program], data: Data) -> Program:
        """A program on data that lies here."""
        if self.device is None:
            return make(data)
        program, wait = make(self._put(data)), self.device.synchronize

        def run() -> None:
            program.run()
            wait()

        return evolve(program, run=run, results=lambda: [np.asarray(each) for each in program.results()])

    @contextmanager
    def profiled(self) -> Iterator[Profile]:
        """Take the times of all steps that run inside `with`."""
        with profiled() as profile:
            yield profile

    def _put(self, data: Any) -> Any:
        if isinstance(data, np.ndarray):
            return rlx.device_put(data, self.target)
        if isinstance(data, Mapping):
            return {name: self._put(each) for name, each in data.items()}
        return [self._put(each) for each in data] if isinstance(data, list) else data


def place_of(target: str | None) -> BenchmarkPlace:
    """The place of a target, which everything that is compiled in this process is for from now on.

    Args:
        target: `None` for the configured target.

    Raises:
        DeviceError, DeviceUnavailableError: There is no such device, or it cannot be used here.
    """
    if target is not None:
        os.environ["RLX_TARGET"] = target
    plugins, configuration = set_up(None, None)
    name, backend, _ = find_target(plugins, configuration.target)
    return BenchmarkPlace(configuration.target or name, backend.target_for(configuration.options).device)
