"""sysjobs submit. The daemon checks the values; only what this process alone can see is checked here."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from sysjobs.cli.output import emit, note
from sysjobs.client import Client
from sysjobs.errors import Refused, SysjobsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


_LIST = re.compile(r",(?![^\[]*\])")
"""Between ids, and not within 42_[1,3]."""

_OPTIONS = (
    click.argument("argv", metavar="[--] COMMAND [ARG...]", nargs=-1, type=click.UNPROCESSED),
    click.option(
        "-c", "--command-line", metavar="TEXT", help="Instead of COMMAND: a text that bash -c runs."
    ),
    click.option("-n", "--name", metavar="NAME", help="The job's name; the command's by default."),
    click.option("--cpus", metavar="N", help="CPUs, such as 2 or 0.5 (the default)."),
    click.option(
        "--memory", metavar="SIZE", help="Memory, such as 512M or 4G: a job that takes more is killed."
    ),
    click.option("--gpus", metavar="GPUS", help="GPUs, such as 2, L4, A100:2; L4:0.25 is a part of one."),
    click.option(
        "--resource", metavar="NAME=N", multiple=True, help="So many of what the node's settings name."
    ),
    click.option(
        "--cpu-limit",
        type=click.Choice(["soft", "hard"]),
        help="Whether it may have more CPUs while others are idle (soft).",
    ),
    click.option(
        "--priority",
        metavar="N",
        type=int,
        help="From -1000 to 1000, 0 by default: the highest starts first.",
    ),
    click.option("--setup", metavar="TEXT", help="A text that bash -c runs before, with a log of its own."),
    click.option("-C", "--workdir", metavar="DIR", help="Where to run; the current directory by default."),
    click.option("--env", metavar="K[=V]", multiple=True, help="Set a variable, or pass it on."),
    click.option(
        "--env-file", metavar="FILE", multiple=True, help="Set the variables in a file of K=V lines."
    ),
    click.option(
        "-t",
        "--time",
        metavar="TIME",
        help="End the job after so long: 90s, 1h30m, 2-12:00:00; seconds if bare.",
    ),
    click.option(
        "--signal", metavar="SIG@SECONDS", help="Send it a signal so long before its time limit: USR1@60."
    ),
    click.option("--grace", metavar="TIME", help="How long after SIGTERM comes SIGKILL."),
    click.option("--retries", metavar="N", type=int, help="After a failure begin again, N times at most."),
    click.option(
        "--retry-on",
        metavar="CODES",
        multiple=True,
        help="Only after these exit codes and causes: 75,64-78,oom,reboot.",
    ),
    click.option(
        "--retry-delay",
        metavar="TIME",
        help="How long after the first failure (1s); then twice as long each.",
    ),
    click.option("--hold", is_flag=True, help="Don't start it before 'sysjobs release'."),
    click.option("--begin", metavar="WHEN", help="Not before: +1h, 22:00, '2026-12-24 18:00'."),
    click.option(
        "--after", metavar="IDS", multiple=True, help="Not before these have begun, or ended without."
    ),
    click.option("--afterok", metavar="IDS", multiple=True, help="Only if these jobs have succeeded."),
    click.option("--afterany", metavar="IDS", multiple=True, help="Not before these jobs have ended."),
    click.option(
        "--afternotok", metavar="IDS", multiple=True, help="Only if these jobs have ended otherwise."
    ),
    click.option("--singleton", is_flag=True, help="Not before your earlier jobs of the same name ended."),
    click.option(
        "--array",
        metavar="TASKS",
        help="Run it as many tasks: 0-99, 1,5,20-40:2; 0-99%10 has 10 at a time at most.",
    ),
    click.option(
        "--param",
        metavar="NAME=VALUES",
        multiple=True,
        help="A task for each combination: lr=0.1,0.01 or seed=1-5; {lr} and $lr are its value.",
    ),
    click.option(
        "--export",
        type=click.Choice(["all", "none"]),
        default="all",
        help="Whether the job gets your environment (the default) or a clean one.",
    ),
)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which a job is described; `submit_job` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def submit_job(
    client: Client,
    *,
    argv: tuple[str, ...],
    command_line: str | None,
    cpus: str | None,
    env: tuple[str, ...],
    env_file: tuple[str, ...],
    export: str,
    begin: str | None,
    resource: tuple[str, ...],
    param: tuple[str, ...],
    **others: Any,
) -> int:
    """Submits what the options say, tells what of it can't be enforced, and returns the job's id."""
    if command_line is not None and argv:
        raise click.UsageError("There are both -c and a COMMAND.")
    if command_line is None and not argv:
        raise click.UsageError("There is no COMMAND.")
    for option in ("after", "afterok", "afterany", "afternotok", "retry_on"):
        others[option] = [part.strip() for text in others[option] for part in _LIST.split(text)]
    job_id = client.submit(
        argv or None,
        shell=command_line,
        cpus=None if cpus is None else cpus_number(cpus),
        env=_environment(env_file, env),
        export=export == "all",
        begin=None if begin is None else _moment(begin),
        resources=_resources(resource),
        params=_params(param),
        **others,
    )
    for warning in client.warnings:
        note(warning)
    return job_id


@click.command(context_settings={"allow_interspersed_args": False})
@job_options
@click.option("--parsable", is_flag=True, help="Print the job's id and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_obj
def submit(socket: str | None, /, parsable: bool, as_json: bool, **options: Any) -> None:
    """Submit a command as a job: it runs as you, here, with your environment, as soon as there is room.

    \b
    Example:
      sysjobs submit -n train --cpus 2 --memory 4G -- python train.py --lr 0.1
      sysjobs submit -c 'make -j2 && ./a.out > result' --time 1h
      sysjobs submit --afterok 41,42 --begin 22:00 -- ./evaluate
      sysjobs submit --env-file settings.env --setup 'pip install -r requirements.txt' python train.py
      sysjobs submit --array 0-99%10 -c './part $SYSJOBS_ARRAY_TASK_ID'
      sysjobs submit --param lr=0.1,0.01 --param seed=1-5 -- python train.py --lr {lr} --seed {seed}

    Options stand before COMMAND; what follows it belongs to it. The job's standard input is empty. Session
    variables (XDG_RUNTIME_DIR, DBUS_*, SSH_AUTH_SOCK and the like) aren't passed on.

    A line of an --env-file is K=V. Lines that are empty or begin with # are skipped, 'V' is taken as it is,
    "V" knows \\" and \\\\, without quotes V ends before " #". Nothing is expanded.

    The tasks of an array are jobs of their own, 42_0 and so on, which start in order as there is room; each
    has all that is asked for. SYSJOBS_ARRAY_TASK_ID (and SLURM_ARRAY_TASK_ID) is its number. A value of
    --param may be a range, 01-10:3; a backslash before a comma or a dash takes it as it is.
    """
    if parsable and as_json:
        raise click.UsageError("--parsable and --json exclude each other.")
    with Client(socket) as client:
        job_id = submit_job(client, **options)
    try:
        emit(f'{{"id": {job_id}}}' if as_json else str(job_id) if parsable else f"Submitted job {job_id}")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SysjobsError(
            f"Job {job_id} is submitted, but that can't be printed: {error.strerror}.",
            "Don't submit it again; `sysjobs queue` shows it.",
        ) from None


def _moment(text: str) -> datetime:
    from datetime import datetime

    from sysjobs.cli.when import parse_when

    return parse_when(text, "--begin", datetime.now().astimezone())


def _params(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, given, values = text.partition("=")
        if not given or name in found:
            what = f"{name!r:.80} is given twice" if given else f"{text!r:.80} is not NAME=VALUES"
            raise UsageError(f"--param {what}.", "Give each name once, with all of its values: lr=0.1,0.01.")
        found[name] = values
    return found


def _resources(texts: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in map(_resource, texts):
        if name in found:
            raise UsageError(f"--resource {name} is given twice.", f"Say how many: {name}=N.")
        found[name] = count
    return found


def _resource(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not name or not (count or "1").isdecimal() or len(count) > 9:
        raise UsageError(f"--resource {text!r:.80} is not NAME=N.", "Give a name and a number, licence=1.")
    return name, int(count or "1")


def cpus_number(text: str) -> float:
    """A number, for so it travels; whether it is a sensible one the daemon says."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        from sysjobs.resources import parse_cpus

        parse_cpus(text)
    return value


def _environment(files: tuple[str, ...], variables: tuple[str, ...]) -> dict[str, bytes] | None:
    """What --env-file and --env add; the last one of a name wins, and --env over a file."""
    env: dict[str, bytes] = {}
    for file in files:
        from sysjobs.cli.envfile import read_env_file

        env.update(read_env_file(file))
    for variable in variables:
        name, given, value = variable.partition("=")
        if not name:
            raise UsageError(f"--env {variable!r} has no name.", "Write --env NAME=VALUE or --env NAME.")
        inherited = os.fsencode(value) if given else os.environb.get(os.fsencode(name))
        if inherited is None:
            raise Refused(
                f"--env {name}: there is no such variable in the environment.",
                f"Give a value, --env {name}=VALUE, or export it first.",
                code="bad-env",
            )
        env[name] = inherited
    return env or None
