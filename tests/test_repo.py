"""The repository itself: linters, types, import directions, the habits that CONTRIBUTING.md names."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sysjobs
from tests.node import Node
from tests.node.build import tree_files

REPO = Path(__file__).resolve().parent.parent

# Who may import whom, lowest layer first, as in ARCHITECTURE.md: a module may import its own group, which is
# a set here, and every layer below. "x.*" is a package with all that is in it.
LAYERS: dict[str, list[set[str]]] = {
    "ground": [
        {
            "sysjobs",
            "sysjobs.conditions",
            "sysjobs.config",
            "sysjobs.environment",
            "sysjobs.devices",
            "sysjobs.errors",
            "sysjobs.events",
            "sysjobs.indices",
            "sysjobs.jobs",
            "sysjobs.limits",
            "sysjobs.payload",
            "sysjobs.resources",
            "sysjobs.retry",
            "sysjobs.selectors",
            "sysjobs.signalnames",
            "sysjobs.sweep",
            "sysjobs.transition",
            "sysjobs.wire",
        },
    ],
    "core": [
        {
            "sysjobs.engine",
            "sysjobs.engine.evidence",
            "sysjobs.engine.oom",
            "sysjobs.engine.outcome",
            "sysjobs.engine.requests",
            "sysjobs.engine.script",
            "sysjobs.engine.signals",
            "sysjobs.engine.units",
            "sysjobs.adjustment",
            "sysjobs.answer_parts",
            "sysjobs.answers",
            "sysjobs.batch",
            "sysjobs.endings",
            "sysjobs.fields",
            "sysjobs.naming",
            "sysjobs.ports",
            "sysjobs.protocol",
            "sysjobs.queue",
            "sysjobs.reconcile",
            "sysjobs.scheduling.*",
            "sysjobs.starts",
            "sysjobs.strangers",
            "sysjobs.submission",
            "sysjobs.tasks",
            "sysjobs.timers",
            "sysjobs.views",
            "sysjobs.watchers",
        },
    ],
    "edges": [
        {"sysjobs.caller", "sysjobs.client", "sysjobs.connection", "sysjobs.context", "sysjobs.versions"},
        {"sysjobs.capacity", "sysjobs.gpus"},
        {"sysjobs.service"},
        {"sysjobs.listener"},
        {"sysjobs.room"},
        {"sysjobs.drain"},
        {
            "sysjobs.engine.accounting",
            "sysjobs.engine.boot",
            "sysjobs.engine.bus",
            "sysjobs.engine.cgroups",
            "sysjobs.engine.control",
            "sysjobs.engine.details",
            "sysjobs.engine.enforcement",
            "sysjobs.engine.files",
            "sysjobs.engine.journal",
            "sysjobs.engine.kept",
            "sysjobs.engine.systemd",
        },
        {"sysjobs.introspection", "sysjobs.peer", "sysjobs.server", "sysjobs.turns"},
        {"sysjobs.store.*"},
    ],
    # Where requests come in from one edge and go out to the others.
    "handlers": [
        {
            "sysjobs.handlers",
            "sysjobs.changes",
            "sysjobs.doctor",
            "sysjobs.listing",
            "sysjobs.nodes",
            "sysjobs.reports",
            "sysjobs.selection",
        },
    ],
    "entry": [
        {"sysjobs.__main__", "sysjobs.cli.*"},
        {"sysjobs.daemon", "sysjobs.rescue", "sysjobs.sysjobsd"},
    ],
}
NOT_FOR_THE_CLI = {
    "sysjobs.daemon",
    "sysjobs.engine.*",
    "sysjobs.handlers",
    "sysjobs.introspection",
    "sysjobs.listing",
    "sysjobs.peer",
    "sysjobs.reports",
    "sysjobs.rescue",
    "sysjobs.selection",
    "sysjobs.server",
    "sysjobs.store.*",
    "sysjobs.sysjobsd",
    "sysjobs.turns",
}
# What isn't Python's own, or is I/O of a kind that has one place, and who alone may import it.
OWNERS = {
    "pystemd": {"sysjobs.engine.bus"},
    "sqlite3": {"sysjobs.store.*"},
    "asyncio": {"sysjobs.daemon", "sysjobs.listener", "sysjobs.server", "sysjobs.sysjobsd", "sysjobs.turns"},
    "click": {"sysjobs.cli.*"},
    "tabulate": {"sysjobs.cli.*"},
    "psutil": {"sysjobs.capacity"},
}
# What reaches outside the process, or asks the time. Core and ground are told such things.
IO_MODULES = {"select", "selectors", "socket", "subprocess", "threading", "time"}

MAX_LINES = 400
WORKPLACE = re.compile(r"(?<![\w.])/(?:work|opt|Users)/|/root/(?:\.|venv)")
REGISTRY = re.compile(
    r"\b(?:pypi|pythonhosted|npmjs|anaconda)\.(?:org|com|io)\b|\b(?:deb|security|snapshot|ftp)\.debian\.org"
)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def python_files(*tops: str) -> list[Path]:
    return [path for path in tree_files() if path.suffix == ".py" and (not tops or path.parts[0] in tops)]


def text_files() -> Iterator[tuple[Path, str]]:
    for path in tree_files():
        if (REPO / path).is_file():
            yield path, (REPO / path).read_text(errors="surrogateescape")


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse((REPO / path).read_bytes(), path)


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in python_files("sysjobs")}


def imports_of(module: str) -> set[str]:
    """The modules that a module of ours imports, wherever in it, by their full names."""
    found: set[str] = set()
    for node in ast.walk(syntax(MODULES[module])):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: imports are absolute here"
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return found


def covered(module: str, names: set[str]) -> bool:
    parents = module.split(".")
    packages = {".".join([*parents[:count], "*"]) for count in range(1, len(parents) + 1)}
    return module in names or not packages.isdisjoint(names)


def place(module: str) -> tuple[int, set[str]]:
    """The module's layer, counted from the ground, and its group."""
    for height, groups in enumerate(LAYERS.values()):
        for group in groups:
            if covered(module, group):
                return height, group
    raise AssertionError(f"{module} has no layer: give it one here and in ARCHITECTURE.md")


