"""Ends and forks: programs of their own, which end by themselves and without an error."""

import os
import subprocess
import sys
import unittest

LONG = 60.0
_realms = iter(range(1000))

BEGIN = """
import os, sys, threading, time
import thalweg
here = thalweg.Node("here", realm=sys.argv[1])
there = thalweg.Node("there", realm=sys.argv[1])
publisher = here.publisher("/a", int)
subscriber = there.subscriber("/a", int)
assert publisher.wait_connected(1, 20) and subscriber.wait_connected(1, 20)
"""


class Programs(unittest.TestCase):
    def run_program(self, text: str) -> str:
        command = [sys.executable, "-X", "faulthandler", "-c", BEGIN + text, f"python-{os.getpid()}-{next(_realms)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout

    def test_exit_with_live_ports(self) -> None:
        self.run_program("loan = publisher.loan(8); data = loan.data")

    def test_exit_with_callbacks(self) -> None:
        self.run_program("there.subscriber('/a', int, lambda sample: sample.value)\nfor number in range(1000): publisher.publish(number)")

    def test_exit_with_waiting_threads(self) -> None:
        self.run_program(
            """
def wait():
    while True:
        try:
            subscriber.wait()
        except thalweg.ClosedError:
            pass
def publish():
    while True:
        try:
            publisher.publish(1)
        except thalweg.ClosedError:
            pass
def connect():
    try:
        publisher.wait_connected(9)
    except thalweg.ClosedError:
        pass
for work in [wait] * 3 + [publish] * 2 + [connect]:
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
        )

    def test_exit_by_an_exception(self) -> None:
        self.run_program("threading.Thread(target=lambda: next(iter(subscriber), None), daemon=True).start()\nsys.exit(0)")

    def test_things_are_dropped_in_any_order(self) -> None:
        said = self.run_program(
            """
import gc
publisher.publish(7)
sample = subscriber.wait(20)
loan = publisher.loan(8)
del here, publisher
gc.collect()
view = memoryview(sample)
del subscriber, there
gc.collect()
del loan, sample
gc.collect()
print(len(view))
ring = []
node = thalweg.Node("ring", realm=sys.argv[1])
ring.append((ring, node, node.subscriber("/b", int)))
del ring, node
print(gc.collect() > 0)
"""
        )
        self.assertEqual(said.split(), ["12", "True"])

    def test_a_forked_process_gets_typed_errors(self) -> None:
        said = self.run_program(
            """
threading.Thread(target=lambda: next(iter(subscriber), None), daemon=True).start()
loan = publisher.loan(8)
child = os.fork()
if child == 0:
    calls = [lambda: publisher.publish(1), lambda: subscriber.wait(0), lambda: here.list(), lambda: here.publisher("/b", int),
             lambda: publisher.loan(3), lambda: loan.publish(), lambda: subscriber.close(), lambda: thalweg.Node("new", realm=sys.argv[1])]
    told = 0
    for call in calls:
        try:
            call()
        except thalweg.ForkedError:
            told += 1
    here.close()
    print(told, flush=True)
    del publisher, subscriber, here, there, loan
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert publisher.publish(2).seq == 1
print(status)
"""
        )
        self.assertEqual(said.split(), ["8", "0"])

    def test_ctrl_c_ends_a_wait(self) -> None:
        said = self.run_program(
            """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    subscriber.wait()
except KeyboardInterrupt:
    print("interrupted")
"""
        )
        self.assertEqual(said.split(), ["interrupted"])


if __name__ == "__main__":
    unittest.main()
