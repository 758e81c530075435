"""Gives the channel of talker.py and listener.py a priority, or that of two other ports."""

import sys

import thalweg

publisher, subscriber = sys.argv[1:3] if len(sys.argv) > 2 else ("/talker", "/listener")
with thalweg.Node("administrator") as node:
    try:
        print(node.set(publisher, subscriber, class_="high", sched="fifo:30"))
    except thalweg.KernelError as refused:  # a real-time priority takes a permission
        print(refused)
        print(node.set(publisher, subscriber, class_="high"))
