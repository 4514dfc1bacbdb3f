"""Configuration is read strictly, merged by precedence, and says where each fault is."""

import hashlib
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_core.errors import ConfigError
from rlx_core.pipeline.config.reading import find_config, load_config, read_table, section_of
from rlx_core.pipeline.config.records import Configuration

FILE = """
target = "cpu"
use = "serving"

[plugins]
block = ["acme-*"]
override = { "rlx.softmax" = "acme" }

[pipeline.serving]
hir = ["lower-hir"]
mir = ["algebra", { fold-constants = { limit = 64 } }, "dead-code"]

[dispatch]
policy = "force-common"
force-native = ["rlx.matmul"]

[passes.cse]

[memory]
alignment = 128
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "rlx.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def read(path: Path | None = None, overrides=None, **environ: str) -> Configuration:
    return load_config(path, overrides, environ=environ, start="/")


def test_a_file_becomes_a_record(written):
    config = read(written(FILE))
    assert config.use == "serving"
    assert config.plugins.block == ("acme-*",)
    assert config.plugins.override == {"rlx.softmax": "acme"}
    assert config.pipeline["serving"].mir[1] == {"fold-constants": {"limit": 64}}
    assert config.dispatch.force_native == ("rlx.matmul",)
    assert config.memory.alignment == 128


def test_pyproject_is_read_where_it_has_a_section(written, tmp_path):
    (tmp_path / "deep").mkdir()
    path = written('[tool.rlx]\ntarget = "cuda"\n', "pyproject.toml")
    assert find_config(tmp_path / "deep") == path
    assert load_config(start=tmp_path / "deep", environ={}).target == "cuda"


@pytest.mark.parametrize(
    "text",
    [
        '[tool]\nrlx = { target = "cuda" }',
        'tool.rlx.target = "cuda"',
        'tool = { rlx = { target = "cuda" } }',
        '[ "tool" . rlx ]\ntarget = "cuda"',
        "[other]\nx = 1\n\n  [tool.'rlx']\n  target = 'cuda'",
        '[tool.rlx.cache]\ndisk = false\n[tool.rlx]\ntarget = "cuda"',
        '["to\\u006fl"."\\U00000072lx"]\ntarget = "cuda"',
        'text = """\n[tool]\n"""\r\n\t[\ttool\t.\t"rlx"\t] # [tool.other]\r\ntarget = "cuda"',
    ],
)
def test_the_section_is_found_however_it_is_written(written, tmp_path, text):
    path = written(text, "pyproject.toml")
    assert find_config(tmp_path) == path
    assert load_config(path, environ={}).target == "cuda"


@pytest.mark.parametrize(
    "text",
    [
        "[tool.other]\n",
        "[tool]\nother = 1\n",
        '[project]\nname = "tool.rlx"\n',
        '"tool.rlx" = 1\n',
        "# [tool.rlx]\n",
        'text = """\n[tool.rlx]\n"""\n',
        "[a]\ntool.rlx = 1\n",
        "tool = 3\n",
        'tool = "rlx"\n',
        'tool = ["rlx"]\n',
    ],
)
def test_a_pyproject_without_the_section_is_passed_by(written, tmp_path, text):
    written(text, "pyproject.toml")
    assert find_config(tmp_path) != tmp_path / "pyproject.toml"


@pytest.mark.parametrize("text", ["[tool]\nrlx = 3\n", "[[tool.rlx]]\n"])
def test_a_section_that_is_no_table_is_named(written, tmp_path, text):
    path = written(text, "pyproject.toml")
    with pytest.raises(ConfigError, match=r"tool\.rlx is .*, not a table") as found:
        load_config(start=tmp_path, environ={})
    assert str(path) in str(found.value)


QUOTES = ("{}", '"{}"', "'{}'")
PLAIN = st.sampled_from(["tool", "rlx", "tool", "rlx", "tool.rlx", "other"])
ESCAPED = PLAIN.map(lambda key: '"' + "".join(f"\\u{ord(letter):04x}" for letter in key) + '"')
SPACE = st.sampled_from(["", " ", "\t "])
KEY = st.one_of(st.builds(lambda quotes, key: quotes.format(key), st.sampled_from(QUOTES), PLAIN), ESCAPED)
PATH = st.builds(str.join, st.sampled_from([".", " . ", "\t."]), st.lists(KEY, min_size=1, max_size=3))
VALUE = st.one_of(
    PATH.map("{{ {} = 1 }}".format), st.sampled_from(["1", '"""\n[tool.rlx]\ntool = """', "'''\n[tool]\n'''"])
)
LINE = st.one_of(
    st.builds("{}{} = {}".format, SPACE, PATH, VALUE),
    st.builds("{}[{}]".format, SPACE, PATH),
    st.builds("{}[[{}]]".format, SPACE, PATH),
    st.builds("# {} = 1".format, PATH),
)


@pytest.mark.medium
@settings(max_examples=600)
@given(st.lists(LINE, max_size=3), st.sampled_from(["\n", "\r\n"]))
def test_whether_there_is_a_section_is_what_parsing_says(tmp_path_factory, lines, end):
    """A file that need not be parsed to know it is one that has none."""
    text = end.join(lines)
    try:
        tool = tomllib.loads(text).get("tool")
    except tomllib.TOMLDecodeError:
        return
    # Files are read anew when they changed: each text has its own.
    path = tmp_path_factory.getbasetemp() / f"{hashlib.sha256(text.encode()).hexdigest()}.toml"
    path.write_bytes(text.encode())
    assert section_of(path) == (tool.get("rlx") if isinstance(tool, dict) else None)


def test_the_program_beats_the_environment_and_the_environment_beats_the_file(written):
    path = written('[dispatch]\npolicy = "force-native"\nrounds = 3\n')
    assert read(path).dispatch.policy == "force-native"
    assert read(path, RLX_KERNEL_DISPATCH="common").dispatch.policy == "force-common"
    config = read(path, {"dispatch.policy": "prefer-native"}, RLX_KERNEL_DISPATCH="common")
    assert config.dispatch.policy == "prefer-native"
    assert config.dispatch.rounds == 3
    assert config.origin_of("dispatch.policy") == "the program"
    assert config.origin_of("dispatch.rounds") == str(path)
    assert config.origin_of("cache.disk") == "the default"


@pytest.mark.parametrize("text", ["", "0", "false", "OFF", "no"])
def test_words_for_no_are_false(text):
    assert read(RLX_VERBOSE=text).printing.verbose is False


@pytest.mark.parametrize("text", ["1", "true", "on", "yes", "anything"])
def test_other_words_are_true(text):
    assert read(RLX_VERBOSE=text).printing.verbose is True


def test_settings_of_a_target_count_for_that_target_only():
    assert read(None, {"target": "cpu"}, RLX_CPU_NO_FUSION="1").fusion.enabled is False
    assert read(None, {"target": "cuda"}, RLX_CPU_NO_FUSION="1").fusion.enabled is True


def test_unknown_settings_are_reported_with_the_nearest_name_and_do_not_fail():
    unknown = read(RLX_VERBOS="1", HOME="/").unknown_settings
    assert [u.name for u in unknown] == ["RLX_VERBOS"]
    assert unknown[0].hint == "did you mean `RLX_VERBOSE`?"


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("[dispach]\nrounds = 2\n", "dispach", "unknown key"),
        ("[dispatch]\nround = 2\n", "dispatch.round", "unknown key"),
        ('[dispatch]\nrounds = "2"\n', "dispatch.rounds", "found '2' (string), wanted an integer"),
        ("[dispatch]\nrounds = 0\n", "dispatch.rounds", "must be >= 1"),
        ("[dispatch]\nrounds = true\n", "dispatch.rounds", "True (boolean)"),
        ('[dispatch]\npolicy = "native"\n', "dispatch.policy", "prefer-native or force-common or force-native"),
        ('[plugins]\nblock = "acme"\n', "plugins.block", "wanted a list of strings"),
        ("[plugins]\nblok = []\n", "plugins.blok", "unknown key"),
        ("[plugins]\nallow = [1]\n", "plugins.allow", "wanted a list of strings"),
        ('[plugins]\noverride = ["acme.op"]\n', "plugins.override", "wanted a table"),
        ('[plugins.override]\n"acme.op" = 1\n', "plugins.override.acme.op", "wanted a string"),
        ("[memory]\nalignment = 48\n", "memory.alignment", "power of two"),
        ('memory = "much"\n', "memory", "wanted a table"),
        ("[pipeline.mine]\nmir = [1]\n", "pipeline.mine.mir", "list of names"),
        ("[pipeline.mine]\nmirr = []\n", "pipeline.mine.mirr", "unknown key"),
    ],
)
def test_a_fault_names_the_file_the_key_and_what_was_found(written, text, key, says):
    path = written(text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    message = str(caught.value)
    assert key in message
    assert says in message
    assert str(path) in message


def test_a_misspelt_key_is_answered_with_the_nearest_one(written):
    with pytest.raises(ConfigError) as caught:
        read(written("[dispatch]\nround = 2\n"))
    assert caught.value.hint == "did you mean `rounds`?"


def test_a_fault_of_the_environment_names_the_variable():
    with pytest.raises(ConfigError, match="RLX_KERNEL_DISPATCH: found 'gpu', wanted common or native"):
        read(RLX_KERNEL_DISPATCH="gpu")


def test_all_faults_are_reported_together(written):
    with pytest.raises(ConfigError) as caught:
        read(written('verify = 1\n[dispatch]\nrounds = "x"\n[cache]\ndisc = true\n'))
    assert {f.label for f in caught.value.facts} >= {"verify", "dispatch.rounds", "cache.disc"}


def test_text_that_is_not_toml_names_the_file_and_line(written):
    path = written("target = \n")
    with pytest.raises(ConfigError, match="line 1") as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_error_with_its_name(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load_config(tmp_path / "none.toml", environ={})


def test_hyphens_and_underscores_are_one_spelling():
    table = {"dispatch": {"force_native": ["rlx.exp"]}}
    assert read_table(table) == read_table({"dispatch": {"force-native": ["rlx.exp"]}})


def test_a_configuration_cannot_be_changed():
    config = read_table({"passes": {"cse": {"x": 1}}})
    with pytest.raises(AttributeError):
        config.target = "cuda"
    with pytest.raises(TypeError):
        config.passes["cse"]["x"] = 2


DEEP = {
    "lists": "a = " + "[" * 2000 + "]" * 2000,
    "inline tables": "a = " + "{ a = " * 2000 + "1" + " }" * 2000,
    "dotted keys": "a" + ".a" * 2000 + " = 1",
    "headers": "[a" + ".a" * 2000 + "]",
    "some": "[options]\na = " + "[" * 40 + "]" * 40,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=list(DEEP))
def test_a_file_that_nests_deeply_is_refused(written, text):
    path = written(text)
    with pytest.raises(ConfigError, match="tables and lists are nested more than 32 deep") as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_dictionary_that_nests_deeply_is_refused():
    table = {}
    for _ in range(2000):
        table = {"options": table}
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        read_table(table)
