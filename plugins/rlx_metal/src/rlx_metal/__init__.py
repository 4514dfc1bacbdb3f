"""GPUs through Metal. This package finds and drives devices; `rlx_core` generates and schedules the programs."""
