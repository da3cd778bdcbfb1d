"""A blueprint as a real Harbor task folder, the same bytes every time.

Invariant: a task's folder name follows from its family and key alone.
"""

import hashlib
import json
from pathlib import Path

from opengyre.core.errors import UserError
from opengyre.tasks.bundled.base import Blueprint

WORKDIR = "/app"
VERIFIER = Path(__file__).with_name("verifier.py")
TASK_TOML = """\
schema_version = "1.4"

[task]
name = "opengyre/{task_id}"
description = "Generated: family {family}."

[metadata]
family = "{family}"
difficulty = "easy"
reward_range = [0.0, 1.0]

[verifier]
timeout_sec = 60.0

[environment]
network_mode = "no-network"
"""
DOCKERFILE = f"FROM debian:stable-slim\nWORKDIR {WORKDIR}\nCOPY files/ ./\n"
TEST_SH = """\
#!/bin/bash
exec python3 -I -S -B "${0%/*}/check.py" "${VERIFIER_LOGS:-/logs/verifier}"
"""
NAME_DIGITS = 12
"""Hex digits of the key's hash in a task's id: 48 bits, so that 100,000 tasks do not collide."""


def task_id_of(blueprint: Blueprint) -> str:
    """FAMILY-HASH."""
    digest = hashlib.sha256(f"{blueprint.family}:{blueprint.key}".encode()).hexdigest()
    return f"{blueprint.family}-{digest[:NAME_DIGITS]}"


def write_task(blueprint: Blueprint, into: Path) -> Path:
    """Write the task's folder inside into, and return it. Raises UserError."""
    task_id = task_id_of(blueprint)
    folder = into / task_id
    expected = json.dumps({"f2p": blueprint.f2p, "p2p": blueprint.p2p}, indent=1)
    texts = {
        "task.toml": TASK_TOML.format(task_id=task_id, family=blueprint.family),
        "instruction.md": blueprint.instruction + "\n",
        "environment/Dockerfile": DOCKERFILE,
        "solution/solve.sh": f"#!/bin/bash\nset -e\n{blueprint.solution}",
        "tests/test.sh": TEST_SH,
        "tests/check.py": VERIFIER.read_text(),
        "tests/expected.json": expected + "\n",
    } | {f"environment/files/{path}": text for path, text in blueprint.files.items()}
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"to make the task folder {folder}", str(error), "choose another folder, or make room"
        ) from error
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if file.suffix == ".sh":
            file.chmod(0o755)
    return folder
