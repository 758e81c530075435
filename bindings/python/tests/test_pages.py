"""The Python in README.md and in the pages: it compiles, its names exist, and whole programs run."""

import ast
import os
import re
import select
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import thalweg

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
LONG = 60


def blocks(*pages):
    """Each block with its place."""
    for page in pages:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            yield f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}", match[1]


class Pages(unittest.TestCase):
    def test_blocks_compile_and_their_names_exist(self) -> None:
        found = [*blocks(README, *sorted((ROOT / "docs").glob("*.md")))]
        self.assertGreater(len(found), 5)
        for place, text in found:
            with self.subTest(place):
                tree = compile(text, place, "exec", ast.PyCF_ONLY_AST | AWAITS)
                compile(tree, place, "exec", AWAITS)
                for node in ast.walk(tree):
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thalweg":
                        self.assertTrue(hasattr(thalweg, node.attr), f"thalweg.{node.attr}")

    def test_whole_programs_run(self) -> None:
        """A program that imports thalweg is whole; those of the first page do not end."""
        programs = [(place, text) for place, text in blocks(*(ROOT / "docs").glob("*.md")) if text.startswith("import thalweg\n")]
        self.assertTrue(programs)
        with tempfile.TemporaryDirectory() as run:
            for place, text in programs:
                with self.subTest(place):
                    environment = os.environ | {"THALWEG_RUN_DIR": run}
                    subprocess.run([sys.executable, "-c", text], env=environment, timeout=LONG, check=True)

    def test_the_listener_of_the_first_page_hears_its_talker(self) -> None:
        talker, listener = (text for _, text in blocks(README))
        with tempfile.TemporaryDirectory() as run:
            start = {"env": os.environ | {"THALWEG_RUN_DIR": run}, "stdout": subprocess.PIPE}
            with (
                subprocess.Popen([sys.executable, "-c", talker], **start) as talks,
                subprocess.Popen([sys.executable, "-c", listener], **start) as listens,
            ):
                try:
                    ready, _, _ = select.select([listens.stdout], [], [], LONG)
                    self.assertTrue(ready, "the listener hears nothing")
                    self.assertTrue(listens.stdout.readline().startswith(b"1.0 "))
                finally:
                    talks.kill()
                    listens.kill()


if __name__ == "__main__":
    unittest.main()
