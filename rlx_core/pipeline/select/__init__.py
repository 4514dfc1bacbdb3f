"""Kernel selection: the backend, its table of kernels, and the answer for each node, from a native kernel to a refusal.

Packages import `rlx_core.pipeline.kernels`, `backend` and `dispatch`, which stay where they are.
"""
