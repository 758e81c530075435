"""Divides for its clients. See client.py."""

import signal

import thalweg


@thalweg.message
class Division:
    left: thalweg.i64
    right: thalweg.i64


@thalweg.message
class Quotient:
    value: thalweg.i64


with thalweg.Node("server") as node:
    # An exception, as by a division by zero, is logged, and the client's time passes.
    server = node.server("/divide", Division, Quotient, lambda asked: Quotient(asked.left // asked.right))
    print("serves /divide", flush=True)
    signal.pause()
