"""What a configuration says of plugins: words that mean ops, options of a plugin, and plugins that it blocks."""

import pytest

import rlx_core as rlx
from rlx_core.contributions import (
    OptionSpec,
)
from rlx_core.errors import ConfigError, RlxError
from rlx_core.ops import Op, define_op, op_function
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy, default_host

from .guests import X, plugin_of


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"dispatch.force-common": ["sofmax"]}, r"dispatch\.force-common: 'sofmax' means no op"),
        ({"dispatch.allow-host": ["rlx.sofmax"]}, r"dispatch\.allow-host: 'rlx\.sofmax' means no op"),
        ({"printing.after": ["cce"]}, r"printing\.after: no plugin provides a pass called 'cce'"),
    ],
)
def test_a_word_that_means_nothing_is_an_error_with_the_nearest(config, says):
    with pytest.raises(ConfigError, match=says) as caught:
        rlx.jit(lambda x: rlx.tanh(x), config=config)(X)
    assert "did you mean" in caught.value.hint


@pytest.mark.parametrize("word", ["softmax", "rlx.softmax", "rlx", "linalg.*", "linalg.svd", "*", "mine.own"])
def test_words_that_mean_something_are_none(word):
    @define_op(domain="mine")
    class Own(Op):
        def decompose(self, x):
            return x + x

    own = op_function(Own)
    assert rlx.jit(lambda x: own(x), config={"dispatch.force-common": [word]})(X).tolist() == (X + X).tolist()


def test_an_option_is_read_from_its_variable(monkeypatch):
    option = OptionSpec("acme.level", int, 2, "How hard to try.", env="ACME_LEVEL")
    entry = PluginEntry("acme", plugin=plugin_of(("options", [option])), distribution="acme-rlx")  # nothing declared
    host = PluginHost([*default_host().entries, entry], policy=PluginPolicy())
    monkeypatch.setenv("ACME_LEVEL", "5")

    function = rlx.jit(lambda x: rlx.tanh(x) * 5, host=host)
    function(X)
    assert function.executables[0].report.lir.options["options"]["acme.level"] == 5


def test_an_option_says_a_variable_by_which_its_plugin_is_found():
    with pytest.raises(RlxError, match=r"env is 'LEVEL', not of the form ACME_… or RLX_ACME_…"):
        OptionSpec("acme.level", int, 2, "How hard to try.", env="LEVEL")


def test_a_plugin_to_block_that_is_not_there_is_warned_of():
    with pytest.warns(RuntimeWarning, match=r"the configuration: no plugin is called `linalgg`; did you mean `linalg`"):
        rlx.jit(lambda x: rlx.tanh(x), config={"plugins": {"block": ["linalgg"]}})(X)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"plugins": {"enable": ["no-such-plugin"]}}, r"plugins\.enable: `no-such-plugin` is no plugin"),
        (
            {"plugins": {"files": ["/no/such/file.py"]}},
            r"plugins\.enable: `/no/such/file\.py` is no plugin: there is no file",
        ),
        ({"plugins": {"override": {"acme.thing": "nobody"}}}, r"plugins\.override: acme\.thing is given to `nobody`"),
        ({"include": ["rlx.cse", "cse"]}, r"include: rlx\.cse is listed twice"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused(config, says):
    with pytest.raises(ConfigError, match=says):
        rlx.jit(lambda x: x + 1, config=config)(X)
