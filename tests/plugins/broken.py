"""Ways in which a plugin can be broken, as a table: what it contributes, what uses it, and what must be reported.

`imports` are plugins as source, installed with their metadata; `contributes` are records; `uses` are contributions that are
found, loaded and checked, and that fail when a program uses them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core.contributions import (
    BackendSpec,
    BlockSpec,
    EventSpec,
    ExporterSpec,
    ImporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    RuleSpec,
)
from rlx_core.hooks import HOOKS, hookimpl
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.graph import Graph
from rlx_core.ops import Op, define_op, op_function
from rlx_core.passes.engine.base import Pass, Result, define_pass
from rlx_core.passes.engine.rules import rewrite, ruleset
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_core.pipeline.dispatch import LegalizationTable
from rlx_core.pipeline.kernels import Condition, KernelTable
from rlx_core.plugins import PluginHost

from .guests import X, plugin_of

MESSAGE = "this plugin is broken"


@frozen
class Broken:
    """One kind of broken plugin.

    Attributes:
        name: The kind; the test's id.
        says: What the report must contain, besides the plugin's name.
        plugin: Makes the plugin; `None` for one that is installed as source.
        source: The source of its module.
        requires: Its requirements, for one that is installed as source.
        module: Its entry point's module, if that is another than the source's.
        use: What a user does with it, on a directory for files. Without it, `survey` and `doctor` are the report.
        falls_back: Whether the use succeeds all the same, with a warning.
    """

    name: str
    says: str
    plugin: Callable[[], object] | None = None
    source: str | bytes = ""
    requires: tuple[str, ...] = ()
    module: str | None = None
    use: Callable[[PluginHost, Path], object] | None = None
    falls_back: bool = field(default=False)


def fail(*args: Any, **kwargs: Any) -> Any:
    """The body of everything that raises."""
    raise KeyError(MESSAGE)


def leave(*args: Any, **kwargs: Any) -> Any:
    """The body of everything that exits."""
    sys.exit(MESSAGE)


def recurse(*args: Any, **kwargs: Any) -> Any:
    """The body of everything that never comes to an end."""
    return recurse(*args, **kwargs)


RAISED = f"KeyError: '{MESSAGE}'"


# ------------------------------------------------------------------------------------------------- at import


def imports() -> Iterator[Broken]:
    yield Broken("import-raises", MESSAGE, source=f"raise ValueError({MESSAGE!r})")
    yield Broken("import-exits", MESSAGE, source=f"import sys\nsys.exit({MESSAGE!r})")
    yield Broken("import-exits-hard", "SystemExit", source="raise SystemExit(3)")
    yield Broken("import-recurses", "RecursionError", source="def f():\n    return f()\nf()")
    yield Broken("import-lacks-a-module", "no_such_library", source="import no_such_library")
    yield Broken("import-lacks-a-name", "cannot import name", source="from os.path import no_such_name")
    yield Broken("import-lacks-a-shared-library", "OSError", source="import ctypes\nctypes.CDLL('libnosuch.so.9')")
    yield Broken("import-is-no-python", "was never closed", source="x = (")
    yield Broken("import-is-no-text", "SyntaxError", source=b"x = '\xff\xfe'\n")
    yield Broken("import-raises-a-base-exception", "Odd", source="class Odd(BaseException): pass\nraise Odd('x')")
    yield Broken(
        "import-raises-a-group", "ExceptionGroup", source="raise ExceptionGroup('two', [ValueError(), OSError()])"
    )
    yield Broken("import-divides-by-zero", "ZeroDivisionError", source="1 / 0")
    yield Broken("import-asserts", "AssertionError", source="assert False, 'never'")
    yield Broken("module-is-absent", "no_such_module", module="no_such_module")
    yield Broken("attribute-is-absent", "no_such_attribute", module="math:no_such_attribute")
    yield Broken("core-is-too-old", "needs rlx-core", requires=("rlx-core>=99",))
    yield Broken("requirement-is-unreadable", "cannot be read", requires=("rlx-core>>1",))
    yield Broken("import-shadows-itself", "AttributeError", source="import sys\nsys.no_such_attribute")
    yield Broken("import-lacks-an-encoding", "LookupError", source="'x'.encode('no-such-encoding')")


# -------------------------------------------------------------------------------------------------- at hooks


def hook_of(name: str, function: Callable[..., Any], **options: Any) -> Callable[[], object]:
    """A plugin with one hook."""
    return lambda: type("Acme", (), {name: hookimpl(function, **options)})()


def endless(self: object) -> Iterator[object]:
    while True:
        yield OpSpec("acme.one", "math:pi")


def midway(self: object) -> Iterator[object]:
    yield OpSpec("acme.one", "math:pi")
    raise KeyError(MESSAGE)


def hooks() -> Iterator[Broken]:
    for hook in HOOKS:
        yield Broken(f"{hook}-raises", MESSAGE, hook_of(hook, fail))
        yield Broken(f"{hook}-returns-an-object", f"{hook} returned object", hook_of(hook, lambda self: [object()]))
    yield Broken("hook-exits", MESSAGE, hook_of("rlx_ops", leave))
    yield Broken("hook-recurses", "RecursionError", hook_of("rlx_ops", recurse))
    yield Broken("hook-yields-without-end", "more than", hook_of("rlx_ops", endless))
    yield Broken("hook-raises-midway", MESSAGE, hook_of("rlx_ops", midway))
    yield Broken("hook-returns-text", "rlx_ops returned str", hook_of("rlx_ops", lambda self: "acme.one"))
    yield Broken("hook-returns-a-number", "rlx_ops returned int", hook_of("rlx_ops", lambda self: 3))
    yield Broken("hook-is-misspelt", "`rlx_pases` is not a hook", hook_of("rlx_pases", lambda self: []))
    yield Broken("hook-takes-an-argument", "arguments differ", hook_of("rlx_ops", lambda self, host: []))
    yield Broken("hook-asks-for-an-order", "marked `tryfirst`", hook_of("rlx_ops", lambda self: [], tryfirst=True))
    yield Broken("hook-is-unmarked", "lacks its `@hookimpl`", lambda: type("Acme", (), {"rlx_ops": unmarked})())
    yield Broken("availability-raises", MESSAGE, hook_of("rlx_availability", fail))
    yield Broken(
        "availability-is-a-number", "rlx_availability returned int", hook_of("rlx_availability", lambda self: 3)
    )
    yield Broken(
        "hook-repeats-a-name", "defined twice", hook_of("rlx_ops", lambda self: [OpSpec("acme.a", "math:pi")] * 2)
    )
    yield Broken(
        "hook-claims-a-standard-name",
        "defines rlx.exp",
        hook_of("rlx_ops", lambda self: [OpSpec("rlx.exp", "math:pi")]),
    )


def unmarked(self: object) -> list[object]:
    return []


# ------------------------------------------------------------------------------------------------ at records


RECORDS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "name-without-domain": ("rlx_ops", lambda: OpSpec("one", "math:pi"), "a lower-case `domain.name`"),
    "name-in-capitals": ("rlx_ops", lambda: OpSpec("acme.One", "math:pi"), "a lower-case `domain.name`"),
    "name-is-a-number": ("rlx_ops", lambda: OpSpec(3, "math:pi"), "name is 3"),  # type: ignore[arg-type]
    "address-without-colon": ("rlx_ops", lambda: OpSpec("acme.one", "math.pi"), "`package.module:attribute`"),
    "summary-is-a-number": ("rlx_ops", lambda: OpSpec("acme.one", "math:pi", summary=3), "summary is 3"),  # type: ignore[arg-type]
    "priority-is-text": ("rlx_ops", lambda: OpSpec("acme.one", "math:pi", priority="high"), "an integer"),  # type: ignore[arg-type]
    "before-is-text": ("rlx_ops", lambda: OpSpec("acme.one", "math:pi", before="rlx.exp"), "a tuple of names"),  # type: ignore[arg-type]
    "suffix-without-dot": ("rlx_importers", lambda: ImporterSpec("acme.i", "math:pi", suffixes=["acme"]), "lower-case suffixes"),
    "event-is-unknown": ("rlx_compile_events", lambda: EventSpec("compile-middle", "math:pi"), "event is"),
    "rule-is-of-no-kind": ("rlx_rules", lambda: RuleSpec("rlx.exp", "vpj", "math:pi"), "kind is"),  # type: ignore[arg-type]
    "stage-is-unknown": ("rlx_passes", lambda: PassSpec("acme.p", "math:pi", stage="hit"), "stage is"),  # type: ignore[arg-type]
    "target-with-dot": ("rlx_kernels", lambda: KernelSpec("cpu.fast", "math:pi"), "one lower-case word"),
    "option-of-no-type": ("rlx_options", lambda: OptionSpec("acme.o", list, None, doc=""), "type is"),
    "option-default-of-another-type": ("rlx_options", lambda: OptionSpec("acme.o", int, "1", doc=""), "default is"),
    "option-variable-of-another": ("rlx_options", lambda: OptionSpec("acme.o", int, 1, doc="", env="PATH"), "env is"),
    "pipeline-with-an-object": ("rlx_pipelines", lambda: PipelineSpec("acme.p", {"mir": [object()]}), "a table of strings"),
    "field-is-absent": ("rlx_importers", lambda: ImporterSpec("acme.i", "math:pi"), "suffixes"),  # type: ignore[call-arg]
}  # fmt: skip


def records() -> Iterator[Broken]:
    for name, (hook, make, says) in RECORDS.items():
        yield Broken(f"record-{name}", says, hook_of(hook, lambda self, make=make: [make()]))


# --------------------------------------------------------------------------------------------------- at use


def made_op(name: str, **methods: Any) -> type[Op]:
    """An op of the plugin with some methods."""
    own: dict[str, Any] = {"__module__": __name__, "__doc__": name, **methods}
    return define_op(domain="acme")(type(name.title().replace("-", ""), (Op,), own))


def keep(self: Any, x: Any) -> Any:
    return x


def doubled(self: Any, x: Any) -> Any:
    return x + x


def using_op(name: str, says: str, use: Callable[[Any, PluginHost], object], **methods: Any) -> Broken:
    made = made_op(name, **methods)
    return Broken(
        f"op-{name}",
        says,
        lambda: plugin_of(("ops", [OpSpec(made.name, made)])),
        use=lambda host, folder: use(op_function(made), host),
    )


def run(op: Any, host: PluginHost) -> object:
    return rlx.jit(lambda x: op(x), host=host)(X)


def run_eagerly(op: Any, host: PluginHost) -> object:
    host.activate_all()
    return op(X)


def differentiate(op: Any, host: PluginHost) -> object:
    return rlx.jit(rlx.grad(lambda x: rlx.sum(op(x))), host=host)(X)


def push_forward(op: Any, host: PluginHost) -> object:
    return rlx.jit(lambda x: rlx.jvp(lambda v: op(v), (x,), (x,)), host=host)(X)


def batch(op: Any, host: PluginHost) -> object:
    return rlx.jit(rlx.vmap(lambda x: op(x)), host=host)(X[:, None])


def overwrite(self: Any, x: Any) -> Any:
    x += 1
    return x


def ops() -> Iterator[Broken]:
    yield using_op("infer-raises", RAISED, run, infer=fail, reference=keep)
    yield using_op("infer-returns-text", "returned str", run, infer=lambda self, x: "f32[2]", reference=keep)
    yield using_op("infer-recurses", "RecursionError", run, infer=recurse, reference=keep)
    yield using_op("decompose-raises", RAISED, run, infer=keep, decompose=fail)
    yield using_op("decompose-recurses", "RecursionError", run, infer=keep, decompose=recurse)
    yield using_op("decompose-exits", "SystemExit", run, infer=keep, decompose=leave)
    yield using_op("reference-raises", RAISED, run, infer=keep, reference=fail)
    yield using_op("reference-raises-eagerly", RAISED, run_eagerly, infer=keep, reference=fail)
    yield using_op("reference-overwrites-its-argument", "read-only", run_eagerly, infer=keep, reference=overwrite)
    yield using_op("vjp-raises", RAISED, differentiate, decompose=doubled, vjp=lambda self, g, x, *, y: fail())
    yield using_op("vjp-exits", "SystemExit", differentiate, decompose=doubled, vjp=lambda self, g, x, *, y: leave())
    yield using_op("jvp-raises", RAISED, push_forward, decompose=doubled, jvp=lambda self, t, x, *, y: fail())
    yield using_op("batch-raises", RAISED, batch, decompose=doubled, batch=lambda self, size, x, is_batched: fail())


def made_pass(name: str, body: Callable[..., Any]) -> type[Pass]:
    own = {"__module__": __name__, "__doc__": name, "run": lambda self, graph, context: body(graph)}
    return define_pass(name, domain="acme")(type("Odd", (Pass,), own))


def using_pass(name: str, says: str, body: Callable[..., Any]) -> Broken:
    spec = PassSpec(f"acme.{name}", made_pass(name, body), after=["rlx.canonicalize"])
    return Broken(f"pass-{name}", says, lambda: plugin_of(("passes", [spec])), use=including(spec.name))


def including(name: str) -> Callable[[PluginHost, Path], object]:
    return lambda host, folder: rlx.jit(lambda x: rlx.sum(rlx.exp(x)), host=host, config={"include": [name]})(X)


def without_outputs(graph: Graph) -> Result:
    return Result(Graph(graph.name, graph.nodes, (), tuple(graph.guards)), graph.identity)


def other_output(graph: Graph) -> Result:
    return Result(Graph(graph.name, graph.nodes, (graph.inputs[0],), tuple(graph.guards)), graph.identity)


def passes() -> Iterator[Broken]:
    yield using_pass("raises", RAISED, fail)
    yield using_pass("exits", "SystemExit", leave)
    yield using_pass("recurses", "RecursionError", recurse)
    yield using_pass("returns-nothing", "returned NoneType, not a Result", lambda graph: None)
    yield using_pass("returns-a-graph", "returned Graph, not a Result", lambda graph: graph)
    yield using_pass("drops-outputs", "changed the outputs", without_outputs)
    yield using_pass("changes-an-output", "changed the outputs", other_output)

    @ruleset("odd", domain="acme")
    def odd(x: Any) -> Any:
        yield rewrite("exp-fails", rlx.exp(x)).to(lambda x: fail())

    spec = RuleSetSpec("acme.odd", odd, after=["rlx.canonicalize"])
    yield Broken("ruleset-raises", RAISED, lambda: plugin_of(("rulesets", [spec])), use=including("acme.odd"))


def table_with(**traits: Any) -> KernelTable:
    table = KernelTable("cpu")
    run = traits.pop("run", lambda op, x, *, out, workspace: np.exp(x, out=out))
    table.register(rlx.exp.op, name="mine", dtypes="f32", priority=10, **traits)(run)
    return table


def exponential(host: PluginHost, folder: Path) -> None:
    found = rlx.jit(lambda x: rlx.exp(x), target="cpu", host=host)(X)
    np.testing.assert_allclose(found, np.exp(X), rtol=1e-5)


def using_kernel(name: str, says: str, *, falls_back: bool = False, **traits: Any) -> Broken:
    def make() -> object:
        return plugin_of(("kernels", [KernelSpec("cpu", table_with(**traits))]))

    return Broken(f"kernel-{name}", says, make, use=exponential, falls_back=falls_back)


def native_table(emit: Callable[..., Any]) -> Any:
    from rlx_cpu.emitters import NativeTable

    table = NativeTable()

    @table.register(rlx.exp.op, dtypes="f32", priority=10)
    def mine(module: Any, node: Any, layout: Any, isa: Any, name: str) -> Any:
        return emit()

    return table


def using_emitter(name: str, says: str, emit: Callable[..., Any]) -> Broken:
    def make() -> object:
        return plugin_of(("kernels", [KernelSpec("cpu", native_table(emit))]))

    return Broken(f"emitter-{name}", says, make, use=exponential, falls_back=True)


def overwriting(op: Any, x: Any, *, out: Any, workspace: Any) -> None:
    np.exp(x, out=x)
    out[...] = x


def kernels() -> Iterator[Broken]:
    yield using_kernel("condition-raises", RAISED, falls_back=True, when=Condition("a whim", fail))
    yield using_kernel("workspace-raises", RAISED, workspace=fail)
    yield using_kernel("run-raises", RAISED, run=lambda op, x, *, out, workspace: fail())
    yield using_kernel("run-overwrites-its-operand", "read-only", run=overwriting)
    yield using_emitter("raises", RAISED, fail)
    yield using_emitter("returns-nothing", "returned NoneType, not Emitted", lambda: None)
    yield using_emitter("recurses", "RecursionError", recurse)
    yield using_emitter("exits", "SystemExit", leave)


def rewrites() -> Iterator[Broken]:
    made = made_op("rewritten", decompose=doubled)

    def using(name: str, says: str, body: Callable[..., Any]) -> Broken:
        def make() -> object:
            table = LegalizationTable("acme.table")
            table.register(made)(lambda op, x: body(x))
            return plugin_of(
                ("ops", [OpSpec(made.name, made)]), ("legalizations", [LegalizationSpec("cpu", "acme.table", table)])
            )

        def use(host: PluginHost, folder: Path) -> None:
            np.testing.assert_array_equal(
                rlx.jit(lambda x: op_function(made)(x), target="cpu", host=host, config=FORCED)(X), X + X
            )

        return Broken(f"legalization-{name}", says, make, use=use, falls_back=True)

    yield using("raises", RAISED, fail)
    yield using("changes-the-type", "changed the type", lambda x: rlx.sum(x))

    def rule(op: Any, g: Any, x: Any, *, y: Any) -> Any:
        return fail()

    def gradient(host: PluginHost, folder: Path) -> None:
        found = rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.exp(x))), host=host)(X)
        np.testing.assert_allclose(found, np.exp(X), rtol=1e-5)

    spec = RuleSpec("rlx.exp", "vjp", rule)
    yield Broken("rule-raises", RAISED, lambda: plugin_of(("rules", [spec])), use=gradient, falls_back=True)


FORCED = {"dispatch.force-common": ["acme.rewritten"]}


class Results(Program):
    """A program whose results are what it was made with."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def bind(self, params: Any) -> None:
        pass

    def run(self, inputs: Any) -> Any:
        return self.make()

    def clone(self) -> Program:
        return self


