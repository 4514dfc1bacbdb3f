"""Calibration: the ranges of activations over batches, which static quantisation uses (pass `static-int8`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
from attrs import asdict, evolve
from attrs import field as attribute

import rlx_core as rlx
from rlx_core.errors import (
    ConfigError,
    Fact,
    FormatError,
    NonFiniteError,
    RlxError,
    UnsupportedError,
    WrongInputCountError,
)
from rlx_core.functions.model import Model
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Builder, Graph, Node, Value, building
from rlx_core.ir.rewrite import copy_nodes
from rlx_core.ir.types import TensorType
from rlx_core.ops.arguments import choice, number
from rlx_core.passes.engine.base import Pass
from rlx_core.passes.engine.runner import run_passes
from rlx_core.passes.static_int8 import OperandRange, StaticInt8, outline_of, products_of
from rlx_core.pipeline.compile import Config, compile_graph, prepare_job, set_up
from rlx_core.pipeline.config.structure import structure
from rlx_core.pipeline.forward import transforming_for
from rlx_core.plugins import PluginHost
from rlx_core.quantization.histograms import BINS, TINY, Histogram
from rlx_core.runtime.cache import default_cache
from rlx_core.runtime.compiled_function import is_input
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.signature import Signature
from rlx_core.system.records import frozen
from rlx_core.transforms.trace import trace
from rlx_core.trees.flatten import bind_arguments, flatten_arguments

Method = Literal["min-max", "percentile", "entropy"]

METHODS: Final[Mapping[str, Callable[[Histogram, float], OperandRange]]] = {
    "min-max": lambda seen, percentile: OperandRange(seen.low, seen.high),
    "percentile": Histogram.percentile_range,
    "entropy": lambda seen, percentile: seen.entropy_range(),
}
"""The range of an activation by each method."""


def table_of(ranges: Mapping[str, OperandRange]) -> dict[str, OperandRange]:
    """Return a copy of a table of ranges."""
    return dict(ranges)


@frozen
class Calibration:
    """The ranges of the activations of a program: the result of `calibrate`, and the options of the pass `static-int8`.

    Attributes:
        method: The method that determined the ranges.
        batches: The number of batches.
        program: The outline of the program; the program that is compiled has the same one.
        ranges: The range of the left operand of each product of f32 by a bound matrix, by the name of the product.
    """

    method: Method
    batches: int
    program: str
    ranges: Mapping[str, OperandRange] = attribute(converter=table_of, hash=False)

    @property
    def entry(self) -> dict[str, Any]:
        """The pass with its options, for the key `include` of a configuration."""
        ranges = {name: asdict(each) for name, each in self.ranges.items()}
        return {StaticInt8.name.removeprefix("rlx."): {"program": self.program, "ranges": ranges}}

    def to_json(self) -> str:
        """Return the calibration as text."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibration:
        """Return the calibration that `to_json` wrote.

        Raises:
            FormatError: The text is not JSON.
            ConfigError: A value is missing, unknown or out of range.
        """
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"calibration: it is not JSON ({error})") from None
        return structure(table, cls, "calibration", "the text")


