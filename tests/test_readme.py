"""Every command in README.md is run, in the order in which it stands there, and does what the README shows.

A ```console block is a session: a line that begins with "$ " is a command, what follows is its output, in
which "..." stands for anything and a time for any time. A command must succeed, unless `echo $?` comes next.
A ```sh block is for pasting: every line must succeed, its output is free. Both run on a node, as alice, whom
sudo lets do everything; lines that begin with packaging/ are for the checkout and run on this machine. What
the text says about `sysjobs ...` is held against the command's own help.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.node import Login, Node

REPO = Path(__file__).resolve().parent.parent
README = (REPO / "README.md").read_text()

# Run by a test of its own, and by CI.
DEMO, TESTS = "packaging/demo", "packaging/test"

# How long it may take until a command that only looks sees what the README shows.
PATIENCE = 20.0
LOOKS = re.compile(r"sysjobs (?:queue|show|logs)\b|systemctl status\b|sudo journalctl\b")
TOKENS = re.compile(
    r"(?P<anything>\.\.\.)"
    r"|(?P<ago>just now|\b\d+ (?:sec|min|hour|day)s? ago)"
    r"|(?P<span>\b\d+[dhms](?: \d+[dhms])*\b)"
    r"|(?P<space>[ \t]+)"
    r"|(?P<text>.)"
)
MEANING = {
    "anything": r"[^\n]*?",
    "ago": r"(?:just now|\d+ \w+ ago)",
    "span": r"\d+[dhms](?: \d+[dhms])*",
    "space": r"[ \t]+",
}


@dataclass(frozen=True)
class Command:
    """A command of the README; `expected` is None where the output is free."""

    line: int
    text: str
    expected: str | None

    def __str__(self) -> str:
        return f"README.md:{self.line}: {self.text}"

    @property
    def for_the_checkout(self) -> bool:
        return self.text.startswith("packaging/")


@dataclass(frozen=True)
class Block:
    line: int
    kind: str
    text: str

    def commands(self) -> Iterator[Command]:
        if self.kind == "console":
            found = re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", self.text, re.MULTILINE)
            for part in found:
                yield Command(self.line + self.text.count("\n", 0, part.start()), part[1], part[2])
        elif self.kind == "sh":
            for part in re.finditer(r"^(?!#)((?:.*\\\n)*.+)\n", self.text, re.MULTILINE):
                yield Command(self.line + self.text.count("\n", 0, part.start()), part[1], None)


def blocks() -> list[Block]:
    found = re.finditer(r"^```(.*)\n((?s:.*?))^```$", README, re.MULTILINE)
    return [Block(README.count("\n", 0, part.start(2)) + 1, part[1], part[2]) for part in found]


BLOCKS = blocks()
COMMANDS = [command for block in BLOCKS for command in block.commands()]
# But what happens in the table of what happens when: other tests do that.
TEXT = re.sub(r"^```(?s:.*?)^```$|^## What happens when(?s:.*?)^## ", "", README, flags=re.MULTILINE)
MENTIONS = re.findall(r"`([^`\n]+)`", TEXT)


def pattern(expected: str) -> re.Pattern[str]:
    """What the output must look like, from what the README shows of it."""
    lines = []
    for line in expected.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            tokens = TOKENS.finditer(line.strip())
            text = "".join(MEANING.get(str(token.lastgroup), re.escape(token[0])) for token in tokens)
            lines.append(rf"[ \t]*{text}[ \t]*\n")
    return re.compile("".join(lines))


class Reader:
    """Somebody who types the README's commands into a shell of a node, one after the other."""

    def __init__(self, session: Login) -> None:
        self._session = session
        self._status = 0

    def follow(self, command: Command) -> int:
        """Run it; its exit status."""
        before = self._status
        deadline = time.monotonic() + PATIENCE
        while True:
            output = self._type(command.text, before)
            if command.expected is None or pattern(command.expected).fullmatch(output):
                return self._status
            if not LOOKS.match(command.text) or time.monotonic() > deadline:
                pytest.fail(f"{command}\n--- the README ---\n{command.expected}--- the output ---\n{output}")

    def _type(self, text: str, before: int) -> str:
        # For an `echo $?`, the status of the command before; a mark that no output has, for the one of this.
        script = f"(exit {before})\n{text}\nprintf '\\036%d' $?"
        output, _, status = self._session.run(script).rpartition("\x1e")
        # A node may lack what machines have.
        output = re.sub(r"(?m)^sysjobs: This node can't enforce --memory.*\n", "", output)
        self._status = int(status)
        return output if not output or output.endswith("\n") else f"{output}\n"


