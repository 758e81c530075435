"""The native module."""

import builtins
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")

__version__: str

def end() -> None: ...
def forked() -> None: ...

class Error(Exception):
    """An error of Thalweg. Its text names the cause and the remedy."""

class UsageError(Error):
    """A bad name, a value out of range, a combination that does not exist."""

class ConfigurationError(Error):
    """A configuration file or environment variable is wrong."""

class KernelError(Error):
    """The kernel refused: a permission, a missing feature, a resource in use."""

class PeerError(Error):
    """The other end or the network: not reachable, refused, no answer in time."""

class NameTakenError(Error):
    """Another port has the name."""

class NotAdmittedError(Error):
    """The session is not active, or has no such topic; `offers` would make it fit."""

    offers: list[str]

class MessageError(Error):
    """A value or a message that is none of its type, or too large."""

class LoanError(Error):
    """A loan whose memory is still seen, or one that is over."""

class ClosedError(Error):
    """The node or port is closed."""

class ForkedError(Error):
    """The node belongs to the process from which this one was forked."""

class Type:
    def __new__(cls, layout: str | tuple[Any, ...], definitions: Definitions | None = None, name: str | None = None) -> Type: ...
    @staticmethod
    def bytes() -> Type: ...
    @staticmethod
    def any() -> Type: ...
    @property
    def name(self) -> str: ...
    @property
    def structure(self) -> str | None: ...
    @property
    def type_hash(self) -> str | None: ...
    def encode(self, value: Any) -> builtins.bytes: ...
    def decode(self, message: builtins.bytes) -> Any: ...

class Definitions:
    def __new__(cls) -> Definitions: ...
    def add(self, name: str, text: str) -> None: ...
    def missing(self, name: str) -> str | None: ...
    def layout(self, name: str) -> tuple[Any, ...]: ...

class Node:
    def __new__(cls, options: dict[str, Any]) -> Node: ...
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> int: ...
    def list(self) -> builtins.list[Port]: ...
    def wait_event(self, timeout: float | None = None) -> str | None: ...
    def change(self, publisher: str, subscriber: str, words: builtins.list[str]) -> str: ...
    def close(self) -> None: ...

class Port:
    """A port that is known to a node."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def direction(self) -> Literal["publisher", "subscriber"]:
        """`publisher` or `subscriber`."""
    @property
    def topic(self) -> str:
        """Its topic, or pattern of topics."""
    @property
    def type(self) -> str:
        """The name of its type, `*` for any."""
    @property
    def node(self) -> str:
        """The name of its node."""
    @property
    def host(self) -> str:
        """The name of its host."""
    @property
    def pid(self) -> int:
        """The number of its process there."""

class Published:
    """The outcome of a publication."""

    @property
    def seq(self) -> int:
        """The sample's number, counted from 1."""
    @property
    def sent(self) -> int:
        """Channels on which it was sent."""
    @property
    def queued(self) -> int:
        """Channels on which it waits."""
    @property
    def dropped(self) -> int:
        """Samples that channels dropped for it, or it."""
    @property
    def not_connected(self) -> int:
        """Channels that are broken now."""

class Publisher(Generic[T]):
    """Publishes samples of a topic: `publish`, or `loan` for a message that is written in place."""

    def __new__(cls, node: Node, topic: str, kind: Type, options: dict[str, Any], answered_at: Subscriber[Any] | None = None) -> Publisher[T]: ...
    @property
    def name(self) -> str:
        """The port's name."""
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def connected(self) -> int:
        """The number of channels."""
    def publish(self, value: T) -> Published:
        """Publishes a value on all channels."""
    def loan(self, size: int) -> Loan:
        """A message of `size` bytes that is written in place: in the subscribers' own shared memory where the carrier allows."""
    def wait_connected(self, count: int = 1, timeout: float | None = None) -> bool:
        """Waits until there are `count` channels, for `timeout` seconds at most if they are given. `False`: the time has passed."""
    def close(self) -> None:
        """Closes the port after its waiting samples are sent, for a second at most."""
    def __enter__(self) -> Publisher[T]: ...
    def __exit__(
        self, kind: builtins.type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

class Loan:
    """A message to be written in place. It ends with `publish`, or unpublished when it is dropped."""

    @property
    def data(self) -> memoryview:
        """The memory, writable until the loan is published."""
    def array(self, dtype: str = "uint8", shape: int | tuple[int, ...] | None = None) -> Any:
        """The memory as a numpy array."""
    def publish(self) -> Published:
        """Publishes the message. Views of it are dead then; an array of it that is still there is an error."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __enter__(self) -> memoryview: ...
    def __exit__(
        self, kind: builtins.type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

class Subscriber(Generic[T]):
    """A subscriber as Python holds it; `thalweg.Subscriber` adds iteration and callbacks."""

    def __init__(
        self,
        node: Node,
        topic: str,
        kind: Type,
        options: dict[str, Any],
        answering_with: Publisher[Any] | None = None,
        polled: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The port's name."""
    @property
    def topic(self) -> str:
        """The topic, or pattern of topics."""
    @property
    def connected(self) -> int:
        """The number of channels."""
    @property
    def dropped(self) -> int:
        """The number of samples that were dropped because they were not taken in time."""
    def take(self) -> Sample[T] | None:
        """The oldest waiting sample, without waiting. `None`: there is none."""
    def wait(self, timeout: float | None = None) -> Sample[T] | None:
        """The oldest waiting sample; waits for one, for `timeout` seconds at most if they are given. `None`: the time has passed."""
    def fileno(self) -> int:
        """The number of a file that is readable when a sample may wait, for event loops. `arm` comes before each wait."""
    def arm(self) -> bool:
        """`True` if a sample waits; otherwise the file becomes readable when one does. No thread may wait meanwhile."""
    def wait_connected(self, count: int = 1, timeout: float | None = None) -> bool:
        """Waits until there are `count` channels, for `timeout` seconds at most if they are given. `False`: the time has passed."""
    def close(self) -> None:
        """Closes the port. Whoever waits for it is woken."""

class Memory:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Sample(Generic[T]):
    """A received sample: its value, its memory, and what is known of it."""

    @property
    def value(self) -> T:
        """The value; decoded when it is first asked for."""
    @property
    def data(self) -> memoryview:
        """The received bytes, where they were received."""
    @property
    def info(self) -> Info:
        """Number, times and source."""
    def array(self, dtype: str = "uint8", shape: int | tuple[int, ...] | None = None) -> Any:
        """The received bytes as a numpy array, where they were received."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Info:
    """Number, times and source of a sample."""

    @property
    def seq(self) -> int:
        """The sample's number, given by its publisher, counted from 1."""
    @property
    def source_ns(self) -> int:
        """Time of publication: CLOCK_MONOTONIC of the publisher's host (`time.monotonic_ns`), ns."""
    @property
    def received_ns(self) -> int:
        """Time of reception: CLOCK_MONOTONIC of this host, ns."""
    @property
    def latency_us(self) -> float | None:
        """Microseconds from publication to reception; `None`: the clocks of the two hosts differ."""
    @property
    def source(self) -> str | None:
        """The name of the publishing port; `None`: not known any more."""
    @property
    def node(self) -> int:
        """The id of the publishing node."""
    @property
    def historical(self) -> bool:
        """`True`: it was published before later samples that are here already."""
    @property
    def change(self) -> Literal["written", "disposed", "unregistered"]:
        """`written`, `disposed` or `unregistered`."""
