"""One end of a measurement by `thalweg bench`: `end.py ROLE KEY=VALUE ...`, with the same work as the ends in Rust.

It prints "ready" when its channels are there. The active roles (ping, publish) wait for a line then, and print "measuring" and their
processor time behind the warm-up; the passive ones (pong, subscribe) end when their input does. Last come a line of JSON with counts, and
the nanoseconds of each measured message (64 bit, little-endian).
"""

import json
import os
import resource
import struct
import sys
import threading
from array import array
from collections.abc import Callable
from time import monotonic_ns, process_time_ns, sleep
from typing import Any

import thalweg

try:
    import numpy
except ImportError:  # needed to look at memory in place
    numpy = None  # type: ignore[assignment]

PING, PONG = "/bench/ping", "/bench/pong"
SAMPLES, BESIDE = "/bench/samples", "/bench/beside"
PATIENCE_S = 20.0
CONNECTS_S = 30.0
PERIOD_NS = 1_000_000
# The publisher's queues of the stream keep a second of it, so that an end without a processor for a while loses nothing. A polled subscriber takes
# samples out of these, one at a time; another one has a queue of its own, whose samples are in the publisher's memory: a quarter of what that keeps.
STREAM_QUEUE, TAKEN_QUEUE = "keep-last 1000", "keep-last 250"
# Samples of the second topic: every so many of the first.
SELDOM = 100
ASLEEP_S = 0.1
# The latency of a sample that never came.
MISSED = 2**64 - 1
STAMP = struct.Struct("<QQ")


class Terms:
    """The terms of the measurement, from the arguments."""

    def __init__(self, words: list[str]) -> None:
        stated = dict(word.split("=", 1) for word in words)
        self.realm, self.carrier = stated["realm"], stated["carrier"]
        self.payload, self.beside = stated["payload"], stated["beside"]
        self.size, self.subscribers = int(stated["size"]), int(stated["subscribers"])
        self.warmup, self.count = int(stated["warmup"]), int(stated["count"])
        self.all = self.warmup + self.count

    def options(self) -> dict[str, Any]:
        return {"carriers": [self.carrier], "max_message": self.size}


class Copies:
    """Counts messages in memory of this process alone. Such a message is copied on its way between publisher and subscriber."""

    def __init__(self) -> None:
        self.count = self.looked = 0
        self._shared: list[tuple[int, int]] = []

    def look(self, memory: Any) -> None:
        address = numpy.frombuffer(memory, "u1").__array_interface__["data"][0]
        self.looked += 1
        self.count += not self._is_shared(address)

    def _is_shared(self, address: int) -> bool:
        if not self._holds(address):
            self._shared = shared_mappings()
        return self._holds(address)

    def _holds(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._shared)


def shared_mappings() -> list[tuple[int, int]]:
    """Where this process sees memory that others see, too."""
    found = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        for line in lines:
            place, rights, _ = line.split(None, 2)
            if rights.endswith("s"):
                start, end = place.split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


class Work:
    """The work on each message: `send` publishes number n, `receive` looks at it. Memory is looked up in the warm-up only."""

    send: Callable[[int], object]
    receive: Callable[[thalweg.Sample[Any], int], object]

    def __init__(self, publisher: thalweg.Publisher[Any], terms: Terms) -> None:
        self.copies = Copies()
        self._loan, self._size, self._warmup = publisher.loan, terms.size, terms.warmup
        if terms.payload == "copied":
            own, publish = bytes(terms.size), publisher.publish
            self._sink = memoryview(bytearray(terms.size))
            self.send = lambda _: publish(own)
            self.receive = self._copy if terms.carrier == "shm" else self._measure
            return
        if numpy is None:
            sys.exit(f"payload {terms.payload}: this Python has no numpy")
        is_checked = terms.payload == "checked"
        self.send = self._fill if is_checked else self._pass
        self.receive = self._verify if is_checked else self._look

    def _measure(self, sample: thalweg.Sample[Any], number: int) -> None:
        if len(sample) != self._size:
            sys.exit(f"message {number} has {len(sample)} bytes, not {self._size}")

    def _copy(self, sample: thalweg.Sample[Any], number: int) -> None:
        self._measure(sample, number)
        self._sink[:] = sample

    def _lend(self, number: int) -> thalweg.Loan:
        loan = self._loan(self._size)
        if number < self._warmup:
            self.copies.look(loan)
        return loan

    def _pass(self, number: int) -> None:
        self._lend(number).publish()

    def _fill(self, number: int) -> None:
        loan = self._lend(number)
        loan.array()[:] = number & 0xFF
        loan.publish()

    def _look(self, sample: thalweg.Sample[Any], number: int) -> None:
        self._measure(sample, number)
        if number < self._warmup:
            self.copies.look(sample)

    def _verify(self, sample: thalweg.Sample[Any], number: int) -> None:
        self._look(sample, number)
        words, rest = divmod(self._size, 8)
        found = int(numpy.frombuffer(sample, "<u8", words).sum(dtype="u8")) if words else 0
        found += int.from_bytes(sample.data[8 * words :], "little")
        byte = number & 0xFF
        wanted = words * int.from_bytes(bytes([byte]) * 8, "little") + int.from_bytes(bytes([byte]) * rest, "little")
        if (found - wanted) % 2**64:
            sys.exit(f"message {number} has the checksum {found:#x}, not {wanted:#x}")