@checked_call
def calibrate(
    function: Callable[..., Any] | Model,
    /,
    *args: Any,
    batches: Iterable[Any],
    method: Method = "min-max",
    percentile: float = 99.99,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
) -> Calibration:
    """The ranges of the activations that products multiply by bound weights, over some batches of inputs.

    The program is traced as by `rlx.compile(function, *args)`, and computes the statistics of each batch. The result is used as
    `rlx.compile(function, *args, config={"include": [calibration.entry]})`.

    Args:
        function: The Python function, or a model, as importers return it; then `model.compile` takes the configuration.
        args: One an argument, as for `rlx.compile`: a pytree of arrays, or a pytree of `rlx.spec`s. A model takes none.
        batches: The inputs of each call: a tuple of arguments, or the only one. They are read once.
        method: The range of an activation: from its smallest to its largest value (`min-max`); without the same fraction of the
            values on both sides (`percentile`); or within the threshold with the smallest divergence between the distributions
            of the values and of the rounded values (`entropy`).
        percentile: The percentage of the values in the range, more than 50 and at most 100.
        target, config, host: See `rlx.compile`.

    Raises:
        ConfigError: There is no batch, no argument is a spec, or an option is unknown or out of range.
        UnsupportedError: A model consists of several programs.
        WrongInputCountError, ShapeError, DtypeError: A batch has another structure than the specs.
        NonFiniteError: An activation is NaN or infinite.

    >>> x = np.float32([[-1, 2, 0.5, 3]] * 2)
    >>> spec = rlx.spec("f32[n, 4]")
    >>> calibration = rlx.quantization.calibrate(lambda w, x: x @ w, np.eye(4, dtype=np.float32), spec, batches=[x])
    >>> calibration.ranges
    {'w [4, 4]': OperandRange(low=-1.0, high=3.0, clipped=0.0)}

    Source:
        Entropy: Migacz 2017, "8-bit inference with TensorRT", GPU Technology Conference.
    """
    how: Any = choice("calibrate: method", method, get_args(Method))
    share = number("calibrate: percentile", percentile)
    if not 50 < share <= 100:
        raise ConfigError(f"calibrate: percentile must be more than 50 and at most 100, not {share}")
    if isinstance(batches, str | bytes) or not isinstance(batches, Iterable):
        raise ConfigError(
            f"calibrate: batches must be an iterable of inputs, not {batches!r} ({type(batches).__name__})"
        )
    if isinstance(function, Model):
        if args:
            raise WrongInputCountError(f"calibrate: the model {function.name} takes no arguments, not {len(args)}")
        if function.compiler is not None:
            raise UnsupportedError(f"calibrate: {function.name} consists of several programs, which it compiles itself")
        arguments = function.arguments
        function, args = arguments[0], arguments[1:]
    named = bind_arguments(function, args, {})
    free = [name for name, argument in named.items() if is_input(name, argument)]
    if not free:
        raise ConfigError("calibrate: no argument is an input", hint="declare inputs with rlx.spec, as for rlx.compile")
    with transforming_for(config, host):
        traced = trace(function, args, params=lambda name, leaf: not isinstance(leaf, TensorType))
    graph = program_before_pass(traced.graph, target, config, host)
    products = products_of(graph)
    if not products:
        raise ConfigError(
            f"calibrate: {traced.graph.name} has no product of f32 by a weight that is an argument or a constant"
        )
    operands = list(dict.fromkeys(operand_of(node) for node in products.values()))
    program = observing(graph, operands, with_counts=how != "min-max")
    executable = Executable(compile_graph(program, target=target, config=config, host=host, cache=default_cache))
    leaves, tree = flatten_arguments(named)
    arrays = dict(zip(tree.names, leaves, strict=True))
    executable.set_params({name: arrays[name] for name in executable.params})
    signature = Signature.of(named, free, traced)
    names = {value: name for name, node in reversed(products.items()) for value in [operand_of(node)]}
    seen: dict[Value, Histogram] = {}
    count = 0
    for count, batch in enumerate(batches, start=1):
        try:
            inputs = signature.inputs(traced.graph.name, batch if isinstance(batch, tuple) else (batch,), {})
            results = [np.asarray(each) for each in executable.run_slots(inputs)]
        except RlxError as error:
            raise error.with_fact(Fact("batch", str(count - 1), "counted from 0")) from None
        size = len(results) // len(operands)
        for i, value in enumerate(operands):
            each = histogram_of(*results[i * size : (i + 1) * size], product=names[value], batch=count - 1)
            seen[value] = seen[value] + each if value in seen else each
    if not count:
        raise ConfigError(
            "calibrate: there are no batches", hint="batches=[x] has one; an iterator can be read only once"
        )
    ranges = {name: METHODS[how](seen[operand_of(node)], share) for name, node in products.items()}
    return Calibration(how, count, outline_of(graph), ranges)


def operand_of(product: Node) -> Value:
    """Return the activation that a product multiplies by its weight."""
    return next(product.present())


def program_before_pass(graph: Graph, target: str | None, config: Config, host: PluginHost | None) -> Graph:
    """Return a program as the pass `static-int8` receives it."""
    plugins, configuration = set_up(config, host)
    configuration = evolve(configuration, include=(*configuration.include, StaticInt8.name))
    plan = prepare_job(graph, plugins, configuration, target, {}, None).plan
    records = [each.record for each in plan.passes if isinstance(each.record, Pass) and each.stage != "forward"]
    place = [each.name for each in records].index(StaticInt8.name)
    return run_passes(records[:place], graph, plan.context).graph


def observing(graph: Graph, operands: Sequence[Value], *, with_counts: bool) -> Graph:
    """Return a program with the inputs of another one that returns the statistics of some of its values."""
    builder = Builder(f"{graph.name}.statistics")
    builder.add_guards(graph.guards)
    values: dict[Value, Value] = {}
    copy_nodes(builder, graph.nodes, values)
    with building(builder):
        results = [each for value in operands for each in statistics(values[value], with_counts=with_counts)]
    return builder.finish(results)


def statistics(x: Any, *, with_counts: bool) -> tuple[Any, ...]:
    """Return the extremes of a value, the number of its elements that are not finite, and half the bound of a histogram with its
    counts.

    The half is the power of two that the exponent of the largest absolute value states; all places of bins are exact.
    """
    flat = rlx.reshape(x, (-1,))
    low, high = rlx.min(flat), rlx.max(flat)
    faulty = rlx.sum(rlx.astype(rlx.logical_not(rlx.isfinite(flat)), "i32"))
    exponent = rlx.bitwise_and(rlx.bitcast(rlx.maximum(-low, high), rlx.i32), np.int32(0x7F800000))
    half = rlx.maximum(rlx.bitcast(exponent, rlx.f32), np.float32(TINY))
    if not with_counts:
        return low, high, faulty, half
    places = rlx.astype(rlx.floor(flat / half * np.float32(BINS // 4)), "i32") + np.int32(BINS // 2)
    return low, high, faulty, half, rlx.ops.segment_sum(rlx.astype(rlx.ones_like(flat), "i32"), places, BINS)


def histogram_of(
    low: np.ndarray,
    high: np.ndarray,
    faulty: np.ndarray,
    half: np.ndarray,
    *counts: np.ndarray,
    product: str,
    batch: int,
) -> Histogram:
    """Return the histogram of `statistics`; its counts are 0 if those were not computed.

    Raises:
        NonFiniteError: An element is NaN or infinite.
    """
    if faulty:
        raise NonFiniteError(
            f"calibrate: {int(faulty)} elements of the left operand of product {product} are NaN or infinite",
            Fact("batch", str(batch), "counted from 0"),
        )
    return Histogram(float(low), float(high), 2 * float(half), sum(counts, np.zeros(BINS, np.int64)))
