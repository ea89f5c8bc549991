"""sysjobs node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sysjobs.cli.output import ago, emit, emit_json, iso, printable
from sysjobs.client import Client

if TYPE_CHECKING:
    from sysjobs.answers import NodeDevice, NodeState

BAR = 20


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_context
def node(ctx: click.Context, as_json: bool) -> None:
    """Show what this node has for jobs, what of it is in use and by whom.

    \b
    Example:
      sysjobs node
      sudo sysjobs node drain --reason 'new disks'
      sudo sysjobs node resume
    """
    if ctx.invoked_subcommand is not None:
        return
    with Client(ctx.obj) as client:
        state = client.node()
    if as_json:
        emit_json(node_json(state))
    else:
        emit("\n".join(describe(state)))


@node.command()
@click.option("--reason", metavar="TEXT", help="Why, for those whose jobs wait.")
@click.pass_obj
def drain(socket: str | None, reason: str | None) -> None:
    """Let no job start any more, until the node is resumed; what runs goes on. For root alone.

    It stays so over restarts and reboots.

    \b
    Example:
      sudo sysjobs node drain --reason 'new disks' && sudo sysjobs wait 41 42
    """
    with Client(socket) as client:
        client.drain(reason)
    emit("The node is drained: no job starts.")


@node.command()
@click.pass_obj
def resume(socket: str | None) -> None:
    """Let jobs start again on a node that was drained. For root alone.

    \b
    Example:
      sudo sysjobs node resume
    """
    with Client(socket) as client:
        client.resume()
    emit("Jobs start again.")


def describe(state: NodeState, now: int | None = None) -> list[str]:
    """Lines for people."""
    from tabulate import tabulate

    from sysjobs.resources import format_cpus, format_memory

    cpus, memory = [f"{format_cpus(round(each * 1000))}" for each in (state.cpus_used, state.cpus)], [
        format_memory(each) for each in (state.memory_used, state.memory)
    ]  # fmt: skip
    rows = [
        ("CPUs", f"{cpus[0]} of {cpus[1]}", bar(state.cpus_used, state.cpus)),
        ("Memory", f"{memory[0]} of {memory[1]}", bar(state.memory_used, state.memory)),
        *(
            (device.name, _in_use(device), bar(device.used, 1) if device.out_of_use is None else "")
            for device in state.devices
        ),
        *(
            (
                printable(name),
                f"{state.resources_used.get(name, 0)} of {count}",
                bar(state.resources_used.get(name, 0), count),
            )
            for name, count in state.resources.items()
        ),
        ("Jobs", f"{state.running} running, {state.waiting} waiting", ""),
    ]
    lines = tabulate(rows, tablefmt="plain", disable_numparse=True).splitlines()
    if state.drained_by is not None:
        reason = f": {printable(state.drained_for)}" if state.drained_for else ""
        lines.append(f"Drained by {printable(state.drained_by)} {ago(state.drained_at, now)}{reason}")
    if state.users:
        users = [
            [printable(user.user), user.running, user.waiting, format_cpus(round(user.cpus * 1000)),
             format_memory(user.memory), f"{user.gpus:g}"]
            for user in state.users
        ]  # fmt: skip
        columns: tuple[str, ...] = ("USER", "RUNNING", "WAITING", "CPUS", "MEMORY", "GPUS")
        if not state.devices:
            users, columns = [row[:-1] for row in users], columns[:-1]
        lines += ["", *tabulate(users, columns, tablefmt="plain", disable_numparse=True).splitlines()]
    return [line.rstrip() for line in lines]


def _in_use(device: NodeDevice) -> str:
    if device.out_of_use is not None:
        return f"{printable(device.model)}, out of use: {printable(device.out_of_use)}"
    return f"{device.used:g} of {printable(device.model)}"


def bar(used: float, of_all: float) -> str:
    """'[#####---------------]'; of what is in use something always shows."""
    filled = min(BAR, max(round(BAR * used / of_all), used > 0)) if of_all else BAR
    return f"[{'#' * filled}{'-' * (BAR - filled)}]"


def node_json(state: NodeState) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(state) | {"drained_at": iso(state.drained_at)}
