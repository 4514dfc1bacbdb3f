"""Fourier transforms as native code, where they are along the last axis and of a power of two of elements.

`stages.py` has the steps of one transform, `transforms.py` the kernel. SciPy's pocketfft computes all others.
"""
