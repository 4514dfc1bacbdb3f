"""The NumPy meanings of functions that NumPy does not have.

Each takes real arrays and computes in float64, whatever it is given; the interpreter rounds to the declared dtype once.
"""

from __future__ import annotations

import math

import numpy as np

# `math` has the C library's erf and erfc, right to the last place or two; element by element is fast enough for a reference.
erf_array = np.vectorize(math.erf, otypes=[np.float64])
erfc_array = np.vectorize(math.erfc, otypes=[np.float64])
