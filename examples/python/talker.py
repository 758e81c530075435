"""Publishes the position of a robot ten times a second. See listener.py."""

import itertools
import time

import thalweg


@thalweg.message
class Position:
    robot: str
    x: thalweg.f64
    y: thalweg.f64


with thalweg.Node("talker") as node:
    publisher = node.publisher("/position", Position, name="/talker")
    for step in itertools.count():
        at = Position("Zoë", step / 10, (step / 10) ** 2)
        published = publisher.publish(at)
        print(f"sample {published.seq}: {at.robot} at ({at.x:.2f}, {at.y:.2f}) sent on {published.sent} channels", flush=True)
        time.sleep(0.1)
