"""NVIDIA's GPUs by CuPy. This package knows how to find devices and how to drive one; what programs are on them is rlx's own."""
