"""Reads ten images in the shared memory in which they were written. See image_publisher.py."""

import sys

import thalweg

SHAPE = (480, 640, 3)

with thalweg.Node("viewer") as node:
    images = node.subscriber("/image", bytes, carriers=["shm"])
    for _ in range(10):
        sample = images.wait(20)
        if sample is None:
            sys.exit("no image came within 20 s")
        image = sample.array("uint8", SHAPE)
        print(f"sample {sample.info.seq}: {image.nbytes} bytes, sum {image.sum()} after {sample.info.latency_us} us", flush=True)
