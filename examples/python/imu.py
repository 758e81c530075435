"""Publishes the angle of a pendulum two hundred times a second, as an inertial sensor would. See docs/first-steps.md."""

import math
import time

import thalweg


@thalweg.message
class Imu:
    angle: thalweg.f64


with thalweg.Node("imu") as node:
    publisher = node.publisher("/imu", Imu)
    due = time.monotonic()
    while True:
        publisher.publish(Imu(math.sin(due)))
        due = max(due + 0.005, now := time.monotonic())
        time.sleep(due - now)
