"""Types of messages: classes of Python, by their annotations."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, dataclass_transform, get_args, get_origin, get_type_hints

from . import _thalweg
from ._thalweg import UsageError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Scalar:
    """The name of a number's type, in an annotation."""

    name: str


@dataclasses.dataclass(frozen=True)
class length:
    """In an annotation: a fixed number of elements, as in `Annotated[NDArray[np.float64], thalweg.length(9)]`."""

    count: int


u8: TypeAlias = Annotated[int, Scalar("u8")]
u16: TypeAlias = Annotated[int, Scalar("u16")]
u32: TypeAlias = Annotated[int, Scalar("u32")]
u64: TypeAlias = Annotated[int, Scalar("u64")]
i8: TypeAlias = Annotated[int, Scalar("i8")]
i16: TypeAlias = Annotated[int, Scalar("i16")]
i32: TypeAlias = Annotated[int, Scalar("i32")]
i64: TypeAlias = Annotated[int, Scalar("i64")]
f32: TypeAlias = Annotated[float, Scalar("f32")]
f64: TypeAlias = Annotated[float, Scalar("f64")]
char: TypeAlias = Annotated[str, Scalar("char")]

Layout: TypeAlias = "str | tuple[Any, ...]"

_PLAIN: dict[Any, Layout] = {
    bool: "bool",
    int: "i64",
    float: "f64",
    str: "string",
    memoryview: ("memory",),
    None: "unit",
    types.NoneType: "unit",
}

# The names of numpy's numbers.
_NUMPY = {f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("uint", "int", "float") for bits in (8, 16, 32, 64)}
_NUMPY["bool"] = _NUMPY["bool_"] = "bool"
del _NUMPY["float8"], _NUMPY["float16"]


@dataclass_transform(field_specifiers=(dataclasses.field,))
def message(cls: type[T]) -> type[T]:
    """Makes a class a message type: a dataclass whose annotations say how its fields travel."""
    made = dataclasses.dataclass(cls)
    # Types that stand where the class stands, such as in a function.
    around = dict(sys._getframe(1).f_locals)
    hints = get_type_hints(made, localns=around, include_extras=True)
    fields = []
    for field in dataclasses.fields(cast(Any, made)):
        if not field.init or field.kw_only:
            raise UsageError(f"{cls.__name__}.{field.name}: a field of a message is an argument by position, neither init=False nor kw_only")
        fields.append((field.name, field.name, _field(cls, field.name, hints[field.name])))
    return with_layout(made, ("struct", cls.__name__, made, tuple(fields)))


def with_layout(cls: type[T], layout: Layout, kind: _thalweg.Type | None = None) -> type[T]:
    """Keeps the layout of a message class, and its type, with it."""
    setattr(cls, "__thalweg_layout__", layout)
    setattr(cls, "__thalweg_type__", kind or _thalweg.Type(layout))
    return cls


def _field(cls: type[Any], name: str, annotation: Any) -> Layout:
    try:
        return layout_of(annotation)
    except UsageError as wrong:
        raise UsageError(f"{cls.__name__}.{name}: {wrong}") from None


def layout_of(annotation: Any) -> Layout:
    """The layout of a type or annotation."""
    count: int | None = None
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        for note in notes:
            if isinstance(note, Scalar):
                return note.name
            if isinstance(note, length):
                count = note.count
    if annotation is bytes:
        return ("bytes", count)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not None and origin.__module__ == "numpy" and origin.__name__ == "ndarray":
        return ("numbers", _number(annotation, arguments), count)
    if origin is list:
        element = layout_of(arguments[0])
        return ("sequence", element) if count is None else ("array", count, element)
    if count is not None:
        raise UsageError(f"{annotation!r} has no length: bytes, lists and arrays have")
    return _other(annotation, origin, arguments)


def _other(annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Layout:
    if origin is tuple and Ellipsis not in arguments:
        return ("tuple", tuple(layout_of(argument) for argument in arguments))
    if origin is dict:
        return ("map", layout_of(arguments[0]), layout_of(arguments[1]))
    if origin in (Union, types.UnionType) and len(arguments) == 2 and types.NoneType in arguments:
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return ("option", layout_of(inner))
    if isinstance(annotation, type):
        if "__thalweg_layout__" in vars(annotation):
            return cast(Layout, vars(annotation)["__thalweg_layout__"])
        if issubclass(annotation, enum.Enum):
            members = tuple(annotation)
            return ("enum", annotation.__name__, members, tuple(member.name for member in members))
    if isinstance(annotation, (type, types.NoneType)) and annotation in _PLAIN:
        return _PLAIN[annotation]
    raise UsageError(
        f"{annotation!r} is no type of a message: use classes with @thalweg.message, thalweg.f64 and its like, str, bytes, "
        "list[...], NDArray[...], tuple[...], dict[...], enums, or one of these | None"
    )


def _number(annotation: Any, arguments: tuple[Any, ...]) -> str:
    numbers = get_args(arguments[1]) if len(arguments) == 2 else ()
    name = getattr(numbers[0], "__name__", "") if numbers else ""
    if name not in _NUMPY:
        raise UsageError(f"{annotation!r}: expected an array of one kind of numbers, such as NDArray[np.float32]")
    return _NUMPY[name]


def type_of(kind: Any) -> _thalweg.Type:
    """The type of a topic: a message class, `bytes`, `str`, `float` or another annotation; `None` is any type."""
    if kind is None:
        return _thalweg.Type.any()
    if kind is bytes:
        return _thalweg.Type.bytes()
    if isinstance(kind, type) and "__thalweg_type__" in vars(kind):
        return cast(_thalweg.Type, vars(kind)["__thalweg_type__"])
    return _thalweg.Type(layout_of(kind))


def encode(value: Any, kind: Any = None) -> bytes:
    """The message of a value: CDR with its header, as it travels."""
    return type_of(type(value) if kind is None else kind).encode(value)


def decode(kind: type[T], data: bytes) -> T:
    """The value of a message."""
    return cast(T, type_of(kind).decode(data))
