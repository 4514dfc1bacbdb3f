"""rlx's own plugin: the standard ops, blocks, passes, rule sets and pipelines, through the same hooks as external plugins.

Everything here is a name and an address; nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from rlx_core.ops.families import FAMILIES, Family


@hookimpl
def rlx_ops() -> Iterator[OpFamily]:
    """The standard ops, one family per module."""
    for module, names in FAMILIES.items():
        load = LazyRef(f"rlx_core.ops.{module}", target=(Family(module),))
        yield OpFamily(load, [f"rlx.{name}" for name in names.split()])


@hookimpl
def rlx_blocks() -> Iterator[BlockSpec]:
    """The standard HIR blocks; they are ops as well, in a HIR graph."""
    for name in FAMILIES["blocks"].split():
        load = LazyRef("rlx_core.ops.blocks", f"rlx.{name}", target=(Family("blocks"),))
        yield BlockSpec(f"rlx.{name}", load)


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


def _pass(name: str, load: str, summary: str, ops: str = "", module: str = "", **more: Any) -> PassSpec:
    """Return the record of a pass of the core.

    Args:
        load: Its class.
        ops: Names of standard ops; without any of them it changes nothing.
        module: The module in `rlx_core`. By default it has the name of the pass and is in `passes`, or in a folder there that
            the first word names.
    """
    folder, _, remaining = name.partition("-")
    file = f"{folder}.{remaining}" if folder in ("fuse", "recognise") else name
    place = f"rlx_core.{module or 'passes.' + file.replace('-', '_')}:{load}"
    return PassSpec(f"rlx.{name}", place, summary=summary, ops=[f"rlx.{op}" for op in ops.split()], **more)


PRODUCTS = "matmul fused_matmul_bias_act folded_matmul fused_matmul_prologue"
"""Products that may compute an element-wise region."""


@hookimpl
def rlx_passes() -> list[PassSpec]:
    """The passes of the core."""
    return [
        _pass("lower-hir", "LowerHir", "Blocks become ops.", stage="hir"),
        _pass("inline-calls", "InlineCalls", "Calls become nodes in place."),
        _pass("canonicalize", "Canonicalize", "One spelling of everything."),
        _pass("fold-constants", "FoldConstants", "What is constant is computed now."),
        _pass("cse", "CommonSubexpressions", "Equal expressions are computed once."),
        _pass("merge-loops", "MergeLoops", "A loop whose states another goes through is part of it.", "while"),
        _pass("reuse-from-loops", "ReuseFromLoops", "What an earlier loop computed is not computed again.", "scan"),
        _pass("hoist-from-loops", "HoistFromLoops", "What no step of a loop changes is computed before it.", "scan"),
        _pass("dead-code", "DeadCode", "What nothing needs is dropped."),
        _pass("promote-params", "PromoteParams", "Parameters become inputs."),
        _pass("integer-products", "IntegerProducts", "Products of dequantised codes multiply the codes.", "cast"),
        _pass(
            "dynamic-int8",
            "DynamicInt8",
            "Products with bound weights multiply i8.",
            after=["rlx.fuse-shared-input-matmul"],
            before=["rlx.fuse-softmax-cross-entropy"],
        ),
        _pass(
            "static-int8",
            "StaticInt8",
            "Products with bound weights multiply i8, with measured ranges of activations.",
            after=["rlx.fuse-shared-input-matmul"],
            before=["rlx.fuse-softmax-cross-entropy"],
        ),
        _pass(
            "quantized-activations",
            "QuantizedActivations",
            "Products with weights in blocks of codes multiply codes.",
            before=["rlx.fuse-weight-loads"],
        ),
        _pass(
            "mixed-precision",
            "MixedPrecision",
            "Products, convolutions and attention compute in bf16 or f16.",
            after=["rlx.fuse-softmax-cross-entropy"],
            before=["rlx.legalize"],
        ),
        _pass(
            "legalize-broadcast", "LegalizeBroadcast", "Broadcasting is written out for targets that want equal shapes."
        ),
        _pass("recognise-softmax", "RecogniseSoftmax", "Exponentials over their sum are a softmax.", "exp"),
        _pass("recognise-norms", "RecogniseNorms", "Statistics and roots are norms.", "sqrt rsqrt layer_norm rms_norm"),
        _pass("recognise-gelu", "RecogniseGelu", "The two formulas of GELU, and silu.", "erf erfc tanh sigmoid"),
        _pass(
            "recognise-attention", "RecogniseAttention", "Products around a softmax are attention.", "softmax attention"
        ),
        _pass(
            "fuse-matmul-bias-act",
            "FuseMatMulBiasAct",
            "A product, its bias and its activation.",
            "matmul fused_matmul_bias_act",
        ),
        _pass(
            "fuse-conv-batch-norm",
            "FuseConvBatchNorm",
            "A convolution and the batch norm with given statistics after it.",
            "batch_norm_inference",
        ),
        _pass("fuse-residual-norm", "FuseResidualNorm", "A residual sum and its norm.", "layer_norm rms_norm"),
        _pass("fuse-swiglu", "FuseSwiGLU", "The gated unit of halves or of two products.", "silu"),
        _pass(
            "fuse-shared-input-matmul",
            "FuseSharedInputMatMul",
            "Products of one value with several weights.",
            "matmul fused_matmul_bias_act",
        ),
        _pass(
            "fuse-softmax-cross-entropy",
            "FuseSoftmaxCrossEntropy",
            "A log-softmax read at labels.",
            "log log_sum_exp log_softmax",
        ),
        _pass(
            "mark-elementwise-regions",
            "MarkElementwiseRegions",
            "Chains of element-wise ops become one op.",
            module="passes.fuse.mark_elementwise_regions",
        ),
        _pass(
            "channels-last",
            "ChannelsLast",
            "Convolutions, and what lies between them, with their channels last.",
            "conv conv_backward_input conv_backward_weight conv_transpose",
            module="passes.fuse.channels_last",
        ),
        _pass(
            "sink-reshapes",
            "SinkReshapes",
            "Regions in the dims of the product that they read through a reshape.",
            PRODUCTS,
            module="passes.fuse.sink_reshapes",
        ),
        _pass(
            "fuse-product-sums",
            "FuseProductSums",
            "A product and the sums of a factor, by a library.",
            "matmul fused_matmul_epilogue",
        ),
        _pass(
            "fuse-weight-loads",
            "FuseWeightLoads",
            "Products and gathers with the computation of their weights from narrower data.",
            "gather matmul grouped_matmul",
        ),
        _pass(
            "fuse-matmul-epilogue", "FuseMatMulEpilogue", "A product and the element-wise region after it.", PRODUCTS
        ),
        _pass("fuse-loops", "FuseLoops", "Neighbouring loop nests become one."),
        _pass(
            "unfuse-regions",
            "UnfuseRegions",
            "Element-wise regions become chains again.",
            "elementwise_region",
            module="passes.fuse.unfuse_regions",
        ),
        _pass(
            "clip-regions",
            "ClipRegions",
            "Regions above the limits become chains again.",
            "elementwise_region",
            module="passes.fuse.unfuse_regions",
        ),
        _pass("legalize", "Legalize", "Everything gets a kernel of the target.", module="pipeline.legalize"),
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
    stages = {
        "forward": [*FORWARD],
        "hir": ["inline-calls", "lower-hir"],
        "mir": ["inline-calls", "canonicalize", "integer-products", *CLEAN, *LOOPS, *FUSE, *REGIONS, *LEGAL],
    }
    training = "The same for a step of training, whose parameters change on every run."
    unchanged = {"hir": ["lower-hir"], "mir": ["legalize", "dead-code"]}
    return [
        PipelineSpec("rlx.inference", stages, summary="Everything that keeps results and makes them faster."),
        PipelineSpec("rlx.training", stages, summary=training),
        PipelineSpec("rlx.none", unchanged, summary="Only what a program needs to run at all."),
    ]
