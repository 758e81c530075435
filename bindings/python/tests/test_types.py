"""Values and their bytes."""

import ast
import enum
import unittest
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Optional

import thalweg
from thalweg import _thalweg

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError:
    np = None


class Mode(enum.Enum):
    Idle = 0
    Run = 7


@thalweg.message
class Point:
    x: thalweg.f64
    y: thalweg.f64


@thalweg.message
class Everything:
    flag: bool
    small: tuple[thalweg.u8, thalweg.i8, thalweg.i16]
    letter: thalweg.char
    wide: Optional[thalweg.u64]
    text: str
    raw: bytes
    id: Annotated[bytes, thalweg.length(3)]
    points: list[Point]
    pair: Annotated[list[thalweg.u16], thalweg.length(2)]
    by_name: dict[str, thalweg.i32]
    mode: Mode
    nothing: None
    last: thalweg.f32 = field(default=0.5)


def everything() -> Everything:
    point = Point(1.0, -2.5)
    return Everything(
        True, (1, -1, -300), "ä", 2**63, "héllo", b"\x00\xff", b"abc", [point, Point(0.0, 4.0)], [7, 8], {"a": -1, "b": 2}, Mode.Run, None
    )


class Values(unittest.TestCase):
    def test_a_value_comes_back(self) -> None:
        message = thalweg.encode(everything())
        self.assertEqual(thalweg.decode(Everything, message), everything())

    def test_bytes_are_those_of_the_document(self) -> None:
        # Little-endian CDR with its header: docs/wire.md and thalweg::codec.
        self.assertEqual(thalweg.encode(Point(1.0, 2.0)).hex(), "00010000" + "000000000000f03f" + "0000000000000040")
        self.assertEqual(thalweg.encode("ab").hex(), "00010000" + "03000000" + "616200")

    def test_structures_are_those_of_rust(self) -> None:
        kind = vars(Everything)["__thalweg_type__"]
        self.assertIn("points:sequence<Point{x:f64,y:f64}>", kind.structure)
        self.assertIn("raw:sequence<u8>", kind.structure)

    def test_wrong_values_name_the_place(self) -> None:
        for change, said in [
            ({"flag": 1}, "Everything.flag: expected bool, found int 1"),
            ({"small": (256, 0, 0)}, "expected u8, found int 256"),
            ({"small": (1, 2)}, "small: expected 3 values, found 2"),
            ({"letter": "ab"}, "letter: expected a str of one character"),
            ({"text": b"a"}, "text: expected a str, found bytes"),
            ({"text": "\ud800"}, "text: expected a str without surrogates"),
            ({"raw": "a"}, "raw: expected bytes"),
            ({"id": b"ab"}, "id: expected 3 elements, found 2"),
            ({"points": [Point(0.0, 0.0), 7]}, "points.[1].x: expected an attribute of Point"),
            ({"points": "ab"}, "points: expected a list, found str"),
            ({"points": None}, "points: expected a list, found NoneType"),
            ({"pair": [1, 2, 3]}, "pair: expected 2 elements, found 3"),
            ({"by_name": {"a": "b"}}, "expected i32, found str 'b'"),
            ({"mode": 7}, "mode: expected a member of Mode, found int 7"),
            ({"last": "x"}, "last: expected f32, found str 'x'"),
        ]:
            value = everything()
            for name, wrong in change.items():
                setattr(value, name, wrong)
            with self.subTest(said), self.assertRaises(thalweg.MessageError) as caught:
                thalweg.encode(value)
            self.assertIn(said, str(caught.exception))

    def test_damaged_messages_are_errors_at_every_byte(self) -> None:
        message = thalweg.encode(everything())
        # 3 bytes may be missing at the end of no message: its last field is a number.
        for end in range(len(message)):
            with self.assertRaises(thalweg.MessageError):
                thalweg.decode(Everything, message[:end])
        for at in range(len(message)):
            for byte in (0, 1, 0x7F, 0xFF):
                damaged = message[:at] + bytes([byte]) + message[at + 1 :]
                try:
                    thalweg.decode(Everything, damaged)
                except thalweg.MessageError as error:
                    self.assertIn("byte", str(error))

    def test_false_counts_take_no_memory(self) -> None:
        for kind in (list[Point], list[str], dict[str, int], bytes, list[bytes], list[None]):
            with self.assertRaises(thalweg.MessageError):
                _thalweg.Type(_layout(kind)).decode(b"\x00\x01\x00\x00" + b"\xff\xff\xff\x7f")

    def test_big_endian_messages_are_read(self) -> None:
        self.assertEqual(thalweg.decode(Point, bytes.fromhex("00000000" + "3ff0000000000000" + "4000000000000000")), Point(1.0, 2.0))

    def test_messages_of_version_two_are_read(self) -> None:
        plain = bytes.fromhex("00070000" + "000000000000f03f" + "0000000000000040")
        self.assertEqual(thalweg.decode(Point, plain), Point(1.0, 2.0))

    def test_annotations_that_are_no_types_are_refused(self) -> None:
        for annotation in (complex, list[complex], set[int], Any, tuple[int, ...], Annotated[int, thalweg.length(3)]):
            with self.subTest(annotation), self.assertRaises(thalweg.UsageError) as caught:

                @thalweg.message
                class Wrong:
                    part: annotation  # type: ignore[valid-type]

            self.assertIn("Wrong.part: ", str(caught.exception))

    def test_views_are_read_only(self) -> None:
        view = _thalweg.Type(("memory",)).decode(thalweg.encode(b"abc", list[thalweg.u8])[:11])
        self.assertEqual((bytes(view), view.readonly), (b"abc", True))


