"""Subscribers, with iteration, event loops and callbacks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from . import _thalweg
from ._thalweg import ClosedError, Sample, UsageError

T = TypeVar("T")
log = logging.getLogger("thalweg")

# Samples that are taken without a break; then other tasks of the event loop have a turn.
_AT_ONCE = 64


class Subscriber(_thalweg.Subscriber[T]):
    """Receives samples of a topic: `take`, `wait`, `for`, `async for`, or a callback on a thread of its own."""

    _is_awaited = False

    def __iter__(self) -> Iterator[Sample[T]]:
        """All samples until the port is closed."""
        try:
            while True:
                sample = self.wait()
                if sample is not None:
                    yield sample
        except ClosedError:
            return

    def __aiter__(self) -> AsyncIterator[Sample[T]]:
        """All samples until the port is closed; the event loop waits for the port's file."""
        return self._samples()

    async def _samples(self) -> AsyncIterator[Sample[T]]:
        if self._is_awaited:
            raise UsageError(f"{self!r} is awaited already: one task iterates over it, or each has a subscriber of its own")
        self._is_awaited = True
        loop = asyncio.get_running_loop()
        try:
            number = self.fileno()
            while True:
                for _ in range(_AT_ONCE):
                    sample = self.take()
                    if sample is None:
                        break
                    yield sample
                if sample is not None:
                    await asyncio.sleep(0)
                elif not self.arm():
                    await _readable(loop, number)
        except ClosedError:
            return
        finally:
            self._is_awaited = False

    def __enter__(self) -> Subscriber[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, callback: Callable[[Sample[T]], object]) -> None:
        """Calls back with every sample, on a thread of its own, until the port is closed."""
        target = _serve
        threading.Thread(target=target, args=(self, callback), name=f"thalweg {self.topic}", daemon=True).start()


def _serve(subscriber: Subscriber[T], callback: Callable[[Sample[T]], object]) -> None:
    for sample in subscriber:
        try:
            callback(sample)
        except ClosedError:
            return
        except Exception:
            log.exception("%r: the callback failed; it is called with the next sample", subscriber)


async def _readable(loop: asyncio.AbstractEventLoop, number: int) -> None:
    waited: asyncio.Future[None] = loop.create_future()
    loop.add_reader(number, _wake, waited)
    try:
        await waited
    finally:
        loop.remove_reader(number)


def _wake(waited: asyncio.Future[None]) -> None:
    if not waited.done():
        waited.set_result(None)
