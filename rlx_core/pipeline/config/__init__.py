"""Configuration: what a user may say about a compilation, where it is said, and which of it is believed.

The records are here by name. `reading.py` merges files, variables and tables of the program, `structure.py` makes records of
them, `settings.py` lists the variables, `trust.py` refuses code that somebody else may have named, and `words.py` refuses words
that mean no op.
"""

from rlx_core.pipeline.config.records import (
    STAGES,
    CacheConfig,
    Configuration,
    DispatchConfig,
    FusionConfig,
    MemoryConfig,
    PipelineConfig,
    PluginConfig,
    PrecisionConfig,
    PrintingConfig,
    UnknownSetting,
)

__all__ = [
    "STAGES",
    "CacheConfig",
    "Configuration",
    "DispatchConfig",
    "FusionConfig",
    "MemoryConfig",
    "PipelineConfig",
    "PluginConfig",
    "PrecisionConfig",
    "PrintingConfig",
    "UnknownSetting",
]
