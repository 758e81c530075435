"""Says how many images of camera.py came in each second. See docs/first-steps.md."""

import time

import thalweg

with thalweg.Node("viewer") as node:
    came, since = 0, time.monotonic()
    for sample in node.subscriber("/camera", bytes, name="/viewer/camera", depth=2):
        came += 1
        if time.monotonic() - since >= 1:
            print(f"{came} images of {len(sample.value)} bytes", flush=True)
            came, since = 0, time.monotonic()
