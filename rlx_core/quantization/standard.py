"""The standard schemes by name."""

from rlx_core.quantization import floating, ggml_blocks, ggml_grids, ggml_superblocks, ggml_tables, integer

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        integer.Int8,
        integer.Int8Asymmetric,
        integer.Int4,
        integer.Int4Asymmetric,
        floating.Fp8E4M3,
        floating.Fp8E5M2,
        floating.Fp4E2M1,
        floating.Nvfp4,
        floating.Mxfp4,
        ggml_blocks.Q4_0,
        ggml_blocks.Q4_1,
        ggml_blocks.Q5_0,
        ggml_blocks.Q5_1,
        ggml_blocks.Q8_0,
        ggml_superblocks.Q2_K,
        ggml_superblocks.Q3_K,
        ggml_superblocks.Q4_K,
        ggml_superblocks.Q5_K,
        ggml_superblocks.Q6_K,
        ggml_superblocks.Q8_K,
        ggml_tables.Iq4Nl,
        ggml_tables.Iq4Xs,
        ggml_grids.Iq1S,
        ggml_grids.Iq1M,
        ggml_grids.Iq2Xxs,
        ggml_grids.Iq2Xs,
        ggml_grids.Iq2S,
        ggml_grids.Iq3Xxs,
        ggml_grids.Iq3S,
        ggml_tables.Tq1_0,
        ggml_tables.Tq2_0,
    )
}
