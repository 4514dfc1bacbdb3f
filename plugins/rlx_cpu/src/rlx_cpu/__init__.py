"""The CPU backend of rlx. It knows how to run a LIR on this machine's processor, and nothing of how the LIR was made.

Two tiers share one kernel table and one plan: native code, made by `native/` where llvmlite is installed, and NumPy kernels that
write into the planned arena, complete for every standard op in every dtype. `tier.py` decides between them.
"""
