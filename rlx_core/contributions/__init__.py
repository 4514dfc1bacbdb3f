"""What a plugin gives: one frozen record a thing, light enough to be made without importing the thing.

A record says what exists and where to find it; `load` is a `LazyRef`, imported when the thing is first used.
Every record is validated where it is written, so a mistake is reported with the plugin that made it. Things
are named `domain.name`, the domain being the plugin's own name; targets, commands and functions are bare words.
"""

from rlx_core.contributions.records import (
    KINDS,
    BackendSpec,
    BlockSpec,
    CommandSpec,
    Contribution,
    EventSpec,
    ExporterSpec,
    FunctionSpec,
    ImporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpFamily,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    RuleSpec,
    Trial,
)
from rlx_core.contributions.references import LazyRef

__all__ = [
    "KINDS",
    "BackendSpec",
    "BlockSpec",
    "CommandSpec",
    "Contribution",
    "EventSpec",
    "ExporterSpec",
    "FunctionSpec",
    "ImporterSpec",
    "KernelSpec",
    "LazyRef",
    "LegalizationSpec",
    "OpFamily",
    "OpSpec",
    "OptionSpec",
    "PassSpec",
    "PipelineSpec",
    "RuleSetSpec",
    "RuleSpec",
    "Trial",
]
