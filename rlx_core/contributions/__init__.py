"""Contribution records: one frozen record per thing that a plugin provides, cheap to construct without importing the thing.

A record states what exists and where its implementation is; `load` is a `LazyRef`, imported on first use. Every record is
validated where it is written, so a mistake is reported with the plugin that made it. Names have the form `domain.name`, where
the domain is the name of the plugin; targets, commands and functions are single words.
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
    SchemeSpec,
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
    "SchemeSpec",
    "Trial",
]
