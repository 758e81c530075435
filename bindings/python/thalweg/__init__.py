"""Thalweg: real-time publish/subscribe. The page docs/python.md begins with two programs.

    import thalweg

    @thalweg.message
    class Position:
        x: thalweg.f64
        y: thalweg.f64

    with thalweg.Node("talker") as node:
        publisher = node.publisher("/position", Position, class_="high")
        publisher.publish(Position(1.0, 2.0))
"""

import atexit
import os

from . import _thalweg
from ._node import Node
from ._ros import ros, ros_type
from ._services import Client, Server
from ._subscriber import Subscriber
from ._thalweg import (
    ClosedError,
    ConfigurationError,
    Error,
    ForkedError,
    Info,
    KernelError,
    Loan,
    LoanError,
    MessageError,
    NameTakenError,
    NotAdmittedError,
    PeerError,
    Port,
    Published,
    Publisher,
    Sample,
    UsageError,
    __version__,
)
from ._types import char, decode, encode, f32, f64, i8, i16, i32, i64, length, message, u8, u16, u32, u64

atexit.register(_thalweg.end)
os.register_at_fork(after_in_child=_thalweg.forked)

__all__ = [
    "Client",
    "ClosedError",
    "ConfigurationError",
    "Error",
    "ForkedError",
    "Info",
    "KernelError",
    "Loan",
    "LoanError",
    "MessageError",
    "NameTakenError",
    "Node",
    "NotAdmittedError",
    "PeerError",
    "Port",
    "Published",
    "Publisher",
    "Sample",
    "Server",
    "Subscriber",
    "UsageError",
    "__version__",
    "char",
    "decode",
    "encode",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "length",
    "message",
    "ros",
    "ros_type",
    "u8",
    "u16",
    "u32",
    "u64",
]
