"""rlx's own commands, in the order in which help lists them: the same records as those of plugins."""

from __future__ import annotations

from rlx_core.contributions import CommandSpec

COMMANDS = (
    CommandSpec("plugins", "rlx_core.cli.plugins:plugins", summary="List plugins with their states, reasons and contributions."),
    CommandSpec("ops", "rlx_core.cli.ops:ops", summary="List ops, or show everything about one."),
    CommandSpec("passes", "rlx_core.cli.passes:passes", summary="List passes with their options and relations."),
    CommandSpec("compile", "rlx_core.cli.compile:compile_program", summary="Compile a program, and print it at any level."),
    CommandSpec("why", "rlx_core.cli.why:why", summary="Explain the origin of an op, a pass or a kernel selection."),
    CommandSpec("plan", "rlx_core.cli.plan:plan", summary="Show the pipeline that the configuration resolves to."),
    CommandSpec("doctor", "rlx_core.cli.doctor:doctor", summary="Check this installation and print remedies."),
    CommandSpec("explain", "rlx_core.cli.explain:explain", summary="Explain a kind of error."),
    CommandSpec("show", "rlx_core.cli.show:show", summary="Print a saved program as text."),
    CommandSpec("package", "rlx_core.cli.package:package", summary="Write a saved function with its code, to be deployed."),
    CommandSpec("trust", "rlx_core.cli.trust:trust", summary="Allow the code of a package, or list known packages."),
    CommandSpec("tune", "rlx_core.cli.tune:tune", summary="List or clear schedules that were selected by measurement."),
    CommandSpec("new", "rlx_core.cli.new:new", summary="Write a package of your own: an op, a pass, a backend or a plugin."),
    CommandSpec("check", "rlx_core.cli.check:check", summary="Check a package: its plugin, contributions, laws and plans."),
    CommandSpec("conform", "rlx_core.cli.conforming.command:conform", summary="Show the conformance level of a target."),
    CommandSpec("demo", "rlx_core.cli.demo:demo", summary="Embed sentences, train a classifier, draw both programs."),
    CommandSpec("bench", "rlx_core.cli.bench:bench", summary="Time rlx, and with --peers alternative systems."),
)  # fmt: skip
