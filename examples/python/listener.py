"""Prints positions with their latency. See talker.py."""

import asyncio

import thalweg


@thalweg.message
class Position:
    x: thalweg.f64
    y: thalweg.f64


async def main() -> None:
    async with thalweg.Node("listener") as node:
        async for sample in node.subscriber("/position", Position, name="/listener"):
            print(f"({sample.value.x:.2f}, {sample.value.y:.2f}) after {sample.info.latency_us} us", flush=True)


asyncio.run(main())