@pytest.fixture
def fresh_node(suite: str) -> Iterator[Node]:
    """A machine on which nobody has submitted anything yet, and alice may do everything."""
    with Node(suite) as node:
        node.put("/etc/sudoers.d/alice", b"alice ALL=(ALL) NOPASSWD: ALL\n", 0o440)
        node.put(f"/home/alice/{node.deb.name}", node.deb, owner="alice")
        yield node


def test_commands(fresh_node: Node, tmp_path: Path) -> None:
    (tmp_path / "packaging").symlink_to(REPO / "packaging")
    with fresh_node.login("alice") as session:
        reader = Reader(session)
        for command, after in zip(COMMANDS, [*COMMANDS[1:], None], strict=True):
            if command.text in (DEMO, TESTS):
                continue
            if command.for_the_checkout:
                subprocess.run(["bash", "-ec", command.text], cwd=tmp_path, check=True, timeout=600)
                continue
            status = reader.follow(command)
            asked = after is not None and after.text == "echo $?"
            assert status == 0 or asked, f"{command}\nends with exit status {status}"
    # What the README has the reader build is what it has them install.
    assert [path.name for path in tmp_path.glob("*.deb")] in ([], [fresh_node.deb.name])


def test_demo(suite: str, tmp_path: Path) -> None:
    # Named, so that it runs on a node even where it would install the package on this machine.
    done = subprocess.run(
        [REPO / DEMO, "--suite", suite],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^All \d\d effects were seen\.$", done.stdout, re.MULTILINE)


def test_the_two_commands_come_first() -> None:
    pasted = [command.text for block in BLOCKS if block.kind == "sh" for command in block.commands()]
    assert pasted[:2] == [DEMO, TESTS]


def test_ci_runs_what_the_readme_says() -> None:
    assert (REPO / ".ci" / "run").read_text().endswith(f"\nexec {TESTS}\n")


def test_every_block_is_understood() -> None:
    for block in BLOCKS:
        assert block.kind in ("console", "sh"), f"README.md:{block.line}: ```{block.kind} is run by nothing"
        assert list(block.commands()), f"README.md:{block.line}: a block without a command"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", README):
        assert (REPO / target).exists(), f"README.md links to {target}"


def test_what_the_text_mentions_exists(node: Node) -> None:
    ran = [re.sub(r"\d+", "1", command.text) for command in COMMANDS]
    for mention in MENTIONS:
        words = mention.split()
        if words[0] in ("systemctl", "journalctl", "sudo") or words[0].startswith("packaging/"):
            like_it = [text for text in ran if re.sub(r"\d+", "1", mention) in text]
            assert like_it, f"README.md: no block runs anything like {mention!r}"
        elif words[0] == "sysjobs" and len(words) > 1:
            options = re.findall(r"(?<![\w-])--?[a-z][\w-]*", mention)
            subcommand = [words[1]] if words[1] not in options else []
            help_text = node.run(["sysjobs", *subcommand, "--help"]).stdout.decode()
            for option in options:
                known = re.search(rf"(?<![\w-]){option}\b", help_text)
                assert known, f"README.md mentions {mention!r}, but there is no {option}"
