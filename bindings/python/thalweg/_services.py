"""Services: a server answers the questions of clients."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _thalweg
from ._options import port_options
from ._subscriber import Subscriber
from ._thalweg import ClosedError, PeerError, Publisher
from ._types import layout_of

Q = TypeVar("Q")
A = TypeVar("A")
log = logging.getLogger("thalweg")


@dataclasses.dataclass
class Numbered:
    """A question or an answer with the asker's id and its number, as it travels."""

    asker: int
    number: int
    body: Any


def _numbered(kind: Any) -> _thalweg.Type:
    fields = (("asker", "asker", "u64"), ("number", "number", "u64"), ("body", "body", layout_of(kind)))
    return _thalweg.Type(("struct", "Numbered", Numbered, fields))


def _options() -> dict[str, Any]:
    return port_options(None, None, None, {})


class Client(Generic[Q, A]):
    """Asks questions and waits for answers."""

    def __init__(self, node: _thalweg.Node, topic: str, question: type[Q], answer: type[A]) -> None:
        self._answers: Subscriber[Numbered] = Subscriber(node, f"{topic}/reply", _numbered(answer), _options())
        self._questions: Publisher[Numbered] = Publisher(node, topic, _numbered(question), _options(), self._answers)
        self._asker = (node.id ^ (time.monotonic_ns() << 20)) & (2**64 - 1)
        self._number = 0
        self._lock = threading.Lock()

    def call(self, question: Q, timeout: float = 5.0) -> A:
        """Asks, and waits for the answer; calls of several threads come one after the other."""
        with self._lock:
            until = time.monotonic() + timeout
            topic = self._questions.topic
            for port in (self._questions, self._answers):
                if not port.wait_connected(1, max(until - time.monotonic(), 0.0)):
                    raise PeerError(f"no server on {topic} within {timeout} s: start one, or wait longer")
            self._number += 1
            self._questions.publish(Numbered(self._asker, self._number, question))
            while (sample := self._answers.wait(max(until - time.monotonic(), 0.0))) is not None:
                answer = sample.value
                if (answer.asker, answer.number) == (self._asker, self._number):
                    body: A = answer.body
                    return body
            raise PeerError(f"no answer on {topic} within {timeout} s")

    def close(self) -> None:
        """Closes both ports."""
        self._questions.close()
        self._answers.close()

    def __enter__(self) -> Client[Q, A]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<client of {self._questions.topic}>"


class Server(Generic[Q, A]):
    """Answers questions on a thread of its own until it is closed."""

    def __init__(self, node: _thalweg.Node, topic: str, question: type[Q], answer: type[A], handler: Callable[[Q], A]) -> None:
        self._answers: Publisher[Numbered] = Publisher(node, f"{topic}/reply", _numbered(answer), _options())
        self._questions: Subscriber[Numbered] = Subscriber(node, topic, _numbered(question), _options(), self._answers)
        self._handler = handler
        threading.Thread(target=self._serve, name=f"thalweg {topic}", daemon=True).start()

    def _serve(self) -> None:
        for sample in self._questions:
            try:
                asked = sample.value
                self._answers.publish(Numbered(asked.asker, asked.number, self._handler(asked.body)))
            except ClosedError:
                return
            except Exception:
                # The client's time-out says that there is no answer.
                log.exception("%r: a question has no answer", self._questions)

    def close(self) -> None:
        """Closes both ports."""
        self._questions.close()
        self._answers.close()

    def __enter__(self) -> Server[Q, A]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<server of {self._questions.topic}>"
