"""`Model`: a program written for another system, in a form that rlx compiles, differentiates and saves."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final

from attrs import field

from rlx_core.functions.transforms import trace
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.graph import Graph, Value
from rlx_core.pipeline.backend import Outputs
from rlx_core.pipeline.compile import Config
from rlx_core.plugins import PluginHost
from rlx_core.runtime.compiled_function import CompiledFunction, compile_function
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import bind_arguments, flatten_arguments

PARAMETERS: Final = "parameters"
"""The name of the first argument of every model's function."""


@frozen(eq=False, kw_only=True)
class Model(Bundled):
    """The result of readers of foreign models: a function of parameters and inputs, with the parameters.

    `model(*inputs)` runs it with its parameters, compiled on first use; inside a traced function it is part of that program.
    `model.function` is an ordinary function: `rlx.value_and_grad(loss)(model.parameters, …)` with a loss that calls it trains
    the model, `rlx.vmap` batches it. `rlx.save("m.rlx", model)` writes it with its parameters.

    Attributes:
        name: The model's name in reports and errors.
        function: `function(parameters, *inputs)`, which rlx can trace.
        parameters: Arrays in a pytree, by the names of the system that it comes from.
        inputs: The inputs in order: name → a pytree of `rlx.spec`s, whose symbols may be any size.
        compiler: For a model that consists of several programs, so that its function cannot be traced: a function that compiles
            it, from the parameters and the arguments of `compile`. Its result is called like a `CompiledFunction`.
    """

    name: str
    function: Callable[..., Any]
    parameters: Any = field(repr=False)
    inputs: Mapping[str, Any] = field()
    compiler: Callable[..., Any] | None = field(default=None, repr=False)

    # Without attrs' cached properties: their frames have no file, and errors name the line where a model is first run.
    _compiled: list[CompiledFunction[..., Any]] = field(factory=list, init=False, repr=False)

    @inputs.validator
    def _are_arguments(self, attribute: Any, value: Mapping[str, Any]) -> None:
        assert argument_names(value) == list(value), f"{list(value)}: readers rename what is no argument"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The model's results for inputs, given in order or by name.

        Raises:
            WrongInputCountError: An input is missing, unknown or given twice.
            ShapeError, DtypeError: An input does not match its spec in `inputs`.
        """
        arguments = bind_arguments(self._called(), (self.parameters, *args), named)
        leaves, _ = flatten_arguments(arguments)
        if any(isinstance(leaf, Value) for leaf in leaves):
            return self.function(*arguments.values())
        return self._runs()(*args, **named)

    def compile(
        self,
        *,
        target: str | None = None,
        config: Config = None,
        host: PluginHost | None = None,
        outputs: Outputs | None = None,
    ) -> CompiledFunction[..., Any]:
        """The model compiled ahead of time, its parameters bound; arguments as for `rlx.compile`."""
        if self.compiler is not None:
            return self.compiler(self.parameters, target=target, config=config, host=host, outputs=outputs)
        return compile_function(*self.arguments, target=target, config=config, host=host, outputs=outputs)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of `rlx.compile`: the function under the model's name, the parameters, and the specs of the inputs."""
        return self._called(), self.parameters, *self.inputs.values()

    def trace(self) -> Graph:
        """The program: HIR with an input for every array among parameters and inputs."""
        return trace(*self.arguments)

    def bundle(self) -> Bundle:
        """The program with its parameters, in the form in which files store it."""
        return self._runs().bundle()

    def _runs(self) -> CompiledFunction[..., Any]:
        """The model compiled for the preferred target, on first use."""
        if not self._compiled:
            self._compiled.append(self.compile())
        return self._compiled[0]

    def _called(self) -> Callable[..., Any]:
        """The function under the model's name, with arguments named like its inputs."""

        def run(*args: Any) -> Any:
            return self.function(*args)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        named = [inspect.Parameter(name, kind) for name in (PARAMETERS, *self.inputs)]
        vars(run)["__signature__"] = inspect.Signature(named)
        run.__name__ = self.name if self.name.isidentifier() else "model"
        return run


def argument_names(names: Iterable[str]) -> list[str]:
    """Names of inputs as other systems write them (`input.1`, `class`) as different names of arguments, in the same order.

    >>> argument_names(["input.1", "input_1", "class", "2"])
    ['input_1', 'input_1_1', 'class_', '_2']
    """
    result: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if keyword.iskeyword(plain) or plain == PARAMETERS else plain
        taken = (f"{plain}_{n}" for n in count(1))
        result.append(plain if plain not in result else next(each for each in taken if each not in result))
    return result
