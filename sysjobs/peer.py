"""Who is on the other side of a connection, by the kernel's word.

It is who opened the connection, as everywhere with SO_PEERCRED: a connection that root opens and hands to
somebody else still speaks for root. A user of a container or a user namespace is who they are outside of it.
"""

from __future__ import annotations

import pwd
import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """`user` is None without an account."""

    uid: int
    gid: int
    user: str | None

    @property
    def is_root(self) -> bool:
        return self.uid == 0

    @property
    def share(self) -> int:
        """What is bounded for each user is counted under this.

        All without an account have one together: who may use 65,536 ids of a user namespace is not that many.
        """
        return -1 if self.user is None else self.uid

    def may_read(self, uid: int) -> bool:
        return self.uid in (0, uid)

    def may_change(self, uid: int) -> bool:
        return self.uid in (0, uid)


def peer_of(sock: socket.socket) -> Peer:
    _, uid, gid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = None
    return Peer(uid, gid, user)
