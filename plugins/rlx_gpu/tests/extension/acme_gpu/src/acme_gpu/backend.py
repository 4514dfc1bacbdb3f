"""The target `acme`. There is no such GPU: its one device is the stand-in, which compiles the language as C++."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from acme_gpu.language import ACME_C
from rlx_core.kit import Device, Level
from rlx_gpu.kit import GpuBackend
from rlx_gpu.testing.shim.dialects import Dialect
from rlx_gpu.testing.shim.driver import stand_in

AS_CPP = Dialect(
    ACME_C,
    header="",
    head=re.compile(r"^acme_kernel\(\d+\) (\w+)\(", re.MULTILINE),
    prelude="""
#include "functions.h"
#include "group.h"
#include "words.h"
typedef unsigned char word8; typedef unsigned short word16; typedef unsigned word32; typedef unsigned long long word64;
typedef signed char int8; typedef short int16; typedef int int32; typedef long long int64;
typedef float real32; typedef uint2 word32_2; typedef uint4 word32_4;
#define on_device
#define on_team RLX_SHIM_SHARED
#define private_function static inline
#define acme_kernel(size) void
namespace acme {
RLX_SHIM_UNARY(RLX_SHIM_UNARY_F32)
RLX_SHIM_BINARY(RLX_SHIM_BINARY_F32)
static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
}
using namespace acme;
static inline unsigned worker_of_team() { return shim::thread_place.x; }
static inline unsigned team_of_launch() { return shim::group_place.x; }
static inline void meet() { shim::wait(shim::AT_GROUP); }
static inline unsigned word_of_real(float x) { return shim::u32_of_f32(x); }
static inline float real_of_word(unsigned x) { return shim::f32_of_u32(x); }
static inline void lower_atomically(unsigned* at, unsigned value) { if (value < *at) *at = value; }
""",
)


@cache
def devices() -> Sequence[Device]:
    return (stand_in(AS_CPP, "acme:0"),)


class AcmeBackend(GpuBackend):
    """The backend of Acme's GPUs."""

    name = "acme"
    dialect = ACME_C
    level = Level("acme", "Acme C", comment="//")

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        return devices()
