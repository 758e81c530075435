"""Asks a server for 6 / 3, or another division: `client.py LEFT RIGHT`. See server.py."""

import sys

import thalweg


@thalweg.message
class Division:
    left: thalweg.i64
    right: thalweg.i64


@thalweg.message
class Quotient:
    value: thalweg.i64


asked = Division(*map(int, sys.argv[1:3])) if len(sys.argv) > 2 else Division(6, 3)
with thalweg.Node("client") as node:
    try:
        quotient = node.client("/divide", Division, Quotient).call(asked, timeout=5)
    except thalweg.PeerError as absent:
        sys.exit(str(absent))
print(f"{asked.left} / {asked.right} = {quotient.value}")
