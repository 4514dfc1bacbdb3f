"""Templates of chats: texts of Transformers' `apply_chat_template`, files that have them, and hostile templates."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gguf_models import written_checkpoint, written_gguf
from typer.testing import CliRunner

import rlx_core as rlx
from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, FormatError, PluginError
from rlx_models import from_pretrained, generate
from rlx_models.chat import ChatTemplate, template_of_folder

pytest.importorskip("jinja2", reason="python -m pip install jinja2")

CHAT_ML = """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}
{%- else %}{% set rest = messages %}{% set system = false %}{% endif %}
{%- for message in rest %}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif %}
  {%- if loop.index0 == 0 and system != false %}
    {%- set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
  {%- else %}{% set content = message['content'] %}{% endif %}
  {%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
  {%- else %}{{ ' ' ~ content | trim ~ ' ' ~ eos_token }}{% endif %}
{%- endfor %}"""

TOOLS = """{%- set ns = namespace(count=0, last=messages | length - 1) %}
{{- bos_token }}
{%- if tools %}
    {{- '# Tools\\n' }}{% for tool in tools %}{{ tool | tojson(indent=2) }}{{ '\\n' }}{% endfor %}
{%- endif %}
{%- macro header(role) %}<|{{ role | upper }}|>{% endmacro %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {{- header(message.role) ~ ns.count }} {{ message.content.split('</think>')[-1].lstrip('\\n') }}
    {%- if message.calls is defined and message.calls %}
        {%- for call in message.calls %}{{ call | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}
    {%- endif %}
    {%- if loop.index0 == ns.last %}{% generation %}!{% endgeneration %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ header('assistant') }}{% endif %}"""

TEMPLATES = {"chatml": CHAT_ML, "llama 2": LLAMA2, "without tools": TOOLS}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "  Hello <b>there</b> "}],
    "three": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Öl?\n"},
        {
            "role": "assistant",
            "content": "<think>oil</think>\n\nYes.",
            "calls": [{"name": "f", "of": "ä<"}, {"n": None}],
        },
        {"role": "user", "content": "Why?"},
    ],
}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_texts_are_those_of_transformers(template: str, chat: str, add_generation_prompt: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="python -m pip install transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<s>": 1, "</s>": 2}, unk_token="a"))
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>")
    expected = reference.apply_chat_template(
        CHATS[chat], chat_template=TEMPLATES[template], tokenize=False, add_generation_prompt=add_generation_prompt
    )
    mine = ChatTemplate(TEMPLATES[template], {"bos_token": "<s>", "eos_token": "</s>"})
    assert mine.render(CHATS[chat], add_generation_prompt=add_generation_prompt) == expected
    assert CHATS[chat][-1]["content"].strip() in expected


def test_a_template_can_refuse_messages_and_take_variables() -> None:
    with pytest.raises(ConfigError, match="refuses the messages: Conversation roles must alternate"):
        ChatTemplate(LLAMA2, {"bos_token": ""}).render([{"role": "assistant", "content": "Hello"}])
    tools = [{"name": "add", "of": "<a>"}]
    text = ChatTemplate(TOOLS, {"bos_token": "<s>"}).render(CHATS["one"], tools=tools)
    assert text.startswith('<s># Tools\n{\n  "name": "add",\n  "of": "<a>"\n}\n<|USER|>1')
    for messages in ("Hello", [1], {"role": "user"}):
        with pytest.raises(ConfigError, match="messages are a list of mappings"):
            ChatTemplate(CHAT_ML).render(messages)  # type: ignore[arg-type]


DOUBLED = "{% set x = ['a'] %}" + "{% set x = [x, x] %}" * 40
HOSTILE = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "format": "{{ '{0.__class__}'.format(messages) }}",
    "map": "{{ [messages]|map(attribute='__class__')|list }}",
    "environment": "{{ self._TemplateReference__context.environment }}",
    "mutation": "{{ messages.append(1) }}",
    "import": "{% include '/etc/passwd' %}",
    "endless range": "{% for i in range(10 ** 12) %}{% endfor %}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "long text": "{{ 'a' * 10 ** 10 }}",
    "long format": "{{ '%10000000000d' % 1 }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "replace": "{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}",
    "replace filter": "{% set a = 'a' * 100000 %}{{ a|replace('a', a) }}",
    "join": "{% set a = 'a' * 100000 %}{{ a|join(a) }}",
    "concatenation": "{% set a = 'a' * 1000000 %}" + "{% set a = a ~ a %}" * 30 + "{{ a|length }}",
    "addition": "{% set a = 'a' * 1000000 %}" + "{% set a = a + a %}" * 30 + "{{ a|length }}",
    "indentation": "{{ messages|tojson(indent=10 ** 9) }}",
    "printed": DOUBLED + "{{ x }}",
    "json": DOUBLED + "{{ x|tojson }}",
    "compared": DOUBLED + DOUBLED.replace("x", "y") + "{{ x == y }}",
    "hashed": DOUBLED.replace("[", "(").replace("]", ",)") + "{{ {x: 1}|length }}",
    "namespace": DOUBLED + "{% set n = namespace(x=x) %}{{ n }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "time": "{{ strftime_now('%999999999d') }}",
    "syntax": "{% for %}",
    "undefined": "{{ nothing.at.all }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_refused_in_bounded_time(name: str) -> None:
    start, tracer = time.monotonic(), sys.gettrace()
    with pytest.raises(FormatError, match="chat: the template cannot be rendered"):
        ChatTemplate(HOSTILE[name]).render([{"role": "user", "content": "Hello"}])
    assert time.monotonic() - start < 20
    assert sys.gettrace() is tracer


def test_the_package_jinja2_is_requested_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("jinja2.__version__", "3.1.5")
        with pytest.raises(PluginError, match=r"3\.1\.5 has known escapes"):
            ChatTemplate("a").render([])
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PluginError, match="jinja2 is not installed") as caught:
        ChatTemplate("a").render([])
    assert caught.value.hint == "python -m pip install 'rlx-models[chat]'"


def test_templates_of_folders(tmp_path: Path) -> None:
    folder = written_checkpoint(tmp_path / "m", "llama", "f16")
    model = from_pretrained(folder)
    assert template_of_folder(folder) is None
    with pytest.raises(ConfigError, match="llama has no template of chats"):
        model.apply_chat_template(CHATS["one"])
    config: dict[str, Any] = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "bos_token": {"content": "<s>"},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    message = [{"role": "user", "content": "Hello"}]
    assert model.apply_chat_template(message) == "<s>Hello"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    assert model.apply_chat_template(message) == "yes"
    (folder / "chat_template.jinja").write_text("{{ bos_token }}!{% if add_generation_prompt %}?{% endif %}")
    assert model.apply_chat_template(message, add_generation_prompt=True) == "<s>!?"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(FormatError, match="is not UTF-8"):
        model.apply_chat_template(message)


def test_the_command_answers_a_message(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="python -m pip install tokenizers")
    from test_gguf_tokenizers import PIECES, piece_metadata

    from rlx_models.gguf.tokenizer import tokenizer_of

    template = "{{ bos_token }}{% for m in messages %}{{ m.role[0] }} {{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}a{% endif %}"
    metadata = {**piece_metadata(), "tokenizer.chat_template": template}
    path = written_gguf(tmp_path / "m.gguf", "llama", "q8_0", metadata=metadata, vocab_size=len(PIECES))
    arguments = ["generate", str(path), "the bat", "--chat", "--system", "beth", "-n", "5"]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.output)
    tokenizer = tokenizer_of(metadata)
    ids = tokenizer.encode("<s>s bethu the bata", add_special_tokens=False).ids
    assert ids[0] == 1
    (tokens,) = generate(rlx.load(path), [ids], 5)
    assert (answer["prompt"], answer["text"]) == ("the bat", tokenizer.decode(tokens))
    plain = CliRunner().invoke(app, arguments)
    assert plain.output.splitlines()[0].startswith(answer["text"].split("\n")[0])
    refused = CliRunner().invoke(app, ["generate", str(path), "the", "--system", "beth"])
    assert refused.exit_code == 2
    assert "--system is for chats" in refused.output
