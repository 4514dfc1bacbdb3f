"""Functions of one element: the standard scalar code, and f32 functions in pieces where AVX-512 picks coefficients."""
