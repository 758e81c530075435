"""Message types of ROS 2, from the texts of their packages."""

from __future__ import annotations

import array
import dataclasses
import keyword
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from . import _thalweg
from ._types import Layout, with_layout
from ._thalweg import UsageError

_SIMPLE = "bool byte char float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 string"

# Fields of types that nearly every program uses; files that are installed come first.
_TEXTS = {f"std_msgs/msg/{'String' if name == 'string' else name.capitalize().replace('Uint', 'UInt')}": f"{name} data" for name in _SIMPLE.split()}
_TEXTS |= {
    "std_msgs/msg/Empty": "",
    "std_msgs/msg/ColorRGBA": "float32 r\nfloat32 g\nfloat32 b\nfloat32 a",
    "geometry_msgs/msg/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/msg/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/msg/Quaternion": "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1",
    "geometry_msgs/msg/Pose": "Point position\nQuaternion orientation",
    "geometry_msgs/msg/Twist": "Vector3 linear\nVector3 angular",
    "geometry_msgs/msg/PoseStamped": "std_msgs/Header header\nPose pose",
    "geometry_msgs/msg/TwistStamped": "std_msgs/Header header\nTwist twist",
    "sensor_msgs/msg/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
    ),
    "sensor_msgs/msg/Imu": (
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance"
    ),
}

_LONGEST = 2 << 20
_FORMATS = {"bool": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "f32": "f", "f64": "d"}

_definitions = _thalweg.Definitions()
_added: set[str] = set()
_classes: dict[str, type[Any]] = {}
_parts: dict[Layout, type[Any]] = {}
_lock = threading.RLock()


def ros(name: str, definitions: Iterable[str | os.PathLike[str]] = ()) -> type[Any]:
    """The message class of a ROS 2 type, such as `std_msgs/msg/String`, or of a part of a service, such as `std_srvs/srv/SetBool_Request`.

    Definitions are looked up in `ros_type`'s, in these directories (DIR/std_msgs/msg/String.msg), in `share` of AMENT_PREFIX_PATH, and
    among the few that Thalweg brings along.
    """
    with _lock:
        if name not in _classes:
            directories = [Path(directory) for directory in definitions] or _installed()
            while (missing := _definitions.missing(name)) is not None:
                if not _add(missing, directories):
                    raise UsageError(_absent(missing, directories))
            _classes[name] = _class(name)
        return _classes[name]


def ros_type(name: str, text: str) -> type[Any]:
    """The message class of a ROS 2 type with this text, that of its `.msg` file; texts of others may follow, as in MCAP files."""
    with _lock:
        _definitions.add(name, text)
        _added.add(name)
        return ros(name)


def _installed() -> list[Path]:
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    return [Path(prefix) / "share" for prefix in prefixes if prefix]


def _add(name: str, directories: list[Path]) -> bool:
    """Adds the definition of a type. A file has all parts of a service or an action."""
    package, kind, short = name.split("/")
    full = f"{package}/{kind}/{short.split('_')[0]}"
    if full in _added:
        return False
    files = [path for path in (directory / f"{full}.{kind}" for directory in directories) if path.is_file()]
    if files:
        with open(files[0], encoding="utf-8") as file:
            _definitions.add(full, file.read(_LONGEST))
    elif full in _TEXTS:
        _definitions.add(full, _TEXTS[full])
    else:
        return False
    _added.add(full)
    return True


def _absent(name: str, directories: list[Path]) -> str:
    searched = ", ".join(map(str, directories)) or "no directory, as AMENT_PREFIX_PATH is not set"
    return f"no definition of {name} in {searched}: name its directory with definitions=[...], or add its text with thalweg.ros_type(name, text)"


def _class(name: str) -> type[Any]:
    layout = cast("tuple[Any, ...]", _filled(_definitions.layout(name)))
    made = _made(layout)
    own = ("struct", layout[1], made, layout[3])
    return with_layout(made, own, _thalweg.Type(own, _definitions, name))


def _filled(layout: Layout) -> Layout:
    """The layout with classes in place of `None`."""
    if isinstance(layout, str):
        return layout
    if layout[0] == "sequence":
        return ("sequence", _filled(layout[1]))
    if layout[0] == "array":
        return ("array", layout[1], _filled(layout[2]))
    if layout[0] != "struct":
        return layout
    fields = tuple((_attribute(attribute), field, _filled(part)) for attribute, field, part in layout[3])
    filled = ("struct", layout[1], None, fields)
    if filled not in _parts:
        _parts[filled] = _made(filled)
    return ("struct", layout[1], _parts[filled], fields)


def _attribute(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _made(layout: tuple[Any, ...]) -> type[Any]:
    fields = [(attribute, Any, dataclasses.field(default_factory=_default(part))) for attribute, _, part in layout[3]]
    made = dataclasses.make_dataclass(cast(str, layout[1]), fields, namespace={"__module__": "thalweg.ros"}, eq=False)
    return with_layout(made, ("struct", layout[1], made, layout[3]))


def _default(layout: Layout) -> Callable[[], Any]:
    """Makes the first value of a field: zeros, as in other languages of ROS 2."""
    if isinstance(layout, str):
        return {"bool": bool, "string": str, "f32": float, "f64": float}.get(layout, int)
    if layout[0] == "numbers":
        return lambda: _zeros(layout[1], layout[2] or 0)
    if layout[0] == "array":
        return lambda: [_default(layout[2])() for _ in range(layout[1])]
    return cast(Callable[[], Any], layout[2]) if layout[0] == "struct" else list


def _zeros(number: str, count: int) -> Any:
    try:
        import numpy
    except ImportError:
        return array.array(_FORMATS[number], bytes(count * array.array(_FORMATS[number]).itemsize))
    return numpy.zeros(count, "?" if number == "bool" else f"{number[0]}{int(number[1:]) // 8}")
