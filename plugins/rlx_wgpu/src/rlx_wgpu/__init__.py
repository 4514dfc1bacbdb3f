"""GPUs by WebGPU. This package knows how to find adapters and how to drive one; what programs are on them is rlx's own."""
