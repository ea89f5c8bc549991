"""The list of commands, each imported when it is used, and what happens to the errors they raise."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from sysjobs import caller
from sysjobs.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, SysjobsError

EXIT_PIPE = 141
"""As the shell reports a program that SIGPIPE ended."""

TRACEBACK = "SYSJOBS_TRACEBACK"

# Help text beside each, for the list is shown without importing them.
COMMANDS = {
    "submit": ("sysjobs.cli.submit", "Submit a command as a job."),
    "run": ("sysjobs.cli.run", "Submit a job, follow its log, exit with its code."),
    "queue": ("sysjobs.cli.queue", "List jobs."),
    "show": ("sysjobs.cli.show", "Show all that is known of a job."),
    "logs": ("sysjobs.cli.logs", "Print a job's log, or follow it."),
    "cancel": ("sysjobs.cli.cancel", "Cancel jobs."),
    "hold": ("sysjobs.cli.hold", "Keep jobs from starting."),
    "release": ("sysjobs.cli.hold", "Let held jobs go on."),
    "requeue": ("sysjobs.cli.requeue", "End jobs and have them begin again."),
    "signal": ("sysjobs.cli.signal", "Send a signal to jobs."),
    "set": ("sysjobs.cli.set", "Change what jobs asked for."),
    "report": ("sysjobs.cli.report", "Sum up what jobs had and used."),
    "wait": ("sysjobs.cli.wait", "Wait until jobs have ended."),
    "node": ("sysjobs.cli.node", "Show what the node has and who uses it; drain it."),
    "doctor": ("sysjobs.cli.doctor", "Tell what is wrong with this node, and what to do."),
}
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """A group whose commands are imported by need: a submit must not pay for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            more = f" Did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{more}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from sysjobs import __version__

        click.echo(f"sysjobs {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings=SETTINGS, no_args_is_help=False)
@click.option(
    "--socket", metavar="PATH", help="The daemon's socket, instead of $SYSJOBS_SOCKET or the system's."
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def sysjobs(ctx: click.Context, socket: str | None) -> None:
    """A job queue for this node, in which every job is a systemd unit.

    \b
    Example:
      sysjobs submit --cpus 2 --memory 4G -- python train.py --lr 0.1
      sysjobs logs -f @

    Wherever a job is asked for: its id, a task of an array (42_7), @ (your last job), @~1 (the one before),
    the name of your live jobs, or, where several are taken, a range such as 3-9 or 42_[1,3-9].
    """
    ctx.obj = socket


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; every error becomes two lines on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A locale without UTF-8 must not keep a foreign name from being shown.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    caller.tell_silence = _say_silence
    try:
        code = _run(arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return code
    except BrokenPipeError:
        return EXIT_PIPE
    except OSError as error:
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _fail(f"{name}{error.strerror or error}.", "", EXIT_FAILED)
    except Exception as error:
        if TRACEBACK in os.environ:
            raise
        return _fail(
            f"This is a fault in sysjobs: {error!r}.",
            f"Please report it, with what {TRACEBACK}=1 shows when it is set.",
            EXIT_FAILED,
        )


def _say_silence(socket: str) -> None:
    from sysjobs.cli.output import note

    note(f"Waiting for sysjobsd at {socket}, which doesn't answer yet.")


def _run(arguments: list[str]) -> int:
    try:
        with sysjobs.make_context("sysjobs", arguments) as ctx:
            code = sysjobs.invoke(ctx)
            return code if isinstance(code, int) else EXIT_OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        command = "sysjobs" if error.ctx is None else error.ctx.command_path
        if command == "sysjobs" and isinstance(error, click.BadOptionUsage):
            # click says of no command which one it was.
            command = " ".join(["sysjobs", *(word for word in arguments if word in COMMANDS)][:2])
        return _fail(error.format_message(), f"See '{command} --help'.", EXIT_USAGE)
    except SysjobsError as error:
        return _fail(error.message, error.hint, error.exit_code)


def _fail(message: str, hint: str, code: int) -> int:
    from sysjobs.cli.output import print_error

    print_error(message, hint)
    return code
