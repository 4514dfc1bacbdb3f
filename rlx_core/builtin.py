"""rlx's own plugin: the standard ops, blocks, passes, rule sets and pipelines, through the same hooks as external plugins.

Everything here is a name and an address; nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.contributions import (
    BlockSpec,
    ExporterSpec,
    ImporterSpec,
    LazyRef,
    OpFamily,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    SchemeSpec,
)
from rlx_core.hooks import hookimpl
from rlx_core.ops.families import FAMILIES


@hookimpl
def rlx_ops() -> Iterator[OpFamily]:
    """The standard ops, one family per module."""
    for module, names in FAMILIES.items():
        yield OpFamily(f"rlx_core.ops.{module}:OPS", [f"rlx.{name}" for name in names.split()])


@hookimpl
def rlx_blocks() -> Iterator[BlockSpec]:
    """The standard HIR blocks; they are ops as well, in a HIR graph."""
    for name in FAMILIES["blocks"].split():
        yield BlockSpec(f"rlx.{name}", LazyRef("rlx_core.ops.blocks:BLOCKS", f"rlx.{name}"))


SCHEMES = (
    dict.fromkeys(["int8", "int8_asymmetric", "int4", "int4_asymmetric", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "nvfp4"])
    | {
        "q4_0": 2,
        "q4_1": 3,
        "q5_0": 6,
        "q5_1": 7,
        "q8_0": 8,
        "q2_k": 10,
        "q3_k": 11,
        "q4_k": 12,
        "q5_k": 13,
        "q6_k": 14,
    }
    | {"iq2_xxs": 16, "iq2_xs": 17, "iq3_xxs": 18, "iq1_s": 19, "iq3_s": 21, "iq2_s": 22, "iq1_m": 29}
    | {"q8_k": 15, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34, "tq2_0": 35, "mxfp4": 39}
)
"""The standard schemes, each with its number in GGUF files."""


@hookimpl
def rlx_schemes() -> Iterator[SchemeSpec]:
    """The standard schemes of quantised weights."""
    for name, ggml_id in SCHEMES.items():
        load = LazyRef("rlx_core.quantization.standard:SCHEMES", f"rlx.{name}")
        yield SchemeSpec(f"rlx.{name}", load, ggml_id=ggml_id)


@hookimpl
def rlx_passes() -> list[PassSpec]:
    """The passes of the core."""
    return [
        PassSpec("rlx.lower-hir", "rlx_core.passes.lower_hir:LowerHir", summary="Blocks become ops.", stage="hir"),
        PassSpec(
            "rlx.inline-calls", "rlx_core.passes.inline_calls:InlineCalls", summary="Calls become nodes in place."
        ),
        PassSpec(
            "rlx.canonicalize", "rlx_core.passes.canonicalize:Canonicalize", summary="One spelling of everything."
        ),
        PassSpec(
            "rlx.fold-constants",
            "rlx_core.passes.fold_constants:FoldConstants",
            summary="What is constant is computed now.",
        ),
        PassSpec("rlx.cse", "rlx_core.passes.cse:CommonSubexpressions", summary="Equal expressions are computed once."),
        PassSpec(
            "rlx.merge-loops",
            "rlx_core.passes.merge_loops:MergeLoops",
            summary="A loop whose states another goes through is part of it.",
            ops=["rlx.while"],
        ),
        PassSpec(
            "rlx.reuse-from-loops",
            "rlx_core.passes.reuse_from_loops:ReuseFromLoops",
            summary="What an earlier loop computed is not computed again.",
            ops=["rlx.scan"],
        ),
        PassSpec(
            "rlx.hoist-from-loops",
            "rlx_core.passes.hoist_from_loops:HoistFromLoops",
            summary="What no step of a loop changes is computed before it.",
            ops=["rlx.scan"],
        ),
        PassSpec("rlx.dead-code", "rlx_core.passes.dead_code:DeadCode", summary="What nothing needs is dropped."),
        PassSpec(
            "rlx.promote-params", "rlx_core.passes.promote_params:PromoteParams", summary="Parameters become inputs."
        ),
        PassSpec(
            "rlx.legalize-broadcast",
            "rlx_core.passes.legalize_broadcast:LegalizeBroadcast",
            summary="Broadcasting is written out for targets that want equal shapes.",
        ),
        PassSpec(
            "rlx.recognise-softmax",
            "rlx_core.passes.recognise.softmax:RecogniseSoftmax",
            summary="Exponentials over their sum are a softmax.",
            ops=["rlx.exp"],
        ),
        PassSpec(
            "rlx.recognise-norms",
            "rlx_core.passes.recognise.norms:RecogniseNorms",
            summary="Statistics and roots are norms.",
            ops=["rlx.sqrt", "rlx.rsqrt", "rlx.layer_norm", "rlx.rms_norm"],
        ),
        PassSpec(
            "rlx.recognise-gelu",
            "rlx_core.passes.recognise.gelu:RecogniseGelu",
            summary="The two formulas of GELU, and silu.",
            ops=["rlx.erf", "rlx.erfc", "rlx.tanh", "rlx.sigmoid"],
        ),
        PassSpec(
            "rlx.recognise-attention",
            "rlx_core.passes.recognise.attention:RecogniseAttention",
            summary="Products around a softmax are attention.",
            ops=["rlx.softmax", "rlx.attention"],
        ),
        PassSpec(
            "rlx.fuse-matmul-bias-act",
            "rlx_core.passes.fuse.matmul_bias_act:FuseMatMulBiasAct",
            summary="A product, its bias and its activation.",
            ops=["rlx.matmul", "rlx.fused_matmul_bias_act"],
        ),
        PassSpec(
            "rlx.fuse-conv-batch-norm",
            "rlx_core.passes.fuse.conv_batch_norm:FuseConvBatchNorm",
            summary="A convolution and the batch norm with given statistics after it.",
            ops=["rlx.batch_norm_inference"],
        ),
        PassSpec(
            "rlx.fuse-residual-norm",
            "rlx_core.passes.fuse.residual_norm:FuseResidualNorm",
            summary="A residual sum and its norm.",
            ops=["rlx.layer_norm", "rlx.rms_norm"],
        ),
        PassSpec(
            "rlx.fuse-swiglu",
            "rlx_core.passes.fuse.swiglu:FuseSwiGLU",
            summary="The gated unit of halves or of two products.",
            ops=["rlx.silu"],
        ),
        PassSpec(
            "rlx.fuse-shared-input-matmul",
            "rlx_core.passes.fuse.shared_input_matmul:FuseSharedInputMatMul",
            summary="Products of one value with several weights.",
            ops=["rlx.matmul", "rlx.fused_matmul_bias_act"],
        ),
        PassSpec(
            "rlx.fuse-softmax-cross-entropy",
            "rlx_core.passes.fuse.softmax_cross_entropy:FuseSoftmaxCrossEntropy",
            summary="A log-softmax read at labels.",
            ops=["rlx.log", "rlx.log_sum_exp", "rlx.log_softmax"],
        ),
        PassSpec(
            "rlx.mark-elementwise-regions",
            "rlx_core.passes.fuse.mark_elementwise_regions:MarkElementwiseRegions",
            summary="Chains of element-wise ops become one op.",
        ),
        PassSpec(
            "rlx.channels-last",
            "rlx_core.passes.fuse.channels_last:ChannelsLast",
            summary="Convolutions, and what lies between them, with their channels last.",
            ops=["rlx.conv", "rlx.conv_backward_input", "rlx.conv_backward_weight", "rlx.conv_transpose"],
        ),
        PassSpec(
            "rlx.sink-reshapes",
            "rlx_core.passes.fuse.sink_reshapes:SinkReshapes",
            summary="Regions in the dims of the product that they read through a reshape.",
            ops=PRODUCTS,
        ),
        PassSpec(
            "rlx.fuse-product-sums",
            "rlx_core.passes.fuse.product_sums:FuseProductSums",
            summary="A product and the sums of a factor, by a library.",
            ops=["rlx.matmul", "rlx.fused_matmul_epilogue"],
        ),
        PassSpec(
            "rlx.fuse-weight-loads",
            "rlx_core.passes.fuse.weight_loads:FuseWeightLoads",
            summary="Products and gathers with the computation of their weights from narrower data.",
            ops=["rlx.gather", "rlx.matmul"],
        ),
        PassSpec(
            "rlx.fuse-matmul-epilogue",
            "rlx_core.passes.fuse.matmul_epilogue:FuseMatMulEpilogue",
            summary="A product and the element-wise region after it.",
            ops=PRODUCTS,
        ),
        PassSpec(
            "rlx.fuse-loops",
            "rlx_core.passes.fuse.loops:FuseLoops",
            summary="Neighbouring loop nests become one.",
        ),
        PassSpec(
            "rlx.unfuse-regions",
            "rlx_core.passes.fuse.unfuse_regions:UnfuseRegions",
            summary="Element-wise regions become chains again.",
            ops=["rlx.elementwise_region"],
        ),
        PassSpec(
            "rlx.clip-regions",
            "rlx_core.passes.fuse.unfuse_regions:ClipRegions",
            summary="Regions above the limits become chains again.",
            ops=["rlx.elementwise_region"],
        ),
        PassSpec(
            "rlx.legalize", "rlx_core.pipeline.legalize:Legalize", summary="Everything gets a kernel of the target."
        ),
    ]


@hookimpl
def rlx_rulesets() -> list[RuleSetSpec]:
    """The rule sets of the core."""
    return [
        RuleSetSpec("rlx.algebra", "rlx_core.passes.algebra:algebra", summary="Identities that keep every bit."),
        RuleSetSpec("rlx.fast-math", "rlx_core.passes.fast_math:fast_math", summary="Identities of the reals only."),
    ]


@hookimpl
def rlx_importers() -> list[ImporterSpec]:
    """Readers of files."""
    return [
        ImporterSpec("rlx.safetensors", "rlx_core.files.safetensors:import_file", suffixes=[".safetensors"]),
        ImporterSpec("rlx.program", "rlx_core.files.program:import_file", suffixes=[".rlx"]),
        ImporterSpec("rlx.package", "rlx_core.files.packages.opening:import_file", suffixes=[".rlxpack"]),
    ]


@hookimpl
def rlx_exporters() -> list[ExporterSpec]:
    """Writers of files."""
    return [
        ExporterSpec("rlx.safetensors", "rlx_core.files.safetensors:export_file", suffixes=[".safetensors"]),
        ExporterSpec("rlx.program", "rlx_core.files.program:export_file", suffixes=[".rlx"]),
        ExporterSpec("rlx.package", "rlx_core.files.packages.packing:export_file", suffixes=[".rlxpack"]),
    ]


PRODUCTS = ("rlx.matmul", "rlx.fused_matmul_bias_act", "rlx.folded_matmul", "rlx.fused_matmul_prologue")
"""Products that may compute an element-wise region."""

CLEAN = ("fold-constants", "cse", "algebra", "dead-code")

LOOPS = ("merge-loops", "reuse-from-loops", "hoist-from-loops")
"""Passes that share computations between loops, then those that hoist loop-invariant ones."""

FUSE = (
    *("recognise-softmax", "recognise-norms", "recognise-gelu", "recognise-attention", *CLEAN),
    *("fuse-conv-batch-norm", "fuse-weight-loads", "fuse-matmul-bias-act", "fuse-residual-norm", "fuse-swiglu"),
    *("fuse-shared-input-matmul",),
    *("fuse-softmax-cross-entropy", *CLEAN, "channels-last", "cse"),
)
"""Order matters: norms are fused before residuals, and products with their bias before products are shared."""

FORWARD = (
    *("cse", "recognise-softmax", "recognise-norms", "recognise-gelu", "recognise-attention"),
    *("fuse-softmax-cross-entropy", "dead-code"),
)
"""Passes before differentiation, so that the recognised op's own rule gives the derivative."""

