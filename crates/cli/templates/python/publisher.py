"""Publishes a position ten times a second, and promises one at least every 200 ms."""

import itertools
import math
import time
from contextlib import suppress

import thalweg
from message import DEADLINE, TOPIC, Position

# Ctrl-C ends the program; the node closes first.
with suppress(KeyboardInterrupt), thalweg.Node("publisher") as node:
    publisher = node.publisher(TOPIC, Position, deadline=DEADLINE)
    print(f"{publisher.name} publishes {publisher.topic}; stop with Ctrl-C", flush=True)
    for step in itertools.count():
        publisher.publish(Position(math.cos(step / 10), math.sin(step / 10)))
        time.sleep(0.1)
