"""What a reply has in it, checked and typed."""

from __future__ import annotations

import os
from typing import Any

from sysjobs.wire import WireError, from_wire


class Fields:
    """Typed access to an object of a reply."""

    def __init__(self, raw: object) -> None:
        if not isinstance(raw, dict):
            raise WireError("an object is missing")
        self.values: dict[str, Any] = raw

    def integer(self, key: str) -> int:
        value = self.values.get(key)
        if not isinstance(value, int):
            raise WireError(f"{key} isn't an integer")
        return value

    def integer_or_none(self, key: str) -> int | None:
        return None if self.values.get(key) is None else self.integer(key)

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if not isinstance(value, int | float):
            raise WireError(f"{key} isn't a number")
        return value

    def number_or_none(self, key: str) -> float | None:
        return None if self.values.get(key) is None else self.number(key)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else os.fsdecode(from_wire(value))

    def texts(self, key: str) -> list[str]:
        """None at all where the array is absent."""
        values = self.values.get(key)
        if not isinstance(values, list | None) or not all(isinstance(value, str) for value in values or ()):
            raise WireError(f"{key} isn't a list of texts")
        return values or []

    def counts(self, key: str) -> dict[str, int]:
        """None at all where the mapping is absent."""
        values = self.values.get(key)
        if not isinstance(values, dict | None) or not all(
            type(each) is int for each in (values or {}).values()
        ):
            raise WireError(f"{key} isn't a mapping of integers")
        return values or {}

    def mapping(self, key: str) -> dict[str, str]:
        """None at all where the mapping is absent."""
        values = self.values.get(key)
        if not isinstance(values, dict | None):
            raise WireError(f"{key} isn't a mapping")
        return {name: os.fsdecode(from_wire(value)) for name, value in (values or {}).items()}

    def text_or_none(self, key: str) -> str | None:
        return None if self.values.get(key) is None else self.text(key)
