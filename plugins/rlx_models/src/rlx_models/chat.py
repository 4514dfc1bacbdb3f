"""Templates of chats: `ChatTemplate.render(messages)` is the text that a model continues, by the template of its checkpoint.

Templates come with checkpoints and are not trusted: they run in Jinja's sandbox, with limits of time and of the sizes of values,
and with the methods and filters that chats need.

Source:
    Transformers 5.24, utils/chat_template_utils.py: the variables, filters and functions that templates use.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final

from attrs import field, frozen

from rlx_core.errors import ConfigError, Fact, FormatError, PluginError
from rlx_models.checkpoints.folder import read_json

MAX_STEPS: Final = 1_000_000
"""Lines of the compiled template that run; a message takes about ten."""
MAX_SIZE: Final = 1 << 22
"""Characters of a text and elements of a list; the longest contexts of models have fewer."""
MAX_INTEGER: Final = 1 << 64
MAX_SECONDS: Final = 10.0
FIRST_SAFE_VERSION: Final = (3, 1, 6)
"""Earlier versions of Jinja have known escapes from the sandbox."""

TEXT_METHODS: Final = frozenset(
    "capitalize count endswith find index isalnum isalpha isdigit islower isnumeric isspace istitle isupper join lower lstrip "  # noqa: SIM905
    "partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip title "
    "upper".split()
)
"""Methods of texts that templates may call; absent ones (`format`, `center`, `zfill`) make texts of any length."""
FILTERS: Final = frozenset(
    "abs batch capitalize count d default e escape first float int items join last length list lower map reject rejectattr "  # noqa: SIM905
    "replace reverse round safe select selectattr slice string title tojson trim upper wordcount".split()
)
"""Filters that templates may use; absent ones compare or add up elements of any size."""
FORMAT_WIDTH: Final = re.compile(r"%[^A-Za-z%]*\d{3}")


@frozen
class ChatTemplate:
    """The template of a model's chats.

    Attributes:
        source: The template, in Jinja's language.
        tokens: Texts of tokens by name (`bos_token`, `eos_token`), which templates read.
    """

    source: str = field(repr=False)
    tokens: Mapping[str, str] = field(factory=dict)

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False, **variables: Any
    ) -> str:
        """Return the text of a chat, with the tokens that begin it: a tokenizer must not add them again.

        Args:
            messages: `{"role": "user", "content": "text"}` and so on.
            add_generation_prompt: Whether the text ends with the beginning of an answer.
            variables: Further variables of the template.

        Raises:
            PluginError: The package jinja2 is not installed, or too old.
            ConfigError: A message is no mapping, or the template refuses the messages.
            FormatError: The template is no valid template, or does what templates may not do, or takes too long.

        >>> from rlx_models.chat import ChatTemplate
        >>> template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        >>> template.render([{"role": "user", "content": "Hello"}])
        '<user>Hello'
        """
        if isinstance(messages, str | Mapping) or not all(isinstance(each, Mapping) for each in messages):
            raise ConfigError("chat: messages are a list of mappings", hint='[{"role": "user", "content": "Hello"}]')
        jinja2 = import_jinja2()
        try:
            environment = _environment(jinja2)
            template = environment.from_string(self.source)
            with _limited_steps():
                text = template.render(
                    messages=[dict(each) for each in messages],
                    add_generation_prompt=add_generation_prompt,
                    **{"tools": None, "documents": None, **self.tokens, **variables},
                )
        except RefusedMessagesError as error:
            raise ConfigError(f"chat: the template refuses the messages: {error!s:.200}") from None
        except Exception as error:  # noqa: BLE001 templates raise whatever their operations raise
            kind = type(error).__name__
            raise FormatError(f"chat: the template cannot be rendered ({kind}: {error!s:.200})") from None
        return str(text)


class RefusedMessagesError(Exception):
    """Raised by templates (`raise_exception`)."""


class LimitError(Exception):
    """A template takes more steps or memory than templates may take."""


def import_jinja2() -> Any:
    """Return the package jinja2.

    Raises:
        PluginError: It is not installed, or has known escapes from its sandbox.
    """
    hint = "python -m pip install 'rlx-models[chat]'"
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError:
        raise PluginError("chat: the package jinja2 is not installed", hint=hint) from None
    version = tuple(int(part) for part in re.findall(r"\d+", jinja2.__version__)[:3])
    if version < FIRST_SAFE_VERSION:
        raise PluginError(f"chat: jinja2 {jinja2.__version__} has known escapes from its sandbox", hint=hint)
    return jinja2


# ---------------------------------------------------------------------------------------------- limits


@contextmanager
def _limited_steps() -> Iterator[None]:
    """Run a template inside.

    Raises:
        LimitError: It runs more than `MAX_STEPS` lines, or longer than `MAX_SECONDS`.
    """
    steps, start = 0, time.monotonic()

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        if steps > MAX_STEPS or time.monotonic() - start > MAX_SECONDS:
            raise LimitError(f"it takes more than {MAX_STEPS:,} steps or {MAX_SECONDS:g} s")
        return count

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return count if frame.f_code.co_filename == "<template>" else None

    outer = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(outer)


def limited(value: Any) -> Any:
    """Return a value whose size is allowed.

    Raises:
        LimitError: It is not.
    """
    is_sized = isinstance(value, str | bytes | list | tuple)
    if is_sized and len(value) > MAX_SIZE:
        raise LimitError(f"a value has more than {MAX_SIZE:,} elements")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise LimitError("an integer has more than 64 bits")
    return value


def size_of(value: Any) -> int:
    """Return the number of characters that the text of a value has, and more than `MAX_SIZE` if it has more.

    Lists may contain a list several times, so that the text grows faster than the memory.
    """
    total, left = 0, [value]
    while left and total <= MAX_SIZE:
        each = left.pop()
        total += 8
        if isinstance(each, str):
            total += len(each)
        elif isinstance(each, Mapping):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
            left += each
        elif not isinstance(each, int | float | Iterator | None) and not type(each).__module__.startswith(
            "jinja2.runtime"
        ):
            return MAX_SIZE + 1
    return total


def expect_size(size: int) -> None:
    """Require that a text or list with a number of elements may be made.

    Raises:
        LimitError: It may not.
    """
    if size > MAX_SIZE:
        raise LimitError(f"a value has more than {MAX_SIZE:,} elements")


def multiplied(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            expect_size(len(sequence) * count)
    return limited(left * right)


def added(left: Any, right: Any) -> Any:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        expect_size(len(left) + len(right))
    return limited(left + right)


def remainder(left: Any, right: Any) -> Any:
    if not isinstance(left, int | float):
        raise LimitError("formats of texts (%) are not available")
    return left % right


def power(left: Any, right: Any) -> Any:
    if (
        not isinstance(left, int | float)
        or not isinstance(right, int | float)
        or abs(right) > 64
        or abs(left) > MAX_SIZE
    ):
        raise LimitError("a power has a base or an exponent that is too large")
    return limited(left**right)


OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "*": multiplied,
    "+": added,
    "%": remainder,
    "**": power,
}


def replaced(text: str, old: str, new: str, count: int = -1) -> str:
    """Return `text.replace(old, new, count)` if it is not too long."""
    text, old, new = str(text), str(old), str(new)
    expect_size(len(text) + (text.count(old) + 1) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def joined(separator: str, values: Any) -> str:
    """Return `separator.join(values)` if it is not too long."""
    items = list(values)
    expect_size(size_of(items) + len(separator) * len(items))
    return str(separator).join(map(str, items))


# ---------------------------------------------------------------------------------------------- Jinja


def _environment(jinja2: Any) -> Any:
    """Return the environment in which templates are compiled and run."""
    sandbox = jinja2.sandbox

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]  # jinja2 is imported here
        intercepted_binops = frozenset(OPERATORS)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            return OPERATORS[operator](left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            is_known = attr in TEXT_METHODS if isinstance(obj, str) else True
            return is_known and bool(super().is_safe_attribute(obj, attr, value))

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            raise sandbox.SecurityError(f"{attribute!r:.40} of a {type(obj).__name__} is not available to templates")

        def wrap_str_format(self, value: Any) -> Any:
            if super().wrap_str_format(value) is not None:
                raise sandbox.SecurityError("formats of texts are not available to templates")

        def call(self, context: Any, function: Any, *args: Any, **named: Any) -> Any:
            for each in (*args, *named.values()):
                if isinstance(each, int) and abs(each) > sandbox.MAX_RANGE:
                    raise LimitError(f"an argument is {each!r:.40}, and {sandbox.MAX_RANGE} is the limit")
            text = getattr(function, "__self__", None)
            if isinstance(text, str) and function.__name__ == "replace":
                return replaced(text, *args, **named)
            if isinstance(text, str) and function.__name__ == "join":
                return joined(text, *args)
            return limited(super().call(context, function, *args, **named))

        def getitem(self, obj: Any, argument: Any) -> Any:
            return super().getitem(obj, bounded(argument))

        def bounded(self, value: Any) -> Any:
            return bounded(value)

        def concatenated(self, values: Sequence[Any]) -> str:
            """Return the texts of values as one (`~`)."""
            expect_size(size_of(list(values)))
            return "".join(map(str, values))

    class Generator(jinja2.compiler.CodeGenerator):  # type: ignore[misc]  # as above
        def visit_Concat(self, node: Any, frame: Any) -> None:
            self.write("environment.concatenated((")
            for each in node.nodes:
                self.visit(each, frame)
                self.write(", ")
            self.write("))")

        # Comparing or hashing a list that contains one several times takes longer than making it.

        def visit_Compare(self, node: Any, frame: Any) -> None:
            self.write("(")
            self._bounded(node.expr, frame)
            for each in node.ops:
                self.visit(each, frame)
            self.write(")")

        def visit_Operand(self, node: Any, frame: Any) -> None:
            self.write(f" {jinja2.compiler.operators[node.op]} ")
            self._bounded(node.expr, frame)

        def visit_Dict(self, node: Any, frame: Any) -> None:
            self.write("{")
            for each in node.items:
                self._bounded(each.key, frame)
                self.write(": ")
                self.visit(each.value, frame)
                self.write(", ")
            self.write("}")

        def _bounded(self, node: Any, frame: Any) -> None:
            self.write("environment.bounded(")
            self.visit(node, frame)
            self.write(")")

    class GenerationTag(jinja2.ext.Extension):  # type: ignore[misc]  # as above
        """`{% generation %}`, which marks answers in training; here, the text inside."""

        tags = {"generation"}  # noqa: RUF012 as Jinja declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    Environment.code_generator_class = Generator
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, GenerationTag],
        finalize=bounded,
    )
    environment.filters = {name: each for name, each in environment.filters.items() if name in FILTERS}
    environment.filters |= {"tojson": _json, "replace": replaced, "join": _join_filter, "string": _text}
    environment.tests = {name: _bounded_test(each) for name, each in environment.tests.items()}
    environment.globals = {
        "range": environment.globals["range"],
        "namespace": environment.globals["namespace"],
        "dict": _mapping,
        "raise_exception": _refuse,
        "strftime_now": _formatted_time,
    }
    return environment


def bounded(value: Any) -> Any:
    """Return a value whose text is not too long, so that it can be printed, compared and hashed.

    Raises:
        LimitError: It is.
    """
    expect_size(size_of(value))
    return value


def _bounded_test(test: Any) -> Any:
    """Return a test of Jinja that compares values which are not too large."""

    @wraps(test)
    def run(*args: Any) -> Any:
        return test(*(each if type(each).__module__.startswith("jinja2.") else bounded(each) for each in args))

    return run


def _text(value: Any) -> str:
    return str(bounded(value))


def _mapping(*args: Any, **named: Any) -> dict[Any, Any]:
    return dict(*args, **named)


def _formatted_time(pattern: str) -> str:
    if len(pattern) > 1000 or FORMAT_WIDTH.search(pattern):
        raise LimitError("a format of times is too long")
    return datetime.now().strftime(pattern)


def _refuse(message: str) -> Any:
    raise RefusedMessagesError(message)


def _join_filter(values: Any, d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = [each[attribute] for each in values]
    return joined(str(d), values)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    expect_size(size_of(value) * (1 if indent is None else 1 + min(abs(int(indent)), MAX_SIZE)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


# ---------------------------------------------------------------------------------------------- files


def template_of_folder(folder: Path) -> ChatTemplate | None:
    """Return the template of a checkpoint folder: `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`.

    Raises:
        FormatError: A file is damaged.
    """
    config = read_json(folder, "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    source: Any = config.get("chat_template")
    if isinstance(source, list):
        named = [each for each in source if isinstance(each, dict) and each.get("name") == "default"]
        source = named[0].get("template") if named else None
    if (folder / "chat_template.jinja").is_file():
        try:
            source = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"chat_template.jinja: is not UTF-8 ({error.reason})", Fact("folder", folder)) from None
    if not isinstance(source, str):
        return None
    tokens = {name: token_text(value) for name, value in config.items() if name.endswith("_token")}
    return ChatTemplate(source, {name: text for name, text in tokens.items() if text is not None})


def template_of_metadata(metadata: Mapping[str, Any]) -> ChatTemplate | None:
    """Return the template of a GGUF file (`tokenizer.chat_template`)."""
    source, tokens = metadata.get("tokenizer.chat_template"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(source, str):
        return None
    texts = tokens if isinstance(tokens, list) else []
    named = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(index, int) and 0 <= index < len(texts):
            named[name] = str(texts[index])
    return ChatTemplate(source, named)


def token_text(value: Any) -> str | None:
    """Return the text of a token in `tokenizer_config.json`: a text, or an object with `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
