"""The Dockerfile, read as a builder reads it: nothing it names is missing, nothing runs as root.

No image can be built or pulled by a test; this does not replace a build.
"""

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from trimtab.core import split_address
from trimtab.serve import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
KNOWN = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN"),
    *("STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and rest of each, comments left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0].upper(), line.partition(" ")[2].strip()) for line in joined.splitlines() if line]


@pytest.fixture(scope="module")
def told(packaging: Path) -> list[tuple[str, str]]:
    return instructions((packaging / "Dockerfile").read_text(encoding="utf-8"))


def of(told: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for each, rest in told if each == name]


def test_it_has_two_stages_from_one_pinned_base(told: list[tuple[str, str]]) -> None:
    assert {name for name, _ in told} <= KNOWN
    assert told[0][0] == "FROM"
    images = [rest.split()[0] for rest in of(told, "FROM")]
    assert len(images) == 2
    assert len(set(images)) == 1
    assert re.fullmatch(r"python:3\.1\d\.\d+-slim-\w+", images[0])


def test_everything_copied_is_there_and_sent_to_the_builder(
    packaging: Path, told: list[tuple[str, str]]
) -> None:
    ignore = (packaging / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line[1:] for line in ignore if line.startswith("!")]
    stages = {rest.split()[2] for rest in of(told, "FROM") if " AS " in rest}
    copied = []
    for rest in of(told, "COPY"):
        *sources, _ = rest.split()
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in stages
            continue
        copied += sources
    assert sorted(copied) == sorted(sent)
    for source in copied:
        assert (ROOT / source).exists()
        assert not any(fnmatch(source, line) for line in ignore if line.startswith("**"))


def test_what_building_reads_is_copied(told: list[tuple[str, str]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = " ".join(of(told, "COPY")).split()
    for file in ("pyproject.toml", project["readme"], *project["license-files"], "src"):
        assert file in copied


def test_the_extras_it_installs_exist_and_are_those_it_needs(told: list[tuple[str, str]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = [rest.partition("=")[2].split(",") for rest in of(told, "ARG") if rest.startswith("EXTRAS=")]
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"serve", "postgres", "kubernetes"} <= set(extras)


def test_it_runs_as_a_user_who_is_not_root(told: list[tuple[str, str]]) -> None:
    (user,) = of(told, "USER")
    number = int(user.split(":")[0])
    assert number > 0
    made = " ".join(of(told, "RUN"))
    assert f"--uid {number}" in made
    after = [name for name, _ in told[[name for name, _ in told].index("USER") :]]
    assert "RUN" not in after
    assert "COPY" not in after


def test_what_it_starts_and_asks_is_what_the_command_accepts(
    told: list[tuple[str, str]], accepts: Callable[[Sequence[str]], None]
) -> None:
    (entry,), (default,), (health,) = (of(told, name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    assert json.loads(entry) == ["trimtab"]
    accepts(json.loads(default))
    asked = json.loads(health.partition("CMD ")[2])
    assert asked[0] == "trimtab"
    accepts(asked[1:])


def test_the_ports_are_those_of_the_settings(told: list[tuple[str, str]]) -> None:
    (ports,) = of(told, "EXPOSE")
    agents = split_address(Settings().agents_listen)[1]
    assert [int(port) for port in ports.split()] == [split_address(Settings().listen)[1], agents, agents + 1]


def test_a_misspelt_flag_would_be_noticed(accepts: Callable[[Sequence[str]], None]) -> None:
    with pytest.raises(pytest.fail.Exception, match="runing"):
        accepts(["doctor", "--runing"])
    with pytest.raises((AssertionError, pytest.fail.Exception), match="docter"):
        accepts(["docter"])
