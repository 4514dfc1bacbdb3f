"""Fourier transforms: the ops, what they are made of where no library has them, and the functions of `rlx.fft`.

Three ops are all there is (`fourier.py`): complex to complex, real to half a spectrum, and back. `cooley_tukey.py` says
each in matrix products of real numbers; `functions.py` has NumPy's names for them, and `frames.py` short-time transforms.
"""
