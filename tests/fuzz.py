"""Messages that a client may send to the daemon: calls made up from its interface, nearly right, and rubbish.

The same seed gives the same messages.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import sysjobs

_INTERFACE = Path(sysjobs.__file__).with_name("io.sysjobs.varlink").read_text()

_ODD_TEXTS = (
    "", " ", "0", "-1", "@", "@~1", "@~999999999", "1-9", "9-1", "1-1000000", "9" * 19, "9" * 40, "\0", "\n",
    "\x1b[2J", "\ud800", "\u202e", "\u2028", "a=b", "%n%s%d", "$HOME ${X} $$", "'\"`;&|", "../../etc/passwd",
    "/", "/tmp", "1e400", "NaN", "0.5", "64M", "1h30m", "-0:00", "x" * 201, "x" * 5000, "PENDING",
    "\N{GRINNING FACE}" * 50,
)  # fmt: skip
_ODD_NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400, 0.1, -0.0, 1e308, 5e-324)

# What makes sense, by the names of parameters.
_GOOD: dict[str, tuple[object, ...]] = {
    "command": (["true"], ["echo", "a b", {"b64": "/w=="}]), "shell": ("true",), "name": ("job", "two words"),
    "cpus": (0, 0.5, 1), "memory": ("64M",), "time": ("1h",), "grace": ("5s", "0"), "setup": ("true",),
    "workdir": ("/", "/tmp"), "env": ({"A": "1"},), "environment": (["A=1", "PATH=/bin"],), "umask": (0o22,),
    "limits": ({"nofile": 1024},), "key": ("key",), "ids": (["1-50"], ["@"], ["job"], ["7", "8"]),
    "statuses": (["PENDING"],), "limit": (1, 5), "id": ("3", "@"), "reason": ("because",),
}  # fmt: skip


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._oddness = 0.0
        without_comments = re.sub(r"#.*", "", _INTERFACE)
        self._types = {
            name: _fields(body)
            for name, body in re.findall(r"type (\w+) (\(.*?\n\))", without_comments, re.S)
        }
        self._methods = {
            name: _fields(body)
            for name, body in re.findall(r"method (\w+)\s*(\(.*?\))\s*->", without_comments, re.S)
        }

    def call(self) -> bytes:
        """A call that may be right, but for its NUL."""
        one = self._random
        self._oddness = one.choice([0, 0.02, 0.2])
        name, fields = one.choice([*self._methods.items()])
        parameters: object = self._object(fields)
        message: dict[str, object] = {"method": f"io.sysjobs.{name}", "parameters": parameters}
        if name == "List" and isinstance(parameters, dict) and one.random() < 0.99:
            # There may be very many, and all of them each time would take most of it.
            parameters.setdefault("limit", 3)
        if one.random() < 0.3 and name != "Watch":
            # A watch of a job that goes on would never be answered in full.
            message["more"] = one.choice([True, True, False, 1, None])
        if one.random() < 0.05:
            message["oneway"] = one.choice([True, "yes"])
        if one.random() < 0.1 * self._oddness:
            message[one.choice(["method", "parameters", "upgrade", "x"])] = self._anything(2)
        as_ascii = one.random() < 1 - 0.1 * self._oddness
        return json.dumps(message, ensure_ascii=as_ascii).encode("utf-8", "surrogatepass")

    def rubbish(self) -> bytes:
        """What is hardly a call: random bytes, or a call that was damaged on the way."""
        one = self._random
        if one.random() < 0.3:
            return one.randbytes(one.choice([0, 1, 10, 1000]))
        data = bytearray(self.call())
        for _ in range(one.randint(1, 4)):
            at = one.randrange(len(data) + 1)
            match one.randrange(4):
                case 0:
                    data[at : at + 1] = one.randbytes(1)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = data[:at]
                case 3:
                    data[at:at] = one.choice([b"\0", b"[" * 5000, b"\xff", b"{}", b'"'])
        return bytes(data)

    def pieces(self, data: bytes) -> list[bytes]:
        """The same bytes, cut anywhere."""
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(self._random.randint(0, 3)))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _object(self, fields: dict[str, str]) -> object:
        one = self._random
        if one.random() < 0.1 * self._oddness:
            return self._anything(2)
        found = {name: self._named(name, kind) for name, kind in fields.items() if one.random() < 0.5}
        if "command" in found and self.chance(0.9):
            found.pop("shell", None)
        if one.random() < self._oddness:
            found[one.choice(_ODD_TEXTS)] = self._anything(2)
        return found

    def _named(self, name: str, kind: str) -> object:
        if name in _GOOD and not self.chance(self._oddness):
            return self._random.choice(_GOOD[name])
        return self._value(kind)

    def _value(self, kind: str) -> object:
        one = self._random
        kind = kind.removeprefix("?")
        if kind in self._types:
            return self._object(self._types[kind])
        if one.random() < 0.5 * self._oddness:
            return self._anything(3)
        if kind.startswith("[]"):
            return [self._value(kind[2:]) for _ in range(one.choice([0, 1, 1, 2, 20]))]
        if kind.startswith("[string]"):
            return {str(self._text()): self._value(kind[8:]) for _ in range(one.randint(0, 3))}
        match kind:
            case "int":
                return one.choice([one.randint(0, 100), one.choice(_ODD_NUMBERS)])
            case "float":
                return one.choice([one.random(), one.choice(_ODD_NUMBERS)])
            case "bool":
                return one.random() < 0.5
        return self._text()

    def _text(self) -> object:
        one = self._random
        roll = one.random()
        if roll < 0.4:
            return one.choice(["true", "job", str(one.randint(1, 50)), "/", "A=1", "30s"])
        if roll < 0.5:
            return {"b64": one.choice(["/w==", "!", "", "QQ", "AAAA", 5])}
        return one.choice(_ODD_TEXTS)

    def _anything(self, depth: int) -> object:
        one = self._random
        roll = one.random()
        if depth and roll < 0.2:
            return [self._anything(depth - 1) for _ in range(one.randint(0, 4))]
        if depth and roll < 0.4:
            return {one.choice(_ODD_TEXTS): self._anything(depth - 1) for _ in range(one.randint(0, 4))}
        return one.choice([None, True, False, one.choice(_ODD_NUMBERS), one.choice(_ODD_TEXTS)])


def _fields(body: str) -> dict[str, str]:
    """Name and type of each, of those that are asked for."""
    return dict(re.findall(r"(\w+):\s*([^\s,()]+)", body))
