"""Publishes an image of 2.8 MB thirty times a second, written where its subscribers read it. See docs/first-steps.md."""

import itertools
import time

import thalweg

SIZE = 1280 * 720 * 3

with thalweg.Node("camera") as node:
    publisher = node.publisher("/camera", bytes)
    for number in itertools.count():
        with publisher.loan(SIZE) as image:
            image[:8] = number.to_bytes(8, "little")
        time.sleep(1 / 30)
