"""The CPU backend of rlx. It knows how to run a LIR on this machine's processor, and nothing of how the LIR was made.

One tier is here: NumPy kernels that write into the planned arena, complete for every standard op in every dtype, and
the oracle's equal in float64. `tiers` names what a program ran on; a native tier takes its place before it in that list.
"""
