"""The standard interface org.varlink.service: what there is and how it is called."""

from __future__ import annotations

from importlib.resources import files

from sysjobs import __version__
from sysjobs.protocol import SERVICE, Call, Params, ProtocolError
from sysjobs.server import Exchange, Handler

INTERFACES = {
    "io.sysjobs": (files("sysjobs") / "io.sysjobs.varlink").read_text("utf-8"),
    SERVICE: (files("sysjobs") / "org.varlink.service.varlink").read_text("utf-8"),
}


def get_info(exchange: Exchange, call: Call) -> None:
    Params(call.parameters, frozenset())
    exchange.finish(
        {
            "vendor": "sysjobs",
            "product": "sysjobsd",
            "version": __version__,
            "url": "file:///usr/share/doc/sysjobs/README.md",
            "interfaces": sorted(INTERFACES),
        }
    )


def describe(exchange: Exchange, call: Call) -> None:
    name = Params(call.parameters, frozenset(("interface",))).required_text("interface")
    if name not in INTERFACES:
        raise ProtocolError("InterfaceNotFound", interface=name)
    exchange.finish({"description": INTERFACES[name]})


HANDLERS: dict[str, Handler] = {
    f"{SERVICE}.GetInfo": get_info,
    f"{SERVICE}.GetInterfaceDescription": describe,
}
