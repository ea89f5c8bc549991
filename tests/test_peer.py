"""Who is on the other side of a connection, by the kernel's word, and what that one may see."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from typing import Any, cast

import pytest

from sysjobs.peer import Peer, peer_of


def test_this_process() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == Peer(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name)


@pytest.mark.parametrize("number", [2**31, 2**32 - 6])
def test_a_high_id_without_an_account(number: int) -> None:
    class Credentials:
        def getsockopt(self, *_: object) -> bytes:
            return struct.pack("=iII", 7, number, number)

    assert peer_of(cast(Any, Credentials())) == Peer(number, number, None)


def test_ids_without_an_account_have_one_share_together() -> None:
    shares = [Peer(100_000, 0, None).share, Peer(100_001, 0, None).share]
    assert shares[0] == shares[1] not in (Peer(1000, 1000, "alice").share, Peer(0, 0, "root").share)


@pytest.mark.parametrize(
    ("uid", "owner", "may"), [(1000, 1000, True), (1000, 0, False), (1000, 1001, False), (0, 1000, True)]
)
def test_jobs_of_others(uid: int, owner: int, may: bool) -> None:
    peer = Peer(uid, uid, None)
    assert (peer.may_read(owner), peer.may_change(owner), peer.is_root) == (may, may, uid == 0)
