"""Running a LIR on a device: inputs there, launches in order, outputs to wherever the caller wants them.

Runs are asked for and not waited for. With outputs on the device the call returns at once, and whoever reads an element waits;
with outputs on the host, reading them is the waiting. Parameters are copied to the device when they are bound, by all programs
together once, and stay there; donated ones are written where they lie.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.codegen.gpu.faults import first_error
from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device, usable
from rlx_core.device.driver import At
from rlx_core.device.pool import Block
from rlx_core.emit.code import Code, code_of
from rlx_core.emit.control import drive
from rlx_core.emit.delivery import Delivery
from rlx_core.emit.emitters import Language
from rlx_core.emit.frames import Frame, Frames, Part, PendingRun
from rlx_core.emit.host_steps import run_on_host
from rlx_core.emit.parameters import Binder, Params
from rlx_core.emit.places import CONSTANTS, STATUS, Space
from rlx_core.emit.poison import Poison
from rlx_core.emit.runs import Started, StepFault, in_turn
from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.errors.contained import reraise
from rlx_core.ir.array import unwrapped, wrapped
from rlx_core.ir.graph import Constant, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.profile import Profile, active, watchers
from rlx_core.pipeline.select.backend import Bindings, ObjectStore, Outputs, Program, Traffic
from rlx_core.pipeline.select.kernels import KernelTable
from rlx_core.system.records import define

__all__ = ["DeviceProgram", "build_program"]

MOST_UNSETTLED: Final = 64
"""Runs that may fail, each given the results of the one before, after which the next one waits for them."""


@define(eq=False)
class Shared:
    """What clones share: parameters, replaced as a whole, and the constants on the device."""

    params: Params = field(factory=Params)
    constants: Block | None = None


def build_program(
    lir: Lir,
    device: Device,
    kernels: KernelTable,
    language: Language,
    objects: ObjectStore | None = None,
    *,
    poison: bool = False,
) -> DeviceProgram:
    """The program of a plan.

    Raises:
        KernelBuildError: The device's compiler refuses a function.
    """
    return DeviceProgram(lir, device, kernels, code_of(lir, device, kernels, language, objects), poison=poison)


class DeviceProgram(Program):
    """A LIR on a device. Runs are safe from several threads: each has a frame, and the device does one after the other."""

    def __init__(
        self,
        lir: Lir,
        device: Device,
        kernels: KernelTable,
        code: Code,
        shared: Shared | None = None,
        *,
        poison: bool = False,
    ) -> None:
        self._lir, self._device, self._kernels, self._code = lir, device, kernels, code
        self._shared = shared or Shared()
        self._poison = Poison(lir, device) if poison else None
        self._frames = Frames(lir, device, code.emissions, code.modules, is_single=poison)
        self._delivery = Delivery(lir, device, self._frames)
        self._constants = {n.result: n.op.value.array for n in lir.graph.nodes if isinstance(n.op, Constant)}
        self._faults = tuple(StepFault(fault, lir.steps[number]) for number, fault in self._frames.faults)
        self._traffic = Traffic()
        self._nested = {
            id(step): {
                name: DeviceProgram(plan, device, kernels, code.nested[number, name], poison=poison)
                for name, plan in step.nested.items()
            }
            for number, step in enumerate(lir.steps)
            if step.nested
        }

    # ---------------------------------------------------------------------------------------- public

    def bind(self, params: Mapping[str, Any]) -> None:
        bindings = params if isinstance(params, Bindings) else Bindings(params)
        self._shared.params, crossed = self._binder.bound(bindings, self._shared.params)
        self._traffic = Traffic(bound=crossed)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return self.run_to(inputs, None)

    def run_to(self, inputs: Sequence[Any], outputs: Outputs | None) -> list[Any]:
        params = self._shared.params
        if outputs is None:
            outputs = "device" if any(isinstance(x, DeviceArray) for x in inputs) else "host"
        turns = self._device.pool.turns  # a forked child is told before anything is touched
        try:
            return in_turn(turns, lambda: self._started(inputs, outputs, params), self._finished)
        except OutOfMemoryError as lack:
            raise lack.with_fact(Fact(f"plan of {self._lir.graph.name}", self._frames.sizes()))  # noqa: B904  it is the same error
        except Exception as error:  # noqa: BLE001 - a driver may raise anything; it is raised again, with its owner
            reraise(error, "backends", self._lir.target, "a run on its device")

    def run_inside(self, inputs: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Run once inside a run of the program that this one is a part of: from the device to the device.

        Raises:
            OutOfMemoryError: The device has not the memory for both.
        """
        return self._finished(self._started(inputs, "device", self._shared.params))

    def clone(self) -> DeviceProgram:
        poison = self._poison is not None
        return DeviceProgram(self._lir, self._device, self._kernels, self._code, self._shared, poison=poison)

    @property
    def code(self) -> Code:
        return self._code

    @property
    def code_origin(self) -> str | None:
        if not self._code.modules.by_function:
            return None
        return "cached" if self._code.modules.is_cached else "compiled"

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    def entry(self, name: str) -> Callable[..., Any] | None:
        if self.reason_without_entry is not None:
            return None
        device = self._device
        wanted = [(e.type, e.type.dtype.numpy, e.type.static_shape) for e in self._lir.manifest.inputs]

        def call(*given: Any) -> Any:
            if len(given) != len(wanted) or watchers[0]:
                return NotImplemented
            arrays = [unwrapped(each) for each in given]
            for array, (type_, dtype, shape) in zip(arrays, wanted, strict=True):
                if type(array) is DeviceArray:
                    if array.device is not device or array.type != type_:
                        return NotImplemented
                elif type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                    return NotImplemented
            return tuple(map(wrapped, self.run_to(arrays, None)))

        return call

    @property
    def reason_without_entry(self) -> str | None:
        """Why calls of this program are all checked; `None` if plain ones are not."""
        if self._poison is not None:
            return "poison mode fills memory after every step"
        if self._lir.donated:
            return "what is donated must not be another argument too"
        step = next((part.on_host for part in self._frames.parts if part.on_host is not None), None)
        if step is None:
            return None
        return f"the host drives {step.kernel}" if step.nested else f"{step.kernel} runs on the host"

    # ----------------------------------------------------------------------------------------- a run

    def _started(self, inputs: Sequence[Any], outputs: Outputs, params: Params) -> Started:
        """Have all memory that a run needs, with the inputs in it; on an error none.

        Raises:
            OutOfMemoryError: The device has not that much.
        """
        frame = self._frames.take(params.version, params.on_device, self._constants_block())
        try:
            given = self._delivery.own_donations(inputs, params.on_device.values())
            crossed = self._feed(frame, given, outputs)
            rooms = self._delivery.begin(frame, outputs)
            words = None
            if outputs == "device" and self._faults:
                words = self._device.block(self._frames.status_nbytes, "the words for faults")
            return Started(frame, given, outputs, params, crossed, rooms, words)
        except BaseException:
            self._frames.give_back(frame)
            raise

    def _finished(self, started: Started) -> list[Any]:
        """Run all steps, and deliver the outputs."""
        frame, inputs, outputs, params = started.frame, started.inputs, started.outputs, started.params
        try:
            in_steps = self._go(frame, inputs, params)
            run = self._ended(started)
            results, nread = self._delivery.finish(frame, inputs, params.given, started.rooms, outputs, run)
            if outputs == "host" and not nread:
                self._device.driver.synchronize()  # the caller's arrays are read until then
        finally:
            self._frames.give_back(frame)
        self._traffic = Traffic(self._traffic.bound, started.crossed, nread, in_steps)
        return results

    def _feed(self, frame: Frame, inputs: Sequence[Any], outputs: Outputs) -> int:
        """Have the inputs on the device; the bytes that were copied there."""
        frames, driver, crossed = self._frames, self._device.driver, 0
        for number, array in enumerate(inputs):
            space = Space("input", number)
            if isinstance(array, DeviceArray):
                frames.bind(frame, space, At(array.block.buffer, array.offset))
            elif space in self._needed and array.size:
                frames.stage(frame, space)
                place = frame.bound[space]
                driver.write(place.buffer, place.offset, usable(array), waits=outputs == "device")
                crossed += array.nbytes
        return crossed

    def _go(self, frame: Frame, inputs: Sequence[Any], params: Params) -> int:
        """Have all steps run; the bytes that crossed for those that ran on the host."""
        driver, poison, profile, crossed = self._device.driver, self._poison, active(), 0
        if poison is not None:
            poison.begin(frame)
        for part in self._frames.parts:
            if part.on_host is not None:
                with nullcontext() if profile is None else profile.timing(part.on_host):
                    crossed += self._on_host(part.on_host, frame, inputs, params)
            elif profile is not None:
                self._profiled(profile, part, frame)
            else:
                driver.submit(self._frames.ready(frame, part))
            if poison is not None:
                poison.after(part.steps[-1], frame)
        return crossed

    def _profiled(self, profile: Profile, part: Part, frame: Frame) -> None:
        """Run a part launch by launch, each timed by the device's own clock and waited for."""
        place = part.first
        for number in part.steps:
            count = len(self._code.emissions.steps[number].calls)
            start = time.perf_counter()
            seconds = sum(self._device.driver.timed(launch) for launch in frame.launches[place : place + count])
            profile.add(self._lir.steps[number], seconds, start=start)
            place += count

    def _on_host(self, step: Step, frame: Frame, inputs: Sequence[Any], params: Params) -> int:
        if step.nested:
            spots = self._frames.places
            return drive(step, self._nested[id(step)], self._device, lambda v: frame.at(spots.of(v)))
        known = {**self._constants, **params.on_host}
        entries = zip(self._lir.manifest.inputs, inputs, strict=True)
        known |= {e.value: usable(x) for e, x in entries if not e.is_donated and isinstance(x, np.ndarray)}
        places = self._frames.places

        def locate(value: Value) -> At:
            return frame.at(places.of(value))

        run = self._kernels.get(step.kernel).run
        return sum(run_on_host(step, run, places, locate, known, self._device.driver))

    def _ended(self, started: Started) -> PendingRun | None:
        """What may have gone wrong: raised at once if outputs go to the host, else by whoever waits for them."""
        driver, frame, words, given = self._device.driver, started.frame, started.words, started.inputs
        before = dict.fromkeys(x.run for x in given if isinstance(x, DeviceArray) and isinstance(x.run, PendingRun))
        after = tuple(run for run in before if not run.is_settled)
        if started.outputs == "host":
            for run in after:
                run.settle()
            if self._faults:
                self._expect_no_fault(frame)
            return None
        if words is not None:
            status, nbytes = frame.bound[STATUS], self._frames.status_nbytes
            driver.copy(status.buffer, status.offset, words.buffer, 0, nbytes)
            driver.fill(status.buffer, status.offset, nbytes, 0xFF)
        run = PendingRun(driver, self._faults, words, after)
        if run.depth > MOST_UNSETTLED:
            run.settle()
        return None if run.is_settled else run

    def _expect_no_fault(self, frame: Frame) -> None:
        driver, status = self._device.driver, frame.bound[STATUS]
        found = np.empty(self._frames.status_nbytes // 4, np.uint32)
        driver.read(status.buffer, status.offset, found)
        error = first_error(found, self._faults)
        if error is not None:
            driver.fill(status.buffer, status.offset, found.nbytes, 0xFF)
            raise error

    # --------------------------------------------------------------------------------------- details

    @cached_property
    def _needed(self) -> frozenset[Space]:
        """The spaces that have to be on the device: launches touch them, or outputs and steps on the host are there."""
        places = self._frames.places
        steps = [part.on_host for part in self._frames.parts if part.on_host]
        read = {v for step in steps for v in step.node.results}
        read.update(v for step in steps if step.nested for v in step.node.present())
        read.update(self._lir.graph.outputs)
        read.update(v for v in self._lir.donated)
        return self._frames.used | {places.of(v).space for v in read if v.type.size}

    @cached_property
    def _binder(self) -> Binder:
        steps = (part.on_host for part in self._frames.parts if part.on_host and not part.on_host.nested)
        read = (v for step in steps for v in step.node.present())
        by_host = frozenset(self._lir.root_of(v) for v in read)
        return Binder(self._lir, self._device, self._frames.places, self._needed, by_host)

    def _constants_block(self) -> Block | None:
        """The constants on the device, copied there when the first frame is made; `None` if nothing there reads one."""
        shared = self._shared
        if CONSTANTS not in self._needed:
            return None
        if shared.constants is None:
            places = self._frames.places
            block = self._device.block(places.constants_nbytes, "the constants of a program")
            for value, offset in places.constants.items():
                if value.type.size:
                    self._device.driver.write(block.buffer, offset, usable(self._constants[value]), waits=True)
            shared.constants = block
        return shared.constants
