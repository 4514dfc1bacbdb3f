"""Autoregressive generation: `generate` with a cache that is updated in place, options of checkpoints, and sampling."""

from rlx_models.generation.generate import generate
from rlx_models.generation.grammar import Grammar, GrammarCompiler, json_grammar

__all__ = ["Grammar", "GrammarCompiler", "generate", "json_grammar"]
