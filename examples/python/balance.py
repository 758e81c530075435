"""Reads /imu, and says each second after which time the latest reading was here. See imu.py and docs/first-steps.md."""

import time

import thalweg


@thalweg.message
class Imu:
    angle: thalweg.f64


with thalweg.Node("balance") as node:
    latest, since = 0.0, time.monotonic()
    for sample in node.subscriber("/imu", Imu, name="/balance/imu"):
        latest = max(latest, (time.monotonic_ns() - sample.info.source_ns) / 1e6)
        if time.monotonic() - since >= 1:
            print(f"angle {sample.value.angle:+.2f}, the latest reading after {latest:.2f} ms", flush=True)
            latest, since = 0.0, time.monotonic()
