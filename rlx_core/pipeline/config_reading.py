"""Reading of configuration, for programs that print the plan of a configuration. (`config/reading.py`)"""

from __future__ import annotations

from rlx_core.pipeline.config.reading import Sources, file_table, find_config, load_config, read_sources, read_table

__all__ = ["Sources", "file_table", "find_config", "load_config", "read_sources", "read_table"]
