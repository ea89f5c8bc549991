"""Varlink calls as typed values: requests with getters that refuse what they don't expect, and replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sysjobs.errors import Refused, SysjobsError
from sysjobs.wire import WireError, from_wire

SERVICE = "org.varlink.service"
MAX_REASON = 1000


class ProtocolError(Exception):
    """An error of the Varlink service interface: `name` without its interface, and its parameters."""

    def __init__(self, name: str, **parameters: str) -> None:
        super().__init__(name)
        self.name = f"{SERVICE}.{name}"
        self.parameters = parameters


@dataclass(frozen=True, slots=True)
class Call:
    """A method call: 'io.sysjobs.Submit', its parameters, and whether several replies are welcome."""

    method: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    more: bool = False
    oneway: bool = False

    @classmethod
    def of(cls, message: Mapping[str, object]) -> Call:
        method, parameters = message.get("method"), message.get("parameters")
        if not isinstance(method, str) or not isinstance(parameters if parameters is not None else {}, dict):
            raise WireError("not a method call")
        assert parameters is None or isinstance(parameters, dict)
        return cls(method, parameters or {}, message.get("more") is True, message.get("oneway") is True)

    @property
    def interface(self) -> str:
        return self.method.rpartition(".")[0]


class Params:
    """Typed access to a call's parameters, or to an object in them. A wrong type is InvalidParameter."""

    def __init__(self, values: Mapping[str, object], known: frozenset[str], what: str = "") -> None:
        self._values = values
        self._what = what
        for name in values:
            if name not in known:
                raise ProtocolError("InvalidParameter", parameter=f"{what}{name}")

    def _wrong(self, name: str) -> ProtocolError:
        return ProtocolError("InvalidParameter", parameter=f"{self._what}{name}")

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name)

    def reason(self, name: str) -> str:
        """What somebody gives as one, on one line; empty where nothing is said."""
        text = self.text(name) or ""
        if len(text) > MAX_REASON or not (text.isprintable() or not text):
            raise Refused(
                "The reason is too long or has control characters in it.",
                f"Give one line of at most {MAX_REASON} characters.",
                code="bad-reason",
            )
        return text

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self._wrong(name)
        return value

    def data(self, name: str) -> bytes | None:
        """A string that need not be UTF-8."""
        value = self._values.get(name)
        return None if value is None else self._bytes(name, value)

    def _bytes(self, name: str, value: object) -> bytes:
        try:
            data = from_wire(value)
        except WireError:
            raise self._wrong(name) from None
        if b"\0" in data:
            raise Refused(
                f"{self._what}{name} has a NUL character in it, which no program can be given.",
                "Remove it.",
                code="nul",
            )
        return data

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._wrong(name)

    def integer(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name)
        return value

    def amount(self, name: str) -> str | None:
        """A number or a text that reads as one, as a text."""
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name)
        # As many digits as are sure to be meant: 0.1 + 0.2 is 0.3.
        return f"{value:.12f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

    def texts(self, name: str) -> list[str] | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return value
        raise self._wrong(name)

    def datas(self, name: str) -> tuple[bytes, ...] | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(name)
        return tuple(self._bytes(name, entry) for entry in value)

    def mapping(self, name: str) -> Mapping[str, object]:
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name)
        return value

    def env(self, name: str) -> tuple[tuple[bytes, bytes], ...]:
        pairs = []
        for key, value in self.mapping(name).items():
            pairs.append((self._bytes(name, key), self._bytes(f"{name}.{key}", value)))
        return tuple(pairs)


def reply(parameters: Mapping[str, object], *, continues: bool = False) -> dict[str, object]:
    message: dict[str, object] = {"parameters": parameters}
    if continues:
        message["continues"] = True
    return message


def error_reply(error: SysjobsError | ProtocolError) -> dict[str, object]:
    if isinstance(error, ProtocolError):
        return {"error": error.name, "parameters": error.parameters}
    return {
        "error": error.varlink,
        "parameters": {"code": error.code, "message": error.message, "hint": error.hint},
    }
