"""NVIDIA GPUs through CuPy. This package finds and drives devices; `rlx_gpu` generates kernels, `rlx_core` programs."""
