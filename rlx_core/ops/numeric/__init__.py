"""Functions that users of NumPy and JAX know by name, as compositions of ops: nothing here has a rule of its own.

elementwise      numbers one by one: angles, signs, extremes that pass over NaN, closeness
without_nan      reductions that pass over NaN
quantiles        medians, quantiles, percentiles
statistics       weighted means, covariances, integrals along an axis
bins             counts and sums by group: histograms, segments
interpolation    straight lines between points, polynomials
signals          running products of two lines
"""
