"""Execution of GPU languages without a GPU: `rlx_gpu.testing.shim` compiles C-like languages as C++ for the CPU."""
