"""A subscriber of another type than the talker's: prints why they do not match."""

import thalweg

with thalweg.Node("refused") as node:
    subscriber = node.subscriber("/position", bytes)
    while (event := node.wait_event(20)) is not None:
        if "do not match: type" in event:
            print(event, flush=True)
            break
