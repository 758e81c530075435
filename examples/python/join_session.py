"""Publishes as part of a session that a broker has admitted: `join_session.py SESSION /TOPIC`."""

import sys

import thalweg

if len(sys.argv) != 3:
    print("usage: join_session.py SESSION /TOPIC", file=sys.stderr)
    sys.exit(2)
session, topic = sys.argv[1:]
with thalweg.Node("joiner") as node:
    try:
        publisher = node.publisher(topic, bytes, session=session)
    except thalweg.NotAdmittedError as refused:
        sys.exit(f"{refused}\nany of these would fit: {refused.offers}")
    except thalweg.PeerError as alone:
        sys.exit(str(alone))
    publisher.publish(b"hello")
    print(f"{publisher.name} publishes as part of {session}")
