"""Sets the priority of a live channel: `set_priority.py /talker /listener "class=high sched=fifo:30"`."""

import sys

import thalweg

if len(sys.argv) != 4:
    print("usage: set_priority.py PUBLISHER SUBSCRIBER SETTINGS", file=sys.stderr)
    sys.exit(2)
publisher, subscriber, settings = sys.argv[1:]
with thalweg.Node("administrator") as node:
    try:
        print(node.set(publisher, subscriber, **dict(word.split("=", 1) for word in settings.split())))
    except thalweg.Error as refused:
        sys.exit(str(refused))
