"""The commands of packaging/node and packaging/vm."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tests.node.build import build_deb, lint
from tests.node.cgroup import Cgroup
from tests.node.enter import ROOT, as_account, enter_command, on_terminal
from tests.node.errors import NodeError
from tests.node.host import SUITES, default_suite, note, require_root
from tests.node.machine import Machine
from tests.node.node import Node
from tests.node.state import NodeState
from tests.node.vm import ENTER, Vm

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(kind: type[Machine] = Node, arguments: Sequence[str] | None = None) -> int:
    options = (_vm_parser() if kind is Vm else _parser()).parse_args(arguments)
    options.kind = kind
    for signum in STOPPING:
        signal.signal(signum, _stop)
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        require_root()
        return act(options)
    except NodeError as error:
        print(f"node: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"node: {error}", file=sys.stderr)
        return 1


def _stop(signum: int, frame: FrameType | None) -> None:
    # Unwinds, so that the node is removed on the way out; another Ctrl-C must not interrupt that.
    for stopping in STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    sys.exit(128 + signum)


def _parser() -> argparse.ArgumentParser:
    description = "Throwaway nodes: a real systemd in namespaces, with this working tree's package installed."
    parser = argparse.ArgumentParser(prog="packaging/node", description=description)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_run(commands)

    build = commands.add_parser("build", help="build the Debian package only")
    build.set_defaults(act=_build)
    _add_suite(build)
    build.add_argument(
        "--output", type=Path, default=Path(), metavar="DIR", help="where it goes (default: here)"
    )
    build.add_argument("--lint", action="store_true", help="show what lintian says about it")

    enter = commands.add_parser("enter", help="run a command, or a shell, in a node that was kept")
    enter.set_defaults(act=_enter)
    enter.add_argument("name", metavar="NAME")
    enter.add_argument("command", nargs="*", default=["bash", "-l"], metavar="COMMAND")

    listing = commands.add_parser("list", help="list the nodes on this machine")
    listing.set_defaults(act=_list)

    remove = commands.add_parser("remove", help="end a node that was kept, and delete it")
    remove.set_defaults(act=_remove)
    remove.add_argument("name", metavar="NAME")
    return parser


def _vm_parser() -> argparse.ArgumentParser:
    description = (
        "Emulated machines: a whole Debian with its kernel, with this working tree's package installed."
    )
    parser = argparse.ArgumentParser(prog="packaging/vm", description=description)
    _add_run(parser.add_subparsers(required=True, metavar="COMMAND"))
    return parser


def _add_run(commands: Commands) -> None:
    run = commands.add_parser("run", help="build the package, boot a node with it, run a command there")
    run.set_defaults(act=_run)
    _add_suite(run)
    run.add_argument("--user", default="root", help="who runs the command: root (default), alice or bob")
    run.add_argument("--keep", action="store_true", help="leave the node running afterwards")
    run.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its arguments")


def _add_suite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=SUITES, default=default_suite(), help="default: %(default)s")


def _run(options: argparse.Namespace) -> int:
    kind: type[Machine] = options.kind
    with kind(options.suite, keep=options.keep) as node:
        command = _for_our_terminal(options.command)
        status = _pass_through(node.command_line(command, user=options.user, env=_terminal()))
        if options.keep:
            note(f"node {node.name} stays; enter it: packaging/node enter {node.name}")
            note(f"remove it: packaging/node remove {node.name}")
        return status


def _enter(options: argparse.Namespace) -> int:
    state = NodeState.named(options.name)
    if not state.init:
        raise NodeError(f"node {state.name} is off")
    command = _for_our_terminal(options.command)
    entry = state.folder / ENTER
    if entry.exists():
        words = as_account(command, ROOT, env=_terminal(), cwd=None)
        remote = shlex.join(os.fsdecode(word) for word in words)
        return _pass_through([*json.loads(entry.read_text()), f"exec {remote}"])
    cgroup = Cgroup.of_node(state.name).path
    return _pass_through(enter_command(state.init, cgroup, command, env=_terminal()))


def _build(options: argparse.Namespace) -> int:
    deb = build_deb(options.suite)
    options.output.mkdir(parents=True, exist_ok=True)
    print(shutil.copy(deb, options.output))
    if options.lint:
        sys.stdout.buffer.write(lint(options.suite, deb))
    return 0


def _list(options: argparse.Namespace) -> int:
    for state in NodeState.existing():
        print(state.name, "kept" if state.kept else "in use")
    return 0


def _remove(options: argparse.Namespace) -> int:
    state = NodeState.named(options.name)
    state.kill()
    state.remove()
    return 0


def _for_our_terminal(command: Sequence[str | bytes]) -> Sequence[str | bytes]:
    return on_terminal(command) if sys.stdin.isatty() and sys.stdout.isatty() else command


def _terminal() -> dict[str, str]:
    return {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}


def _pass_through(command: Sequence[str | bytes]) -> int:
    # Ctrl-C reaches the command too, and what it means is for the command to say.
    before = signal.signal(signal.SIGINT, lambda signum, frame: None)
    try:
        with subprocess.Popen(command) as process:
            try:
                status = process.wait()
            except BaseException:
                process.kill()
                raise
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status