def run_tool(*command: str) -> None:
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[:6])}\n{done.stdout}{done.stderr}"


def test_ruff() -> None:
    run_tool(sys.executable, "-m", "ruff", "check", "--quiet", "--output-format", "concise", ".")


def test_mypy() -> None:
    run_tool(sys.executable, "-m", "mypy")


def test_shell_scripts() -> None:
    scripts = [
        str(path)
        for path, text in text_files()
        if path.suffix == ".sh" or re.match(r"#!.*\b(?:sh|bash)\n", text)
    ]
    assert len(scripts) > 4
    assert shutil.which("shellcheck"), "shellcheck is missing here; packaging/test installs it"
    run_tool("shellcheck", "--external-sources", *scripts)


def test_the_architecture_page_names_every_module() -> None:
    text = (REPO / "ARCHITECTURE.md").read_text()
    for path in MODULES.values():
        inner = path.relative_to("sysjobs")
        names = [inner.as_posix(), *(f"{folder}/" for folder in inner.parents[:-1])]
        said = inner.stem.startswith("__") or any(f"`{name}`" in text for name in names)
        assert said, f"ARCHITECTURE.md doesn't say what {path} is"


@pytest.mark.parametrize("module", MODULES)
def test_import_directions(module: str) -> None:
    layer, group = place(module)
    for name in sorted(imports_of(module) & MODULES.keys()):
        assert place(name)[0] < layer or covered(name, group), f"{module} may not import {name}"


@pytest.mark.parametrize("module", MODULES)
def test_foreign_imports(module: str) -> None:
    layer = list(LAYERS)[place(module)[0]]
    for name in sorted(imports_of(module) - MODULES.keys()):
        top = name.partition(".")[0]
        if top in OWNERS:
            assert covered(module, OWNERS[top]), f"{module} imports {name}; that is for {OWNERS[top]}"
        else:
            assert top in sys.stdlib_module_names, f"{module} imports {name}, which sysjobs doesn't depend on"
        if layer in ("ground", "core"):
            assert top not in IO_MODULES, f"{module} imports {name}, but the {layer} does no I/O"


def test_the_command_line_stays_light() -> None:
    """Nothing that the CLI imports brings the daemon's parts in, however far down."""
    waiting = [name for name in MODULES if covered(name, {"sysjobs.cli.*"})]
    seen = set(waiting)
    while waiting:
        module = waiting.pop()
        for name in (imports_of(module) & MODULES.keys()) - seen:
            assert not covered(name, NOT_FOR_THE_CLI), f"the CLI reaches {name} through {module}"
            seen.add(name)
            waiting.append(name)


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_every_module_says_what_it_is(path: Path) -> None:
    empty = (REPO / path).stat().st_size == 0
    assert empty or ast.get_docstring(syntax(path)), f"{path} has no docstring"


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_modules_are_short(path: Path) -> None:
    lines = (REPO / path).read_text().count("\n")
    assert lines <= MAX_LINES, f"{path} has {lines} lines: split it by subject"


@pytest.mark.parametrize("path", python_files("tests"), ids=str)
def test_tests_wait_on_conditions(path: Path) -> None:
    if path == Path("tests/waiting.py"):
        return
    for node in ast.walk(syntax(path)):
        match node:
            case ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep"):
                pytest.fail(f"{path}:{node.lineno}: sleeps; wait for an event or a condition instead")
            case ast.ImportFrom(module="time" | "asyncio", names=names):
                assert "sleep" not in [alias.name for alias in names], f"{path}:{node.lineno}: imports sleep"


def test_nothing_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path}: {match[0]}"
        for path, text in text_files()
        if path.name != Path(__file__).name
        for pattern in (WORKPLACE, REGISTRY, UNFINISHED)
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_one_version() -> None:
    changelog = re.search(r"^## \[(.+?)\]", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    debian = re.match(r"sysjobs \((?:\d+:)?(.+?)(?:-[^-]+)?\)", (REPO / "debian" / "changelog").read_text())
    assert changelog
    assert debian
    assert changelog[1] == debian[1] == sysjobs.__version__


def test_units_are_valid(node: Node) -> None:
    units = [path.name for path in (REPO / "units").iterdir() if path.suffix != ".conf"]
    done = node.run(["systemd-analyze", "verify", *units], check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_what_happens_when_is_tested() -> None:
    """The tests that stand behind the lines of the README's table are there."""
    _, _, table = (REPO / "README.md").read_text().partition("## What happens when")
    lines = [line for line in table.partition("\n## ")[0].splitlines() if "`test_" in line]
    named = re.findall(r"`(test_\w+)`", "\n".join(lines))
    assert len(lines) >= 30
    there = "".join(path.read_text() for path in (REPO / "tests").glob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in there] == []
