"""Publishes a position ten times a second. See listener.py."""

import itertools
import math
import time

import thalweg


@thalweg.message
class Position:
    x: thalweg.f64
    y: thalweg.f64


with thalweg.Node("talker") as node:
    publisher = node.publisher("/position", Position, name="/talker", class_="high")
    for step in itertools.count():
        print(publisher.publish(Position(math.cos(step / 10), math.sin(step / 10))), flush=True)
        time.sleep(0.1)
