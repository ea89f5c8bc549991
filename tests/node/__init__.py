"""Throwaway nodes, in namespaces or emulated: a real systemd, with this working tree's package installed."""

from tests.node.errors import NodeError
from tests.node.login import Login
from tests.node.machine import Machine
from tests.node.node import Node
from tests.node.vm import Vm

__all__ = ["Login", "Machine", "Node", "NodeError", "Vm"]
