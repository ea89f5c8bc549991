"""Pure: what a job is called: as was wished, or as the command that matters in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from sysjobs.errors import Refused
from sysjobs.payload import Payload
from sysjobs.selectors import ByName, parse_selector

MAX_NAME = 200

_INTERPRETER = re.compile(
    rb"(?:.*/)?(?:python[\d.]*|pypy[\d.]*|bash|sh|dash|zsh|perl|ruby|node|julia|Rscript)", re.DOTALL
)
_SEPARATORS = re.compile(rb"&&|\|\||[;\n]")
_ASSIGNMENT = re.compile(rb"[A-Za-z_]\w*=")
_PREPARING = frozenset((b"cd", b"set", b"export", b"source", b"."))


def name_of(given: str | None, payload: Payload) -> str:
    if given is None:
        words = payload.command if payload.shell is None else _first_words(payload.shell)
        guess = PurePosixPath(_program(words).decode("utf-8", "replace")).name[:MAX_NAME]
        return guess if guess.strip() and _is_name(guess) else "job"
    if not given.strip() or given.startswith("-") or len(given) > MAX_NAME or not _is_name(given):
        raise Refused(
            f"--name {given!r:.80} can't be a job's name.",
            f"Give 1 to {MAX_NAME} printable characters that begin with no - and read as no id, range or @.",
            code="bad-name",
        )
    return given


def _is_name(text: str) -> bool:
    """Whether a job can be asked for by this: it can be shown, and means nothing else."""
    try:
        return text.isprintable() and isinstance(parse_selector(text), ByName)
    except Refused:
        return False


def _first_words(shell: bytes) -> Sequence[bytes]:
    """Those of the text's first command that does more than prepare others."""
    found: list[bytes] = [b"bash"]
    for command in reversed(_SEPARATORS.split(shell)):
        words = [word for word in command.split() if not _ASSIGNMENT.match(word)]
        if words and words[0] not in _PREPARING:
            found = words
    return found


def _program(words: Sequence[bytes]) -> bytes:
    """What a command line runs: the script or module that an interpreter is given, else the command."""
    if _INTERPRETER.fullmatch(words[0]):
        for number, word in enumerate(words[1:], 1):
            if word == b"-m" and number + 1 < len(words):
                return words[number + 1]
            if not word.startswith(b"-"):
                return word
            if word in (b"-c", b"-e"):
                break
    return words[0]
