"""Acme C: a language of the C family with keywords of its own, 32-bit floats, and no exchanges between threads."""

from rlx_gpu.kit import F16_OF_F32, F32_OF_F16, FRAGMENTS, WITHOUT_F64, GpuDialect, builtins, fault_fragment

ACME_C = GpuDialect(
    name="acme",
    suffix=".acme",
    dtypes=WITHOUT_F64,
    buffers="pointer",
    base="""
typedef word8 u8; typedef word16 u16; typedef word32 u32; typedef word64 u64;
typedef int8 i8; typedef int16 i16; typedef int32 i32; typedef int64 i64;
typedef real32 f32; typedef word32_2 u32x2; typedef word32_4 u32x4;
#define RLX_GLOBAL on_device
#define RLX_SHARED on_team
#define RLX_FN private_function
#define RLX_UNROLL
#define rlx_thread() ((u32)worker_of_team())
#define rlx_group() ((u32)team_of_launch())
#define rlx_barrier() meet()
""",
    fragments={
        "rlx_u32_of_f32": "RLX_FN u32 rlx_u32_of_f32(f32 x) { return word_of_real(x); }",
        "rlx_f32_of_u32": "RLX_FN f32 rlx_f32_of_u32(u32 x) { return real_of_word(x); }",
        **FRAGMENTS,
        "rlx_f32_of_f16": F32_OF_F16,
        "rlx_f16_of_f32": F16_OF_F32,
        "rlx_memory_barrier": "RLX_FN void rlx_memory_barrier() { meet(); }",
        "rlx_fault": fault_fragment("on_device u32*", "lower_atomically(word, place);"),
    },
    builtins=builtins(exp=2, log=2, tanh=3),
    head="acme_kernel({size}) {name}({arguments}) {{",
    argument="on_device {const}{type}* {name}",
    status="on_device u32* status, const u32 site",
)