def say(line: str) -> None:
    print(line, flush=True)


def begin() -> None:
    say("ready")
    if not sys.stdin.readline():
        sys.exit("the measuring process has gone")


def connected(*ports: Any) -> None:
    for port in ports:
        if not port.wait_connected(1, CONNECTS_S):
            sys.exit(f"{port!r} has no channel after {CONNECTS_S:.0f} s")


def report(times: "array[int]", copies: Copies | None = None) -> None:
    if sys.byteorder == "big":
        times.byteswap()
    seen = copies.count if copies and copies.looked else None
    rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say(json.dumps({"copies": seen, "rss_kib": rss_kib, "times": len(times), "cpu_ns": process_time_ns()}))
    sys.stdout.buffer.write(times.tobytes())
    sys.stdout.buffer.flush()


def ping(node: thalweg.Node, terms: Terms) -> None:
    publisher = node.publisher(PING, bytes, **terms.options())
    subscriber = node.subscriber(PONG, bytes, polled=True, **terms.options())
    work, times = Work(publisher, terms), array("Q", bytes(8 * terms.count))
    send, receive, wait, warmup = work.send, work.receive, subscriber.wait, terms.warmup
    connected(publisher, subscriber)
    begin()
    for number in range(terms.all):
        if number == warmup:
            say(f"measuring {process_time_ns()}")
        start = monotonic_ns()
        send(number)
        sample = wait(PATIENCE_S)
        if sample is None:
            sys.exit(f"no echo of message {number} within {PATIENCE_S:.0f} s")
        receive(sample, number)
        took = monotonic_ns() - start
        if number >= warmup:
            times[number - warmup] = took
    report(times, work.copies)


def pong(node: thalweg.Node, terms: Terms) -> None:
    publisher = node.publisher(PONG, bytes, **terms.options())
    subscriber = node.subscriber(PING, bytes, polled=True, **terms.options())
    work = Work(publisher, terms)
    send, receive = work.send, work.receive
    connected(publisher, subscriber)
    say("ready")
    close_at_end(subscriber).set()
    for number, sample in enumerate(subscriber):
        receive(sample, number)
        send(number)
    report(array("Q"), work.copies)


def publish(node: thalweg.Node, terms: Terms) -> None:
    publisher = node.publisher(SAMPLES, bytes, queue=STREAM_QUEUE, **terms.options())
    beside = None if terms.beside == "none" else node.publisher(BESIDE, bytes, **terms.options())
    message, note, warmup = bytearray(terms.size), bytes(terms.size), terms.warmup
    if not publisher.wait_connected(terms.subscribers, CONNECTS_S):
        sys.exit(f"{publisher.connected} of {terms.subscribers} subscribers are connected after {CONNECTS_S:.0f} s")
    if beside is not None:
        connected(beside)
    begin()
    due = monotonic_ns()
    for number in range(terms.all):
        if number == warmup:
            say(f"measuring {process_time_ns()}")
        due += PERIOD_NS
        left = due - monotonic_ns()
        if left > 0:
            sleep(left / 1e9)
        STAMP.pack_into(message, 0, monotonic_ns(), number)
        published = publisher.publish(message)
        if published.sent + published.queued != terms.subscribers:
            sys.exit(f"sample {number} was not taken for all of {terms.subscribers} subscribers: {published}")
        if beside is not None and number % SELDOM == 0:
            beside.publish(note)
    report(array("Q"))


def subscribe(node: thalweg.Node, terms: Terms) -> None:
    # The row with a callback beside is about ports as they are by default.
    is_polled = terms.beside == "none"
    options = terms.options() if is_polled else terms.options() | {"queue": TAKEN_QUEUE}
    subscriber = node.subscriber(SAMPLES, bytes, polled=is_polled, **options)
    if terms.beside != "none":
        pause = ASLEEP_S if terms.beside == "asleep" else 0.0
        other = node.subscriber(BESIDE, bytes, lambda _: sleep(pause) if pause else None, **terms.options())
        connected(other)
    times, warmup, last = array("Q", [MISSED]) * terms.count, terms.warmup, terms.all - 1
    connected(subscriber)
    say("ready")
    came = close_at_end(subscriber)
    for sample in subscriber:
        now = monotonic_ns()
        stamp, number = STAMP.unpack_from(sample)
        if number >= warmup:
            times[number - warmup] = now - stamp
        if number == last:
            came.set()
    report(times)


def close_at_end(subscriber: thalweg.Subscriber[Any]) -> threading.Event:
    """Closes the port when the input ends; one that waits for a last sample goes on until the event is set."""
    came = threading.Event()

    def close() -> None:
        while os.read(0, 4096):
            pass
        came.wait(PATIENCE_S)
        subscriber.close()

    threading.Thread(target=close, daemon=True).start()
    return came


ROLES: dict[str, Callable[[thalweg.Node, Terms], None]] = {"ping": ping, "pong": pong, "publish": publish, "subscribe": subscribe}


def main() -> None:
    role, terms = ROLES[sys.argv[1]], Terms(sys.argv[2:])
    # Several subscribers are in one realm, where names are unique.
    with thalweg.Node(f"{sys.argv[1]}-{os.getpid()}", realm=terms.realm) as node:
        role(node, terms)


if __name__ == "__main__":
    main()
