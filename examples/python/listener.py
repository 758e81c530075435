"""Prints positions with their latency; `listener.py COUNT` ends after so many. See talker.py."""

import asyncio
import sys

import thalweg


@thalweg.message
class Position:
    robot: str
    x: thalweg.f64
    y: thalweg.f64


async def main(left: int) -> None:
    async with thalweg.Node("listener") as node:
        async for sample in node.subscriber("/position", Position, name="/listener"):
            at, info = sample.value, sample.info
            print(f"sample {info.seq}: {at.robot} at ({at.x:.2f}, {at.y:.2f}) after {info.latency_us} us", flush=True)
            left -= 1
            if left == 0:
                break


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else -1))
