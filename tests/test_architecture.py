"""The house keeps its plan: layers, front doors, a light entrance, a clean desk."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "trimtab"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check"),
        ("ruff", "format", "--check"),
        ("mypy",),
        ("lint-imports",),
        ("bandit", "-q", "-c", "pyproject.toml", "-r", "src", "benchmarks/src"),
        ("pip", "check"),
    ],
    ids=" ".join,
)
def test_the_checkers_find_nothing(command: tuple[str, ...]) -> None:
    program = str(Path(sys.executable).parent / command[0])
    result = run(program, *command[1:])
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_exception_of_the_security_checker_names_its_rule_and_why() -> None:
    bare = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in SOURCE.rglob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "# nosec" in line and not re.search(r"# nosec B\d{3} # \w.{8,}", line)
    ]
    assert bare == []


def test_what_the_tests_need_is_pinned_exactly() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    itself, *needed = told["optional-dependencies"]["test"]
    assert re.fullmatch(r"trimtab\[[a-z,]+\]", itself)
    for requirement in needed:
        name, _, version = requirement.partition("==")
        assert re.fullmatch(r"\d[\w.]*", version), requirement
        assert metadata.version(name.partition("[")[0]) == version, requirement


def test_nobody_reaches_past_a_front_door() -> None:
    trespasses = []
    for file in SOURCE.rglob("*.py"):
        own = file.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                parts = module.split(".")
                if parts[0] == "trimtab" and len(parts) > 2 and parts[1] != own:
                    trespasses.append(f"{file.relative_to(ROOT)}: {module}")
    assert trespasses == []


def test_the_entrance_is_light() -> None:
    heavy = ("numpy", "scipy", "sqlalchemy", "torch", "plotly", "rich")
    code = f"import sys, trimtab; print([m for m in {heavy!r} if m in sys.modules])"
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


def test_no_name_of_a_front_door_is_shadowed_by_a_module() -> None:
    """Importing a submodule binds its name in the package, so a front door must not use that name."""
    shadowed = []
    for stub in SOURCE.rglob("__init__.pyi"):
        modules = {path.stem for path in stub.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            assert isinstance(node, ast.ImportFrom)
            if node.module is not None:  # a module that is offered as a whole is meant
                shadowed += [f"{stub}: {alias.name}" for alias in node.names if alias.name in modules]
    assert shadowed == []


def test_every_name_of_a_front_door_exists() -> None:
    for stub in SOURCE.rglob("__init__.pyi"):
        package = ".".join(stub.relative_to(SOURCE.parent).parent.parts)
        module = import_module(package)
        for name in module.__all__:
            assert hasattr(module, name), f"{package}.{name}"
