"""The table of ops and the modules say the same."""

from rlx_core.ops.families import BLOCKS, FAMILIES, found_families
from rlx_core.plugins import PluginHost


def test_the_tables_name_every_op_and_block_where_it_lives():
    assert {**FAMILIES, **BLOCKS} == found_families()


def test_every_op_and_block_is_loaded_under_its_own_name():
    host = PluginHost([])
    registry = host.registry()

    assert [n for n in registry.ops if host.load("ops", n).name != n] == []
    assert [n for n in registry.blocks if host.load("blocks", n).name != n] == []