REGIONS = ("mark-elementwise-regions", "clip-regions", {"unfuse-regions": {"always": False}})

LEGAL = (
    *("legalize", "fold-constants", "cse", *REGIONS),
    *("sink-reshapes", "fuse-product-sums", "fuse-matmul-epilogue", "fuse-product-sums"),
    *("fuse-loops", "dead-code"),
)
"""Regions once more at the end, because decompositions are element-wise for the most part; then the products before them and
the loops around them."""


@hookimpl
def rlx_pipelines() -> list[PipelineSpec]:
    """Return the default pipelines, in the order of their passes."""
    return [
        PipelineSpec(
            "rlx.inference",
            {
                "forward": [*FORWARD],
                "hir": ["inline-calls", "lower-hir"],
                "mir": ["inline-calls", "canonicalize", *CLEAN, *LOOPS, *FUSE, *REGIONS, *LEGAL],
            },
            summary="Everything that keeps results and makes them faster.",
        ),
        PipelineSpec(
            "rlx.training",
            {
                "forward": [*FORWARD],
                "hir": ["inline-calls", "lower-hir"],
                "mir": ["inline-calls", "canonicalize", *CLEAN, *LOOPS, *FUSE, *REGIONS, *LEGAL],
            },
            summary="The same for a step of training, whose parameters change on every run.",
        ),
        PipelineSpec(
            "rlx.none",
            {"hir": ["lower-hir"], "mir": ["legalize", "dead-code"]},
            summary="Only what a program needs to run at all.",
        ),
    ]
