"""Throwaway nodes: a real systemd as PID 1, in namespaces, with this working tree's package installed."""

from tests.node.errors import NodeError
from tests.node.login import Login
from tests.node.node import Node

__all__ = ["Login", "Node", "NodeError"]
