"""Publishes images over shared memory, each written where its subscribers read it: nothing is copied. See image_subscriber.py."""

import itertools
import time

import thalweg

SHAPE = (480, 640, 3)
BYTES = 480 * 640 * 3

with thalweg.Node("camera") as node:
    publisher = node.publisher("/image", bytes, carriers=["shm"])
    for number in itertools.cycle(range(256)):
        loan = publisher.loan(BYTES)
        loan.array("uint8", SHAPE)[:] = number
        published = loan.publish()
        print(f"sample {published.seq}: {BYTES} bytes, sum {BYTES * number} sent on {published.sent} channels", flush=True)
        time.sleep(0.1)
