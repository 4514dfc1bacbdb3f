"""Plugins: finding them, deciding which may be used, isolating their faults, and freezing what they provide.

Read in the order of a plugin's life: `index` (what is installed, without importing it), `policy` (what the
user switched off), `collect` (import and call its hooks, all or nothing), `freeze` (conflicts, order) into a
`Registry`, which the compiler reads. `PluginHost` drives them. This layer knows hooks, records and names;
it does not depend on ops, passes or backends themselves.
"""

from rlx_core.plugins.collect import Claim
from rlx_core.plugins.digest import package_of, stamp_of
from rlx_core.plugins.entry import PluginEntry, PluginOrigin, builtin_entry, given_entry, named_entry
from rlx_core.plugins.faults import ContributionFault
from rlx_core.plugins.host import PluginHost, default_host, host_with, set_default_host
from rlx_core.plugins.index import PluginIndex, installed_plugins
from rlx_core.plugins.manager import PluginManager
from rlx_core.plugins.policy import PluginPolicy
from rlx_core.plugins.registry import Override, Refusal, Registry
from rlx_core.plugins.states import Failure, PluginStatus, Provenance, State, Verdict

__all__ = [
    "Claim",
    "ContributionFault",
    "Failure",
    "Override",
    "PluginEntry",
    "PluginHost",
    "PluginIndex",
    "PluginManager",
    "PluginOrigin",
    "PluginPolicy",
    "PluginStatus",
    "Provenance",
    "Refusal",
    "Registry",
    "State",
    "Verdict",
    "builtin_entry",
    "default_host",
    "given_entry",
    "host_with",
    "installed_plugins",
    "named_entry",
    "package_of",
    "set_default_host",
    "stamp_of",
]
