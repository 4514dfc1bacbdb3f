"""Errors of compilation: stages, rules, kernels, pass order, and the compilation cache."""

from rlx_core.errors.base import RlxError
from rlx_core.errors.configuring import ConfigError

__all__ = [
    "BudgetError",
    "CacheError",
    "CycleError",
    "LegalizeError",
    "MissingRuleError",
    "NoKernelError",
    "PassOrderError",
    "VerifyError",
    "WrongStageError",
]


class WrongStageError(RlxError, TypeError):
    """An operation is not available at the stage of a module.

    A program is HIR (blocks and operations), MIR (operations) or LIR (an execution
    plan), and is lowered one stage at a time. Nothing is converted implicitly,
    and nothing is raised to an earlier stage; the hint names the conversion.

    >>> from rlx_core.ir.module import Module
    >>> x, w = rlx.spec("f32[2, 3]"), rlx.spec("f32[3, 4]")
    >>> module = Module.of_hir(rlx.trace(nn.linear, x, w))
    >>> module.mir
    Traceback (most recent call last):
        ...
    WrongStageError: module linear: a MIR graph belongs to MIR, and ...

    >>> module.lower().stage.name
    'MIR'
    """


class VerifyError(RlxError, ValueError):
    """A module breaks the rules of its stage; every fault is listed with its node and source line.

    Each stage has a verifier, which runs when a module is made and after each
    pass. A fault that one of your passes introduces is reported there, with the
    name of the pass, rather than by a wrong result later.

    >>> from rlx_core.ir.module import Module
    >>> x, w = rlx.spec("f32[2, 3]"), rlx.spec("f32[3, 4]")
    >>> graph = rlx.trace(nn.linear, x, w)
    >>> Module.of_mir(graph)
    Traceback (most recent call last):
        ...
    VerifyError: verify: MIR graph linear has 1 fault

    The message shows that the block `linear` does not belong to MIR. Lowering
    replaces it:

    >>> Module.of_hir(graph).lower().verify()
    []
    """


class MissingRuleError(RlxError, NotImplementedError):
    """An operation has no rule for a transformation and no decomposition to derive one from.

    A missing gradient is never taken for zero. The hint has the method to write:
    `decompose` derives every rule at once, from the definition of the operation;
    `vjp` defines this one. `ZERO` from a rule declares that there is no
    derivative.

    >>> from rlx_core.ops import Op, define_op, op_function
    >>> @define_op(domain="acme")
    ... class Cube(Op):
    ...     def infer(self, x):
    ...         return x
    ...     def reference(self, x):
    ...         return x**3
    >>> cube = op_function(Cube)
    >>> rlx.grad(lambda x: cube(x))(np.float32(2))
    Traceback (most recent call last):
        ...
    MissingRuleError: acme.cube: it has no vjp rule for operand x, ...

    >>> @define_op(domain="acme")
    ... class Cube(Op):
    ...     def decompose(self, x):
    ...         return x * x * x
    >>> cube = op_function(Cube)
    >>> rlx.grad(lambda x: cube(x))(np.float32(2))
    Array(12., dtype=float32)
    """


class NoKernelError(RlxError, RuntimeError):
    """No kernel of the target accepts a node, and nothing rewrites it into ones that do.

    A plan consists of kernels, so every node needs one, or is a view of another's
    bytes. The facts list each node without one, and what each kernel of its
    operation accepts. `rlx why kernel NAME` prints the same for one operation.

    >>> from rlx_core.pipeline.backend import Target
    >>> from rlx_core.pipeline.kernels import KernelTable
    >>> from rlx_core.pipeline.planning.planner import make_lir
    >>> graph = rlx.trace(rlx.exp, rlx.spec("f32[3]"))
    >>> toy = KernelTable("toy")
    >>> make_lir(graph, Target("toy", toy))
    Traceback (most recent call last):
        ...
    NoKernelError: toy: 1 of 1 steps have no kernel

    `rlx.compile` legalises a program before it is planned, so this is met where
    plans are made by hand. The table has no row for it:

    >>> @toy.register(rlx.exp.op, dtypes="f32")
    ... def exp(op, x, *, out, workspace):
    ...     np.exp(x, out=out)
    >>> len(make_lir(graph, Target("toy", toy)).steps)
    1
    """


