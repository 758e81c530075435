"""Nodes: where everything starts."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _thalweg
from ._options import Policy, port_options, words
from ._services import Client, Server
from ._subscriber import Subscriber
from ._thalweg import Port, Publisher, Sample
from ._types import type_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class Node:
    """One participating process, or one context in it. It closes with its ports at the end of a `with` block, by `close`, or when the
    interpreter ends.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        realm: str | None = None,
        listen: Iterable[str] = (),
        peers: Iterable[str] = (),
        discovery: str | os.PathLike[str] | None = None,
        lock_memory: bool = False,
        memory: int | None = None,
        admin_from: Iterable[str] = (),
        channels: int | None = None,
        pictures: int | None = None,
    ) -> None:
        """Opens a node. `listen`: addresses besides loopback; `peers`: nodes or routers of other hosts; `discovery`: a file with the
        addresses of other nodes; `memory`: bytes that its channels may hold; `admin_from`: networks that may change it; `channels`,
        `pictures`: limits on the use of one port by others.
        """
        self._raw = _thalweg.Node(
            {
                "name": name,
                "realm": realm,
                "listen": [*listen],
                "peers": [*peers],
                "discovery": discovery,
                "lock_memory": lock_memory,
                "memory": memory,
                "admin_from": [*admin_from],
                "channels": channels,
                "pictures": pictures,
            }
        )

    @property
    def name(self) -> str:
        """The node's name."""
        return self._raw.name

    @property
    def id(self) -> int:
        """The node's id: random, new at every start."""
        return self._raw.id

    @overload
    def publisher(self, topic: str, kind: type[bytes], **options: Any) -> Publisher[Buffer]: ...
    @overload
    def publisher(self, topic: str, kind: type[T], **options: Any) -> Publisher[T]: ...
    def publisher(
        self,
        topic: str,
        kind: Any,
        *,
        name: str | None = None,
        class_: str | None = None,
        reliability: str | None = None,
        depth: int | None = None,
        deadline: float | str | None = None,
        sched: str | None = None,
        carriers: Iterable[str] | None = None,
        session: str | None = None,
        **policies: Policy,
    ) -> Publisher[Any]:
        """Opens a publisher of a message class, `bytes`, `str` or a number. Times are seconds; docs/qos.md has all policies."""
        stated = {"class_": class_, "reliability": reliability, "depth": depth, "deadline": deadline, "sched": sched, **policies}
        return Publisher(self._raw, topic, type_of(kind), port_options(name, session, carriers, stated))

    @overload
    def subscriber(
        self, topic: str, kind: type[bytes] | None, callback: Callable[[Sample[memoryview]], object] | None = None, **options: Any
    ) -> Subscriber[memoryview]: ...
    @overload
    def subscriber(
        self, topic: str, kind: type[T], callback: Callable[[Sample[T]], object] | None = None, **options: Any
    ) -> Subscriber[T]: ...
    def subscriber(
        self,
        topic: str,
        kind: Any,
        callback: Callable[[Sample[Any]], object] | None = None,
        *,
        name: str | None = None,
        reliability: str | None = None,
        depth: int | None = None,
        deadline: float | str | None = None,
        sched: str | None = None,
        carriers: Iterable[str] | None = None,
        session: str | None = None,
        polled: bool = False,
        **policies: Policy,
    ) -> Subscriber[Any]:
        """Opens a subscriber to a topic, or to all that match a pattern. With `None` for the type it takes any, as bytes. A callback runs
        on a thread of its own. `polled`: the thread that waits receives, too, which saves a change of threads for each sample.
        """
        stated = {"reliability": reliability, "depth": depth, "deadline": deadline, "sched": sched, **policies}
        options = port_options(name, session, carriers, stated)
        subscriber: Subscriber[Any] = Subscriber(self._raw, topic, type_of(kind), options, polled=polled)
        if callback is not None:
            subscriber.call(callback)
        return subscriber

    def client(self, topic: str, question: type[Q], answer: type[A]) -> Client[Q, A]:
        """A client of the service on a topic."""
        return Client(self._raw, topic, question, answer)

    def server(self, topic: str, question: type[Q], answer: type[A], handler: Callable[[Q], A]) -> Server[Q, A]:
        """A server: `handler` is called with every question, on a thread of its own, and gives the answer."""
        return Server(self._raw, topic, question, answer, handler)

    def list(self) -> builtins.list[Port]:
        """All ports that are known now, of this node and others."""
        return self._raw.list()

    def wait_event(self, timeout: float | None = None) -> str | None:
        """The node's next event as a text: a match, a mismatch with its reason, losses, warnings. `None`: the time has passed. Ports that
        do not match are no error of a call; this tells of them, with both types or policies.
        """
        return self._raw.wait_event(timeout)

    def set(self, publisher: str, subscriber: str, *, class_: str | None = None, sched: str | None = None, **settings: Policy) -> str:
        """Changes the priority of the channel between two ports by name, at both ends, at once and without reconnecting. The text says
        what each end has now, and whether it has an effect. `"default"` takes a setting back. `every=10`, `rate`, `picture` and `proxy` say how
        much of the stream the subscriber gets, as for `thalweg set`.
        """
        return self._raw.change(publisher, subscriber, words({"class_": class_, "sched": sched, **settings}))

    def close(self) -> None:
        """Closes the node and its ports; waiting samples are sent, for a second at most. Threads that wait get `ClosedError`."""
        self._raw.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __repr__(self) -> str:
        return repr(self._raw)
