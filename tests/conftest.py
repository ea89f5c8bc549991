"""The nodes that tests run on, what the report says when one fails, and what couldn't run here."""

from __future__ import annotations

import os
import platform
import random
import re
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.node import Machine, Node, NodeError, Vm
from tests.node.host import SUITES

# The same examples each time where nobody could look into a surprise; no deadline on a busy machine.
settings.register_profile("sysjobs", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("sysjobs")

STARTED = pytest.StashKey[float]()
BOOTED = "booted"
"""A property of tests: the machine that they ran on. What other properties say is shown in the summary."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite",
        action="append",
        choices=SUITES,
        default=[],
        help="the Debian to boot; may be repeated (default: each)",
    )
    parser.addoption(
        "--crashes",
        type=int,
        default=0,
        help="how often the daemon dies on each Debian (default and least: at every step once, some 1,000)",
    )
    parser.addoption(
        "--messages", type=int, default=10_000, help="how many a fuzzed daemon gets (default: %(default)s)"
    )
    parser.addoption("--seed", type=int, help="of what is random there (default: another one each time)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "suite" in metafunc.fixturenames:
        suites = metafunc.config.getoption("--suite") or list(SUITES)
        metafunc.parametrize("suite", suites, scope="session")


LONGEST = ("tests/test_vm", "tests/test_crash")
"""What takes longest begins first, and the rest goes on beside it."""


PARTS = "bdims"
"""The first letters of the modules with which another node begins, where several processes run the tests."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(name) for name in LONGEST])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Where several processes run the tests, those that share a machine share the process too."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class ByMachine(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            suite = re.search(rf"[\[-]({'|'.join(SUITES)})\b", nodeid)
            if suite is None:
                return nodeid
            if nodeid.startswith("tests/test_vm"):
                # One emulated machine after the other: each takes all processors that it can get.
                return "vm"
            if nodeid.startswith("tests/test_crash"):
                return f"{suite[1]} crash"
            # Several nodes: the less each has to do, the shorter is the last one waited for.
            part = sum(nodeid >= f"tests/test_{letter}" for letter in PARTS)
            return f"{suite[1]} node {part + 1}"

    return ByMachine(config, log)


@pytest.fixture
def seed(pytestconfig: pytest.Config, record_property: Callable[[str, object], None]) -> int:
    chosen: int | None = pytestconfig.getoption("--seed")
    value = random.randrange(1 << 32) if chosen is None else chosen
    record_property("seed", value)
    return value


@pytest.fixture(scope="session")
def node(suite: str) -> Iterator[Node]:
    """One node for all tests of a suite. A test that needs a clean one makes its own Node."""
    if os.geteuid() != 0:
        pytest.skip("booting a node needs root")
    with Node(suite) as node:
        # A daemon that doesn't start fails all tests here, not each by itself.
        node.run(["sysjobs", "queue"])
        yield node


@pytest.fixture(scope="module")
def own_node(suite: str) -> Iterator[Node]:
    """One for a module whose tests leave a node as no other test wants to find it."""
    if os.geteuid() != 0:
        pytest.skip("booting a node needs root")
    with Node(suite) as node:
        yield node


@pytest.fixture(scope="session")
def vm(suite: str) -> Iterator[Vm]:
    """One emulated machine for all tests of a suite, which may reboot it."""
    if os.geteuid() != 0 or platform.machine() != "x86_64":
        pytest.skip("an emulated machine needs root, and an x86-64 machine to run on")
    with Vm(suite) as vm:
        yield vm


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[STARTED] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, Machine):
            report.user_properties.append((BOOTED, f"{value.suite} ({'emulated' if name == 'vm' else name})"))
            if report.failed:
                report.sections.append((f"Journal of {name} since the test began", _journal(value, item)))
    return report


def _journal(machine: Machine, item: pytest.Item) -> str:
    try:
        return machine.journal(since=item.stash[STARTED])
    except NodeError as error:
        return str(error)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("nodes")
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    said = [(report.nodeid, name, value) for report in reports for name, value in report.user_properties]
    booted = {str(value) for _, name, value in said if name == BOOTED}
    terminalreporter.line(f"Booted: {', '.join(sorted(booted)) or 'none'}.")
    for test, name, value in said:
        if name != BOOTED:
            terminalreporter.line(f"{test}: {name}: {value}")
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.line(f"Could not run here: {report.nodeid}: {reason}")