def everything() -> KernelTable:
    table = KernelTable("acme")
    table.register(Op, name="any")(lambda op, *operands, out, workspace: None)
    return table


def using_backend(name: str, says: str, **methods: Any) -> Broken:
    own: dict[str, Any] = {"__module__": __name__, "target": Target("acme", everything()), **methods}
    made = type("Odd", (Backend,), {"compile": lambda self, lir, target, options: None, **own})

    def use(host: PluginHost, folder: Path) -> object:
        return rlx.jit(lambda x: rlx.exp(x), target="acme", host=host)(X)

    return Broken(f"backend-{name}", says, lambda: plugin_of(("backends", [BackendSpec("acme", made)])), use=use)


def backends() -> Iterator[Broken]:
    def giving(make: Callable[[], Any]) -> Callable[..., Program]:
        return lambda self, lir, target, options: Results(make)

    yield using_backend("cannot-be-made", RAISED, __init__=fail)
    yield using_backend("describes-no-target", RAISED, target_for=fail)
    yield using_backend("describes-text", "returned str, not a Target", target_for=lambda self, options: "acme")
    yield using_backend("compile-raises", RAISED, compile=lambda self, lir, target, options: fail())
    yield using_backend("compile-returns-nothing", "returned NoneType, not a Program")
    yield using_backend("run-raises", RAISED, compile=giving(fail))
    yield using_backend("run-exits-early", "returned 0 results", compile=giving(list))
    yield using_backend(
        "results-of-another-shape", "result 0 is float32[3]", compile=giving(lambda: [np.zeros(3, np.float32)])
    )
    yield using_backend("results-of-another-dtype", "result 0 is float64[2]", compile=giving(lambda: [np.zeros(2)]))
    yield using_backend("results-are-lists", "result 0 is list", compile=giving(lambda: [[1.0, 2.0]]))


