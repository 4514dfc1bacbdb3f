"""A module: one program at one stage, and the operations that are available there.

    HIR  ──lower()──▶  MIR  ──plan(planner)──▶  LIR

Using an operation that a stage does not have is a WrongStageError that names both stages and the conversion to use;
nothing is converted implicitly, and nothing is raised to an earlier stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, field

from rlx_core import ir
from rlx_core.errors import FormatError, WrongStageError
from rlx_core.ir.attributes import Decoder, Encoder
from rlx_core.ir.block import FusionPolicy
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Builder, Graph, Value, ValueMap, as_results, building
from rlx_core.ir.lir import IrStage, Lir
from rlx_core.ir.op import Op
from rlx_core.ir.plan_form import decode_lir, encode_lir, fingerprint_lir
from rlx_core.ir.protocols import Drawn, Travels
from rlx_core.ir.types import TensorType, spec
from rlx_core.ir.verify import RuleViolation, check, raise_faults, verify
from rlx_core.system.records import frozen

__all__ = ["HirBuilder", "IrStage", "Module", "expect_graph"]

if TYPE_CHECKING:
    from typing import Self

_STAGES = {stage.value: stage for stage in IrStage}


@frozen(repr=False)
class Module(Travels, Drawn):
    """A program at one stage. Made by `of_hir`, `of_mir`, `of_lir`, or `Module.builder`; equality is structural.

    Attributes:
        stage: How far down it is.
        content: The graph, or at LIR the plan.
        policy: How lowering treats blocks; only HIR uses it.
    """

    stage: IrStage
    content: Graph | Lir = field(eq=lambda content: _comparable(content))
    policy: FusionPolicy = "direct"

    @classmethod
    def of_hir(cls, graph: Graph, policy: FusionPolicy = "direct") -> Module:
        """A module around a graph that may hold blocks.

        Raises:
            VerifyError: The graph is broken.
        """
        check(graph, IrStage.HIR)
        return cls(IrStage.HIR, graph, policy)

    @classmethod
    def of_mir(cls, graph: Graph) -> Module:
        """A module around a graph of tensor ops.

        Raises:
            VerifyError: The graph is broken, or holds a block.
        """
        check(graph, IrStage.MIR)
        return cls(IrStage.MIR, graph)

    @classmethod
    def of_lir(cls, lir: Lir) -> Module:
        """A module around an execution plan.

        Raises:
            VerifyError: The graph or the plan is broken.
        """
        ir.verify_lir.check_lir(lir)
        return cls(IrStage.LIR, lir)

    @staticmethod
    def builder(name: str = "main", policy: FusionPolicy = "direct") -> HirBuilder:
        """A builder of a HIR module."""
        return HirBuilder(name, policy)

    # -- content by stage

    @property
    def name(self) -> str:
        return self._any_graph.name

    @property
    def hir(self) -> Graph:
        """The graph with blocks; WrongStageError on MIR and LIR."""
        return self._graph(IrStage.HIR, "a HIR graph")

    @property
    def mir(self) -> Graph:
        """The graph of tensor ops; WrongStageError on HIR and LIR."""
        return self._graph(IrStage.MIR, "a MIR graph")

    @property
    def lir(self) -> Lir:
        """The execution plan; WrongStageError on HIR and MIR."""
        self._require(IrStage.LIR, "an execution plan")
        assert isinstance(self.content, Lir)
        return self.content

    @property
    def _any_graph(self) -> Graph:
        return self.content.graph if isinstance(self.content, Lir) else self.content

    def _graph(self, stage: IrStage, what: str) -> Graph:
        self._require(stage, what)
        assert isinstance(self.content, Graph)
        return self.content

    def _require(self, stage: IrStage, what: str) -> None:
        if self.stage is not stage:
            raise WrongStageError(
                f"module {self.name}: {what} belongs to {stage.name}, and this module is {self.stage.name}",
                hint=_CONVERSIONS[self.stage, stage],
            )

    def require(self, stage: IrStage, what: str) -> Graph:
        """Return the graph of a module that must be at `stage`; `what` is the caller's purpose ("a gradient"), for the error.

        Raises:
            WrongStageError: It is at another stage; the message names both, and the conversion.
        """
        return self._graph(stage, what)

    # -- conversions

    def lower(self, policy: FusionPolicy | None = None) -> Module:
        """Return the MIR module to which this HIR module lowers.

        Raises:
            WrongStageError: It is not HIR.
            WrongInputCountError, MissingBiasError: A block's operands do not fit it.
        """
        return self.lower_with_map(policy)[0]

    def lower_with_map(self, policy: FusionPolicy | None = None) -> tuple[Module, ValueMap]:
        """`lower`, and the map from the values of the HIR graph to those of the MIR graph."""
        self._require(IrStage.HIR, "lowering to MIR")
        graph, values = ir.hir.lower_hir(self.hir, policy or self.policy)
        return Module.of_mir(graph), values

    def plan(self, planner: Callable[[Graph], Lir]) -> Module:
        """Return the LIR module that `planner` (a pipeline) compiles from this MIR module."""
        return Module.of_lir(planner(self.mir))

    def with_policy(self, policy: FusionPolicy) -> Module:
        """This HIR module with another fusion policy."""
        self._require(IrStage.HIR, "a fusion policy")
        return evolve(self, policy=policy)

    def bound(self, binding: DimBinding) -> Module:
        """This HIR or MIR module with symbols replaced by sizes.

        Raises:
            WrongStageError: It is LIR, whose plan would no longer fit; the pipeline specialises templates.
            GuardError, BindingError, ShapeError: The sizes do not fit the program.
        """
        if self.stage is IrStage.LIR:
            self._require(IrStage.MIR, "binding sizes")
        return evolve(self, content=ir.bind.bind(self._any_graph, binding)[0])

    def extended(self, build: Callable[..., Any]) -> Module:
        """Return this HIR module with additional nodes: its outputs are `build(*outputs)`.

        Raises:
            WrongStageError: It is not HIR, and takes no more blocks.
        """
        graph = self.hir
        builder = Builder(graph.name)
        builder.add_guards(graph.guards)
        values: dict[Value, Value] = {}
        ir.rewrite.copy_nodes(builder, graph.nodes, values)
        with building(builder):
            outputs = as_results(build(*(values[v] for v in graph.outputs)))
        return Module.of_hir(builder.finish(outputs), self.policy)

    # -- reading it

    def inspect(self, *, origins: bool = False) -> str:
        """The module as text: its stage, then the graph or the plan."""
        body = (
            ir.text_lir.print_lir(self.lir)
            if self.stage is IrStage.LIR
            else ir.text.print_graph(self._any_graph, origins=origins)
        )
        return f"# {self.stage.name}{f', {self.policy}' if self.stage is IrStage.HIR else ''}\n{body}"

    def verify(self) -> list[RuleViolation]:
        """Every violated rule of its stage."""
        return ir.verify_lir.verify_lir(self.lir) if self.stage is IrStage.LIR else verify(self._any_graph, self.stage)

    def fingerprint(self, context: Mapping[str, object] | None = None) -> str:
        """Digest of its function (see `fingerprint.py`)."""
        if isinstance(self.content, Lir):
            return fingerprint_lir(self.content, context=context)
        policy = {"policy": self.policy} if self.stage is IrStage.HIR else {}
        return fingerprint(self.content, context={**(context or {}), "stage": self.stage.value, **policy})

    # -- storing it

    def encoded(self, encoder: Encoder) -> dict[str, Json]:
        """The module in canonical form; see `serialize.py`."""
        content = encode_lir(self.content, encoder) if isinstance(self.content, Lir) else encoder.graph(self.content)
        return {"stage": self.stage.value, "policy": self.policy, "content": content}

    @classmethod
    def decoded(cls, form: Mapping[str, Json], decoder: Decoder) -> Module:
        """The module that was encoded, verified.

        Raises:
            FormatError: The form is another.
            VerifyError: The program breaks the rules of its stage.
        """
        stage = _STAGES.get(str(form.get("stage")))
        policy = form.get("policy")
        if stage is None or policy not in ("direct", "fusable"):
            raise FormatError(f"module: stage {form.get('stage')!r} with policy {policy!r} does not exist")
        if stage is IrStage.LIR:
            return cls.of_lir(decode_lir(form.get("content"), decoder))
        graph = decoder.graph(form.get("content"))
        raise_faults(verify(graph, stage), f"{stage.name} module {graph.name}")
        return cls(stage, graph, cast(FusionPolicy, policy))

    def __repr__(self) -> str:
        return f"Module({self.stage.name}, {self._any_graph!r})"


def _comparable(content: Graph | Lir) -> object:
    return content if isinstance(content, Graph) else fingerprint_lir(content)


_CONVERSIONS: Mapping[tuple[IrStage, IrStage], str] = {
    (IrStage.HIR, IrStage.MIR): "call lower() first",
    (IrStage.HIR, IrStage.LIR): "call lower() and then plan(...), or compile it",
    (IrStage.MIR, IrStage.LIR): "call plan(...), or compile it",
    (IrStage.MIR, IrStage.HIR): "lowering cannot be undone; keep the HIR module",
    (IrStage.LIR, IrStage.HIR): "a plan cannot be undone; keep the HIR module",
    (IrStage.LIR, IrStage.MIR): "a plan cannot be undone; keep the MIR module",
}


class HirBuilder:
    """Builds a HIR module block by block.

    >>> b = HirBuilder("mlp")
    >>> x = b.input("x", "f32[8, 64]")
    >>> b.finish(x).stage
    HIR
    """

    def __init__(self, name: str = "main", policy: FusionPolicy = "direct") -> None:
        self.policy: FusionPolicy = policy
        self._builder = Builder(name)

    def input(self, name: str, type: TensorType | str) -> Value:
        """A value that is fed on every run."""
        return self._builder.input(name, spec(type))

    def param(self, name: str, type: TensorType | str) -> Value:
        """A value that is bound once."""
        return self._builder.param(name, spec(type))

    def constant(self, data: Any, of: DType | None = None) -> Value:
        """Literal data."""
        return self._builder.constant(data, of)

    def block(self, op: Op, *operands: Any, name: str | None = None) -> Any:
        """The result of a block, or of any op; `name` goes to every op that the block becomes."""
        with self:
            return op(*operands, name=name)

    def wrap(self, graph: Graph, operands: Mapping[str, Value]) -> tuple[Value, ...]:
        """Copy a MIR graph node by node and return its outputs; inputs that are not in `operands` become inputs of the module."""
        return ir.rewrite.inline(self._builder, graph, operands)

    def __enter__(self) -> Self:
        self._scope = building(self._builder)
        self._scope.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scope.__exit__(*exception)

    def finish(self, *outputs: Value | Sequence[Value]) -> Module:
        """The module with these outputs."""
        flat = [v for o in outputs for v in ([o] if isinstance(o, Value) else o)]
        return Module.of_hir(self._builder.finish(flat), self.policy)


def expect_graph(what: str, program: object) -> None:
    """Require a graph as the argument of a transformation; `what` is the caller, for the error.

    Raises:
        WrongStageError: It is a module, which may be at any stage, or no program at all.
    """
    if not isinstance(program, Graph):
        raise WrongStageError(
            f"{what}: takes a graph, not a {type(program).__name__}",
            hint="pass module.mir, or module.hir" if isinstance(program, Module) else "rlx.trace(f, *specs) makes one",
        )
