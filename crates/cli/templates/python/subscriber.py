"""Prints positions with their latency, and says so if none comes in time. A publisher that promises less is not matched."""

from contextlib import suppress

import thalweg
from message import DEADLINE, TOPIC, Position

# Ctrl-C ends the program; the node closes first.
with suppress(KeyboardInterrupt), thalweg.Node("subscriber") as node:
    subscriber = node.subscriber(TOPIC, Position, deadline=DEADLINE)
    while True:
        sample = subscriber.wait(DEADLINE)
        if sample is None:
            print(f"no position within {DEADLINE} s", flush=True)
        else:
            print(f"({sample.value.x:.2f}, {sample.value.y:.2f}) after {sample.info.latency_us} us", flush=True)