def device_broken(name: str, says: str, **changes: Any) -> Broken:
    """The fake device with one part that raises."""
    from attrs import evolve

    from rlx_core.testing.fake_device import FACTS, Fake, FakeDriver

    def make() -> object:
        from rlx_core.device.device import Device

        facts = evolve(FACTS, driver=f"{FACTS.driver}, {name}")

        def opening() -> Any:
            if "opening" in changes:
                changes["opening"]()
            driver = FakeDriver("fake:0", facts, is_lost=False)
            for attribute, value in changes.items():
                setattr(driver, attribute, value)
            return driver

        return Fake([Device("fake:0", facts, opening)])

    def use(host: PluginHost, folder: Path) -> object:
        return rlx.jit(lambda x: rlx.exp(x), target="fake", host=host)(X)

    return Broken(f"device-{name}", says, make, use=use)


def devices() -> Iterator[Broken]:
    yield device_broken("cannot-be-opened", RAISED, opening=fail)
    yield device_broken("allocate-raises", RAISED, allocate=fail)
    yield device_broken("build-raises", RAISED, build=fail)
    yield device_broken("launch-raises", RAISED, launch=fail)
    yield device_broken("submit-raises", RAISED, submit=fail)
    yield device_broken("read-raises", RAISED, read=fail)


