"""Publishes as part of a session that a broker has admitted: thalweg session request teleop.toml."""

import sys

import thalweg

session = sys.argv[1] if len(sys.argv) > 1 else "teleop"
with thalweg.Node("operator") as node:
    try:
        publisher = node.publisher("/video", bytes, session=session)
    except thalweg.NotAdmittedError as refused:
        sys.exit(f"{refused}\nany of these would fit: {refused.offers}")
    except thalweg.PeerError as alone:
        sys.exit(str(alone))
    print(publisher.publish(b"a picture"))
