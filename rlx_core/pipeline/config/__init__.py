"""Configuration: the settings of a compilation, the places where they can be set, and the trust in each of them.

The records are here by name. `reading.py` merges files, variables and tables of the program, `structure.py` makes records of
them, `settings.py` lists the variables, `trust.py` refuses code that another user may have named, and `words.py` refuses words
that match no op.
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