def files() -> Iterator[Broken]:
    def load(host: PluginHost, folder: Path) -> object:
        (folder / "x.acme").write_text("x")
        return rlx.load(folder / "x.acme", host=host)

    def save(host: PluginHost, folder: Path) -> None:
        rlx.save(folder / "y.acme", {"x": X}, host=host)

    for name, body, says in (
        ("raises", fail, RAISED),
        ("exits", leave, "SystemExit"),
        ("recurses", recurse, "RecursionError"),
    ):
        reader = ImporterSpec("acme.reader", lambda path, host, body=body: body(), suffixes=[".acme"])
        writer = ExporterSpec("acme.writer", lambda path, value, host, body=body: body(), suffixes=[".acme"])
        yield Broken(f"reader-{name}", says, lambda reader=reader: plugin_of(("importers", [reader])), use=load)
        yield Broken(f"writer-{name}", says, lambda writer=writer: plugin_of(("exporters", [writer])), use=save)


def others() -> Iterator[Broken]:
    for name, body, says in (("raises", fail, RAISED), ("exits", leave, "SystemExit")):
        spec = EventSpec("compile-start", lambda event, body=body: body())
        yield Broken(
            f"listener-{name}", says, lambda spec=spec: plugin_of(("events", [spec])), use=exponential, falls_back=True
        )

    @define_block(domain="acme")
    class Odd(Block):
        """It raises."""

        def infer(self, x: Any) -> Any:
            return x

        def fusable(self, x: Any) -> Any:
            return fail()

    spec = BlockSpec("acme.odd", Odd)
    yield Broken(
        "block-raises",
        RAISED,
        lambda: plugin_of(("blocks", [spec])),
        use=lambda host, folder: run(op_function(Odd), host),
    )


INSTALLED = tuple(imports())
GIVEN = (*hooks(), *records(), *ops(), *passes(), *kernels(), *rewrites(), *backends(), *devices(), *files(), *others())
