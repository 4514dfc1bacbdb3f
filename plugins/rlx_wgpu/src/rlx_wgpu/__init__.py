"""GPUs through WebGPU. This package finds and drives adapters; `rlx_core` generates and schedules the programs."""
