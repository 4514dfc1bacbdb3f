"""Untrusted folders: every file is read as the expected format or rejected by name, and nothing in it is executed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import CONFIGS, written

import rlx_core as rlx
from rlx_core.errors import BudgetError, FileError, FormatError, RlxError, UnsupportedError
from rlx_models import from_pretrained, generate

WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    "x",
    [],
    [1, "a"],
    {},
    {"a": 1},
    10**30,
    2**31,
    float("nan"),
    float("inf"),
    "1" * 100,
]
BESIDE = (
    *(
        "architectures",
        "rope_scaling",
        "rope_parameters",
        "hidden_act",
        "eos_token_id",
        "id2label",
        "tie_word_embeddings",
    ),
    *("layer_norm_eps", "rope_theta", "sliding_window", "head_dim", "layer_types"),
)


def changed(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the configuration with one value replaced by one of another type, in nested objects too."""
    for key in (*config, *BESIDE):
        for value in WRONG:
            yield {**copy.deepcopy(config), key: value}
            if isinstance(config.get(key), dict):
                for inner in config[key]:
                    yield {**copy.deepcopy(config), key: {**config[key], inner: value}}


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_with_an_invalid_value_is_read_or_rejected(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "m", CONFIGS[name])
    for config in changed(CONFIGS[name]):
        (folder / "config.json").write_text(json.dumps(config))
        try:
            with at_most(10):
                from_pretrained(folder)
        except RlxError:
            continue


def gpt2(folder: Path) -> Path:
    return written(folder, CONFIGS["gpt2"])


@pytest.mark.parametrize("number", ["1" + "0" * 5000, "1e400", "-Infinity"])
def test_unrepresentable_numbers_are_rejected(number: str, tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "m")
    text = (folder / "config.json").read_text().replace('"n_embd": 8', f'"n_embd": {number}')
    (folder / "config.json").write_text(text)
    with pytest.raises((UnsupportedError, FormatError)):
        from_pretrained(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are not available")
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json", "generation_config.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to itself"])
def test_special_files_are_rejected_without_reading(kind: str, name: str, tmp_path: Path) -> None:
    """A pipe has no writer, and a device no end."""
    folder = gpt2(tmp_path / "m")
    path = folder / name
    path.unlink(missing_ok=True)
    {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "link to itself": lambda: path.symlink_to(path),
    }[kind]()
    with at_most(10):
        if kind == "link to itself" and name in ("model.safetensors.index.json", "generation_config.json"):
            from_pretrained(folder)  # such a file need not be there, and it is not
            return
        with pytest.raises(FileError, match=name):
            from_pretrained(folder)


def test_files_may_be_symbolic_links_as_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    """A snapshot of the hub's cache consists of links to blobs. The target of a link must have the expected format."""
    blobs, snapshot = gpt2(tmp_path / "blobs"), tmp_path / "snapshot"
    snapshot.mkdir()
    for each in blobs.iterdir():
        (snapshot / each.name).symlink_to(each)
    assert from_pretrained(snapshot).name == "gpt2"
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(FormatError) as caught:
        from_pretrained(snapshot)
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize(
    "index",
    [
        [],
        1,
        None,
        {"weight_map": []},
        {"weight_map": {"w": 1}},
        {"weight_map": {"w": None}},
        {"weight_map": {"w": ["a"]}},
        {},
    ],
)
def test_index_of_wrong_types_is_rejected(index: Any, tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match="index"):
        from_pretrained(folder)


@pytest.mark.parametrize("name", ["..\\secret", "a/../../b", "C:\\b", "a\0b", "./model.safetensors", "x" * 5000])
def test_index_with_invalid_file_names_is_rejected(name: str, tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises((FormatError, FileError)):
        from_pretrained(folder)


def test_json_of_a_gigabyte_is_rejected(tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "m")
    os.truncate(folder / "config.json", 1 << 30)
    with pytest.raises(FormatError, match="more than"):
        from_pretrained(folder)


def test_files_larger_than_the_budget_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = gpt2(tmp_path / "m")
    (tmp_path / "rlx.toml").write_text("[budget]\nread = 1000\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BudgetError, match=r"budget\.read"):
        from_pretrained(folder)


def test_pickles_are_neither_read_nor_executed(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    folder = gpt2(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(FileError, match=r"pytorch_model\.bin") as caught:
        from_pretrained(folder)
    assert "pickle runs code" in str(caught.value)
    for suffix in ("bin", "pt", "pth", "pkl", "pickle", "ckpt", "npy", "npz", "joblib"):
        path = tmp_path / f"weights.{suffix}"
        path.write_bytes(pickle.dumps(Attack()))
        with pytest.raises(RlxError):
            rlx.load(path)
    for name in ("tokenizer.json", "tokenizer.model", "vocab.txt", "modeling_gpt2.py"):
        (folder / name).write_bytes(pickle.dumps(Attack()))
    gpt2(folder)
    assert from_pretrained(folder).name == "gpt2"
    assert not (tmp_path / "ran").exists()


def with_header(folder: Path, change: Any) -> Path:
    """Return a checkpoint whose safetensors header was changed."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header, sorted(header, key=lambda name: header[name]["data_offsets"]))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    return folder


def overlapping(header: dict[str, Any], names: list[str]) -> None:
    b = names[1]
    begin, end = header[b]["data_offsets"]
    header[b]["data_offsets"] = [begin - 4, end - 4]


def same_bytes(header: dict[str, Any], names: list[str]) -> None:
    a, b = next((a, b) for a in names for b in names if a != b and header[a]["shape"] == header[b]["shape"])
    header[b]["data_offsets"] = header[a]["data_offsets"]


def behind_the_end(header: dict[str, Any], names: list[str]) -> None:
    begin, end = header[names[-1]]["data_offsets"]
    header[names[-1]]["data_offsets"] = [begin + (1 << 40), end + (1 << 40)]


def negative(header: dict[str, Any], names: list[str]) -> None:
    header[names[0]]["data_offsets"] = [-8, 0]


def another_dtype(header: dict[str, Any], names: list[str]) -> None:
    header[names[0]]["dtype"] = "I32"


@pytest.mark.parametrize("change", [overlapping, same_bytes, behind_the_end, negative])
def test_tensors_with_invalid_offsets_are_rejected(change: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="safetensors"):
        from_pretrained(with_header(gpt2(tmp_path / "m"), change))


def test_integer_tensors_are_rejected(tmp_path: Path) -> None:
    folder = with_header(gpt2(tmp_path / "m"), another_dtype)
    with pytest.raises(FormatError, match="must be of floats"):
        from_pretrained(folder)


@pytest.mark.medium
@pytest.mark.parametrize(
    "key", ["eos_token_id", "suppress_tokens", "begin_suppress_tokens", "repetition_penalty", "pad_token_id"]
)
@pytest.mark.parametrize("value", ["x", -1, 10**30, [None], {"a": 1}, 1.5, [[1]]])
def test_options_of_generation_config_are_checked_in_generate(key: str, value: Any, tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "m")
    (folder / "generation_config.json").write_text(json.dumps({key: value}))
    try:
        texts = generate(from_pretrained(folder), [[1, 2]], 2)
    except RlxError:
        return
    assert len(texts) == 1