def _layout(kind: Any) -> Any:
    from thalweg._types import layout_of

    return layout_of(kind)


@unittest.skipIf(np is None, "because this Python has no numpy")
class Arrays(unittest.TestCase):
    def test_arrays_come_back_as_views(self) -> None:
        @thalweg.message
        class Scan:
            name: str
            ranges: "NDArray[np.float64]"
            flags: "NDArray[np.bool_]"
            pose: "Annotated[NDArray[np.float32], thalweg.length(3)]"

        scan = Scan("a", np.arange(5.0), np.array([True, False]), np.array([1, 2, 3], np.float32))
        found = thalweg.decode(Scan, thalweg.encode(scan))
        np.testing.assert_array_equal(found.ranges, scan.ranges)
        np.testing.assert_array_equal(found.flags, scan.flags)
        np.testing.assert_array_equal(found.pose, scan.pose)
        self.assertIsNotNone(found.ranges.base)
        self.assertFalse(found.ranges.flags.writeable)
        scan.ranges = np.arange(10.0)[::2]
        np.testing.assert_array_equal(thalweg.decode(Scan, thalweg.encode(scan)).ranges, [0, 2, 4, 6, 8])
        scan.ranges = [1, 2]
        np.testing.assert_array_equal(thalweg.decode(Scan, thalweg.encode(scan)).ranges, [1.0, 2.0])
        for wrong, said in [(np.arange(3, dtype=np.float32), 'format "f"'), (np.arange(3), "convert it with astype"), ("abc", "found str")]:
            scan.ranges = wrong
            with self.subTest(said), self.assertRaisesRegex(thalweg.MessageError, said):
                thalweg.encode(scan)
        scan.ranges, scan.pose = np.zeros(0), np.zeros(4, np.float32)
        with self.assertRaisesRegex(thalweg.MessageError, "pose: expected 3 elements, found 4"):
            thalweg.encode(scan)

    def test_empty_arrays_have_their_type(self) -> None:
        found = _thalweg.Type(("numbers", "i16", None)).decode(b"\x00\x01\x00\x00\x00\x00\x00\x00")
        self.assertEqual((found.dtype, len(found)), (np.dtype(np.int16), 0))

    def test_big_endian_arrays_are_read(self) -> None:
        found = _thalweg.Type(("numbers", "u16", None)).decode(bytes.fromhex("00000000" + "00000002" + "0102" + "0304"))
        np.testing.assert_array_equal(found, [0x102, 0x304])


class Ros(unittest.TestCase):
    def test_known_types_have_their_hash(self) -> None:
        text = thalweg.ros("std_msgs/msg/String")
        kind = vars(text)["__thalweg_type__"]
        self.assertEqual(kind.type_hash, "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18")
        self.assertEqual(thalweg.encode(text("hi")).hex(), "00010000" + "03000000" + "686900")
        self.assertEqual(thalweg.decode(text, thalweg.encode(text(data="hi"))).data, "hi")

    def test_nested_types_have_first_values(self) -> None:
        pose = thalweg.ros("geometry_msgs/msg/PoseStamped")()
        self.assertEqual((pose.header.frame_id, pose.pose.position.x, pose.header.stamp.sec), ("", 0.0, 0))
        pose.pose.position.x = 2.0
        self.assertEqual(thalweg.decode(type(pose), thalweg.encode(pose)).pose.position.x, 2.0)

    def test_a_text_makes_a_type(self) -> None:
        text = "std_msgs/Header header\nfloat64[<=16] values\nuint8[2] pair\nstring[] names\nuint8 lambda\n"
        reading = thalweg.ros_type("robot_msgs/msg/Reading", text)
        value = reading(names=["a", "b"], values=[1.0, 2.0], lambda_=3)
        found = thalweg.decode(reading, thalweg.encode(value))
        self.assertEqual((found.names, list(found.values), list(found.pair), found.lambda_), (["a", "b"], [1.0, 2.0], [0, 0], 3))

    def test_wrong_texts_and_names_are_errors(self) -> None:
        for name, text, said in [("a/msg/B", "float64 X", "line 1"), ("B", "", "expected the name of a ROS 2 type")]:
            with self.assertRaisesRegex(thalweg.UsageError, said):
                thalweg.ros_type(name, text)
        with self.assertRaisesRegex(thalweg.UsageError, "no definition of nobody_msgs/msg/Nothing"):
            thalweg.ros("nobody_msgs/msg/Nothing")


class Stub(unittest.TestCase):
    """An editor shows the words of the stub, `help()` those of the module."""

    def test_both_say_the_same(self) -> None:
        stub = ast.parse((Path(__file__).parents[1] / "thalweg" / "_thalweg.pyi").read_text())
        told = [kind for kind in stub.body if isinstance(kind, ast.ClassDef) and ast.get_docstring(kind)]
        self.assertIn("Publisher", [kind.name for kind in told])
        for kind in told:
            made = getattr(_thalweg, kind.name)
            self.assertEqual(ast.get_docstring(kind), made.__doc__, kind.name)
            for part in kind.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    self.assertEqual(ast.get_docstring(part), getattr(made, part.name).__doc__, f"{kind.name}.{part.name}")


if __name__ == "__main__":
    unittest.main()
