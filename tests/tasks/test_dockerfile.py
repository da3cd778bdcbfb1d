"""COPY means what it means to Docker, as far as a work folder goes."""

from pathlib import Path

import pytest

from opengyre.tasks.dockerfile import read_dockerfile

TREE = ("src/main.py", "src/deep/x.txt", "a.txt", "b.txt")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def copies(environment: Path, *lines: str) -> dict[str, str]:
    file = environment / "Dockerfile"
    file.write_text("\n".join(["FROM x", "WORKDIR /app", *lines]))
    steps = read_dockerfile(file, None).copies
    return {str(step.target): str(step.source.relative_to(environment)) for step in steps}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("COPY src/ /app/", {".": "src"}),
        ("COPY src lib", {"lib": "src"}),
        ("COPY a.txt .", {"a.txt": "a.txt"}),
        ("COPY a.txt c.txt", {"c.txt": "a.txt"}),
        ("COPY a.txt sub/", {"sub/a.txt": "a.txt"}),
        ("COPY *.txt sub/", {"sub/a.txt": "a.txt", "sub/b.txt": "b.txt"}),
        ("COPY --chown=1:1 a.txt b.txt /app", {"a.txt": "a.txt", "b.txt": "b.txt"}),
        ('COPY ["a.txt", "/app/c d.txt"]', {"c d.txt": "a.txt"}),
        ("copy a.txt \\\n  c.txt", {"c.txt": "a.txt"}),
        ("# COPY a.txt c.txt", {}),
        ("COPY --from=build a.txt .", {}),
    ],
)
def test_copy(environment: Path, line: str, wanted: dict[str, str]) -> None:
    assert copies(environment, line) == wanted


def test_the_last_stage_and_the_last_workdir_count(environment: Path) -> None:
    file = environment / "Dockerfile"
    file.write_text(
        "FROM x\nWORKDIR /one\nCOPY a.txt .\nFROM y\nWORKDIR /two\nCOPY b.txt sub/\nWORKDIR sub\n"
    )
    recipe = read_dockerfile(file, None)
    assert recipe.workdir == "/two/sub"
    assert [str(step.target) for step in recipe.copies] == ["b.txt"]
