"""Fourier transforms: the ops, their decompositions for targets without a library, and the functions of `rlx.fft`.

There are three ops (`fourier.py`): complex to complex, real to half a spectrum, and back. `cooley_tukey.py` decomposes each
into matrix products of real numbers; `functions.py` has the functions with NumPy's names, and `frames.py` short-time
transforms.
"""
