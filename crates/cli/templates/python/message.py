"""The message of both programs, its topic, and the promise."""

import thalweg

TOPIC = "/position"
# The longest time between two positions, in seconds: promised by the publisher, expected by the subscriber.
DEADLINE = 0.2


@thalweg.message
class Position:
    """A position in metres."""

    x: thalweg.f64
    y: thalweg.f64
