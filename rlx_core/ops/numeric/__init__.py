"""Functions of NumPy and JAX as compositions of ops, without rules of their own.

elementwise      elementwise functions: angles, signs, extremes that ignore NaN, closeness
without_nan      reductions that ignore NaN
quantiles        medians, quantiles, percentiles
statistics       weighted means, covariances, integrals along an axis
bins             counts and sums by group: histograms, segments
interpolation    straight lines between points, polynomials
signals          convolution and correlation of two vectors
"""
