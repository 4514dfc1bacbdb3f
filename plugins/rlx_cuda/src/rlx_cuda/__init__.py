"""NVIDIA GPUs through CuPy. This package finds and drives devices; `rlx_core` generates and schedules the programs."""