class LegalizeError(NoKernelError):
    """Nodes stay illegal on the target after every rewrite was tried.

    For each node the target is queried for a kernel, a rewrite, a decomposition
    and, where the configuration allows it, the host. If all of them fail, or a
    policy forbids those that would work, the facts list the attempts for each
    node.

    >>> from rlx_core.ops import Op, define_op, op_function
    >>> @define_op(domain="acme")
    ... class Cube(Op):
    ...     def decompose(self, x):
    ...         return x * x * x
    >>> cube, x = op_function(Cube), np.float32(2)
    >>> rlx.jit(cube, config={"dispatch": {"force-native": ["acme.cube"]}})(x)
    Traceback (most recent call last):
        ...
    LegalizeError: cpu: nothing runs acme.cube on f32[]

    The policy requires a kernel that does not exist. Without it the
    decomposition runs:

    >>> rlx.jit(cube)(x)
    Array(8., dtype=float32)
    """


class PassOrderError(ConfigError):
    """A pass is placed where its requirements are not met yet.

    A pass declares its requirements and guarantees, and a pipeline is checked
    as a whole before anything runs. A hint says which pass to move, if moving one
    is enough.

    >>> mine = {"hir": ["inline-calls"], "mir": ["cse", "legalize"]}
    >>> config = {"use": "mine", "pipeline": {"mine": mine}}
    >>> rlx.compile(rlx.exp, rlx.spec("f32[3]"), config=config)
    Traceback (most recent call last):
        ...
    PassOrderError: rlx.legalize: it requires that the program is lowered, ...

    >>> mine["hir"] = ["inline-calls", "lower-hir"]
    >>> f = rlx.compile(rlx.exp, rlx.spec("f32[3]"), config=config)
    >>> f(np.zeros(3, np.float32))
    Array([1., 1., 1.], dtype=float32)
    """


class BudgetError(RlxError, RuntimeError):
    """A program or a file requires more work than the configuration allows.

    A short text can cause any amount of work before the first run: fifteen
    functions that call each other twice are 32,768 nodes, and a constant that is
    doubled forty times has terabytes. The limits are far above the needs of models.
    Each is an option of `[budget]` in the configuration, which the message names.

    >>> def total(x):
    ...     for _ in range(20):
    ...         x = rlx.flip(x) + 1
    ...     return x
    >>> x = np.float32([1, 1])
    >>> rlx.jit(total, config={"budget.nodes": 10})(x)
    Traceback (most recent call last):
        ...
    BudgetError: compiling total: graph total has more than 10 nodes

    >>> rlx.jit(total, config={"budget.nodes": 100})(x)
    Array([21., 21.], dtype=float32)
    """


class CycleError(RlxError, ValueError):
    """Relations that should be an order contain a cycle; the message spells it out.

    Contributions of plugins are ordered by `before` and `after` alone, never by the
    order of installation. Relations that contradict each other leave no order.

    >>> from rlx_core.contributions import PassSpec
    >>> from rlx_core.plugins.freeze import ordered
    >>> a = PassSpec("acme.a", "acme.passes:A", before=["acme.b"])
    >>> b = PassSpec("acme.b", "acme.passes:B", before=["acme.a"])
    >>> ordered({"acme.a": a, "acme.b": b})
    Traceback (most recent call last):
        ...
    CycleError: order: acme.a → acme.b → acme.a is a cycle

    >>> b = PassSpec("acme.b", "acme.passes:B")
    >>> ordered({"acme.a": a, "acme.b": b})
    ['acme.a', 'acme.b']
    """


class CacheError(RlxError, RuntimeError):
    """The compile cache cannot be used at all; single damaged entries are compiled again instead.

    A cache holds machine code, so its directory must be yours and closed to
    everyone else: any user who can write into it can run code as you.

    >>> import os, tempfile
    >>> from rlx_core.system.disk import DiskCache
    >>> place = tempfile.TemporaryDirectory()
    >>> os.chmod(place.name, 0o755)
    >>> DiskCache(place.name)
    Traceback (most recent call last):
        ...
    CacheError: cache: ... is open to others (mode 755, not 700)

    >>> os.chmod(place.name, 0o700)
    >>> DiskCache(place.name).put("0" * 64, b"code")
    True
    >>> place.cleanup()

    `RLX_CACHE_DIR` sets the directory.
    """
