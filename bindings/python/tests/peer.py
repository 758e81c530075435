"""The other end of tests/peers.rs: sends back what it gets, answers and asks. Prints a line when it is ready, and one for each answer."""

import enum
import sys
from typing import Annotated, Optional

import thalweg


class Mode(enum.Enum):
    Idle = "idle"
    Run = "run"


@thalweg.message
class Time:
    sec: thalweg.i32
    nanosec: thalweg.u32


@thalweg.message
class Everything:
    flag: bool
    small: tuple[thalweg.u8, thalweg.i8, thalweg.i16]
    letter: thalweg.char
    wide: Optional[thalweg.u64]
    text: str
    raw: bytes
    stamps: Annotated[list[Time], thalweg.length(2)]
    names: list[str]
    numbers: list[thalweg.f32]
    by_name: dict[str, Optional[thalweg.i64]]
    mode: Mode
    last: thalweg.u8


@thalweg.message
class Sum:
    left: thalweg.i64
    right: thalweg.i64


@thalweg.message
class Total:
    total: thalweg.i64


def back(topic, kind, **options):
    publisher = node.publisher(f"{topic}/back", kind, **options)
    return publisher, node.subscriber(topic, kind, lambda sample: publisher.publish(sample.value), **options)


def image_back(sample):
    with images.loan(len(sample)) as data:
        data[:] = sample.data


node = thalweg.Node("python", realm=sys.argv[1])
ports = [back("/text", str), back("/everything", Everything), back("/number", float)]
images = node.publisher("/image/back", bytes, carriers=["shm"])
ports.append((images, node.subscriber("/image", bytes, image_back, carriers=["shm"])))
server = node.server("/python/add", Sum, Total, lambda sum: Total(sum.left + sum.right))
client = node.client("/rust/add", Sum, Total)
node.subscriber("/ask", Sum, lambda sample: print(client.call(sample.value, 20).total, flush=True))
print("ready", flush=True)
sys.stdin.read()
