"""Ports: samples, loans, waits, callbacks, event loops, services, priorities."""

import asyncio
import gc
import os
import queue
import threading
import unittest

import thalweg

try:
    import numpy as np
except ImportError:
    np = None

LONG = 20.0
_realms = iter(range(1000))


@thalweg.message
class Point:
    x: thalweg.f64
    name: str


class Ports(unittest.TestCase):
    def setUp(self) -> None:
        realm = f"python-{os.getpid()}-{next(_realms)}"
        self.here = thalweg.Node("here", realm=realm)
        self.there = thalweg.Node("there", realm=realm)
        self.addCleanup(self.there.close)
        self.addCleanup(self.here.close)

    def pair(self, kind=bytes, **options):
        """A publisher and a subscriber that are connected."""
        publisher = self.here.publisher("/a", kind, **options)
        subscriber = self.there.subscriber("/a", kind, **options)
        self.connected(publisher, subscriber)
        return publisher, subscriber

    def connected(self, *ports) -> None:
        for port in ports:
            self.assertTrue(port.wait_connected(1, LONG), port)

    def test_values_over_each_carrier(self) -> None:
        for carrier in ("shm", "tcp"):
            with self.subTest(carrier):
                publisher, subscriber = self.pair(Point, carriers=[carrier])
                published = publisher.publish(Point(0.5, "left"))
                sample = subscriber.wait(LONG)
                self.assertEqual(sample.value, Point(0.5, "left"))
                self.assertIs(sample.value, sample.value)
                info = sample.info
                self.assertEqual((info.seq, published.seq, info.source, info.change), (1, 1, publisher.name, "written"))
                self.assertEqual(info.node, self.here.id)
                self.assertLess(info.source_ns, info.received_ns)
                self.assertAlmostEqual(info.latency_us, (info.received_ns - info.source_ns) / 1e3)
                publisher.close()
                subscriber.close()

    def test_wrong_values_are_not_published(self) -> None:
        publisher, subscriber = self.pair(Point)
        for wrong in (1, None, "text", {"x": 1}, Point("a", "b")):
            with self.assertRaises(thalweg.MessageError):
                publisher.publish(wrong)
        publisher.publish(Point(1, "x"))
        self.assertEqual(subscriber.wait(LONG).info.seq, 1)

    def test_received_memory_outlives_the_port(self) -> None:
        publisher, subscriber = self.pair(carriers=["shm"])
        publisher.publish(bytes(range(256)) * 4096)
        view = memoryview(subscriber.wait(LONG))
        self.assertTrue(view.readonly)
        self.there.close()
        self.here.close()
        gc.collect()
        self.assertEqual(bytes(view), bytes(range(256)) * 4096)

    @unittest.skipIf(np is None, "because this Python has no numpy")
    def test_arrays_see_memory_without_a_copy(self) -> None:
        publisher, subscriber = self.pair(carriers=["shm"])
        image = np.arange(1 << 20, dtype=np.uint8)
        publisher.publish(image)
        sample = subscriber.wait(LONG)
        array = sample.array("uint8", (1024, 1024))
        np.testing.assert_array_equal(array.ravel(), image)
        self.assertFalse(array.flags.writeable)
        self.assertEqual(array.__array_interface__["data"][0], np.frombuffer(sample, np.uint8).__array_interface__["data"][0])
        with self.assertRaises(thalweg.MessageError):
            publisher.publish(b"abc") and subscriber.wait(LONG).array("float64")

    def test_a_loan_is_dead_after_publish(self) -> None:
        for carrier in ("shm", "tcp"):
            publisher, subscriber = self.pair(carriers=[carrier])
            loan = publisher.loan(1000)
            data = loan.data
            data[:] = bytes(range(250)) * 4
            # The publisher is free meanwhile.
            publisher.publish(b"between")
            self.assertEqual(bytes(subscriber.wait(LONG)), b"between")
            self.assertEqual(loan.publish().seq, 2)
            self.assertEqual(bytes(subscriber.wait(LONG)), bytes(range(250)) * 4)
            with self.assertRaises(ValueError):
                data[0] = 1
            for dead in (loan.publish, lambda: memoryview(loan), lambda: loan.data):
                with self.assertRaises((thalweg.LoanError, BufferError)):
                    dead()
            with publisher.loan(3) as data:
                data[:] = b"abc"
            self.assertEqual(bytes(subscriber.wait(LONG)), b"abc")
            with self.assertRaises(ZeroDivisionError), publisher.loan(3) as data:
                1 / 0
            publisher.loan(5)  # dropped
            self.assertIsNone(subscriber.take())
            publisher.close()
            subscriber.close()

    def test_a_loan_with_views_is_not_published(self) -> None:
        publisher, subscriber = self.pair(carriers=["shm"])
        loan = publisher.loan(16)
        view = memoryview(loan)
        with self.assertRaisesRegex(thalweg.LoanError, "del them before publish"):
            loan.publish()
        # Its memory is there while the loan is, even if the publisher closes.
        self.here.close()
        view[:] = bytes(16)
        view.release()
        with self.assertRaises(thalweg.ClosedError):
            loan.publish()
        self.assertIsNone(subscriber.take())

    def test_a_loan_has_limits(self) -> None:
        publisher = self.here.publisher("/a", bytes, max_message=1000)
        with self.assertRaisesRegex(thalweg.MessageError, "1000 bytes"):
            publisher.loan(1001)
        with self.assertRaises((OverflowError, thalweg.MessageError)):
            publisher.loan(-1)
        self.assertEqual(len(publisher.loan(0).data), 0)

    def test_waits_end_in_time_and_when_closed(self) -> None:
        _, subscriber = self.pair()
        self.assertIsNone(subscriber.wait(0))
        self.assertIsNone(subscriber.wait(0.01))
        for wrong in (-1.0, float("nan")):
            with self.assertRaises(thalweg.UsageError):
                subscriber.wait(wrong)
        for waiting, close in [(subscriber, subscriber.close), (self.there.subscriber("/b", bytes), self.there.close)]:
            ended: queue.Queue[object] = queue.Queue()
            threads = [threading.Thread(target=self.until_closed, args=(waiting, ended)) for _ in range(3)]
            [thread.start() for thread in threads]
            close()
            for _ in threads:
                self.assertIsInstance(ended.get(timeout=LONG), thalweg.ClosedError)
            [thread.join(LONG) for thread in threads]
        for call in (subscriber.take, subscriber.wait, lambda: subscriber.connected, subscriber.arm):
            with self.assertRaises(thalweg.Error):
                call()

    def until_closed(self, subscriber, ended) -> None:
        try:
            subscriber.wait()
        except thalweg.Error as error:
            ended.put(error)

    def test_callbacks_have_threads_of_their_own(self) -> None:
        asleep, let_go = threading.Event(), threading.Event()
        heard: queue.Queue[str] = queue.Queue()

        def sleeps(_: object) -> None:
            asleep.set()
            let_go.wait(LONG)

        def hears(sample) -> None:
            if sample.value.x < 0:
                raise RuntimeError("a callback's own")
            heard.put(sample.value.name)

        slow = self.there.subscriber("/slow", bytes, sleeps)
        quick = self.there.subscriber("/quick", Point, hears)
        to_slow, to_quick = self.here.publisher("/slow", bytes), self.here.publisher("/quick", Point)
        self.connected(to_slow, to_quick, slow, quick)
        to_slow.publish(b"")
        self.assertTrue(asleep.wait(LONG))
        with self.assertLogs("thalweg", "ERROR"):
            to_quick.publish(Point(-1, "lost"))
            to_quick.publish(Point(1, "heard"))
            self.assertEqual(heard.get(timeout=LONG), "heard")
        self.assertTrue(asleep.is_set() and not let_go.is_set())
        let_go.set()

    def test_a_polled_port_receives_on_the_thread_that_waits(self) -> None:
        for carrier in ("shm", "tcp"):
            with self.subTest(carrier):
                publisher = self.here.publisher("/polled", bytes, carriers=[carrier], reliability="reliable")
                subscriber = self.there.subscriber("/polled", bytes, polled=True, carriers=[carrier], reliability="reliable")
                self.connected(publisher, subscriber)
                self.assertIsNone(subscriber.wait(0.0))
                self.assertIsNone(subscriber.take())
                for number in range(100):
                    publisher.publish(bytes([number]))
                    sample = subscriber.wait(LONG)
                    self.assertEqual((bytes(sample), sample.info.source), (bytes([number]), publisher.name))
                self.assertRaises(thalweg.UsageError, subscriber.fileno)
                ended = threading.Event()
                waiter = threading.Thread(target=lambda: ([None for _ in subscriber], ended.set()))
                waiter.start()
                # Others ask while it waits.
                for _ in range(3):
                    self.assertEqual((subscriber.connected, subscriber.dropped), (1, 0))
                subscriber.close()
                self.assertTrue(ended.wait(LONG))
                waiter.join()
                publisher.close()

    def test_iteration_ends_when_closed(self) -> None:
        publisher, subscriber = self.pair(depth=100)
        for number in range(10):
            publisher.publish(bytes([number]))
        found = []
        for sample in subscriber:
            found.append(sample.data[0])
            if len(found) == 10:
                subscriber.close()
        self.assertEqual(found, list(range(10)))

    def test_event_loops_wait_by_the_file(self) -> None:
        async def main() -> list[int]:
            async with self.there as node:
                subscriber = node.subscriber("/a", bytes, depth=100)
                publisher = self.here.publisher("/a", bytes)
                self.connected(publisher, subscriber)
                found = []

                async def publish() -> None:
                    for number in range(5):
                        publisher.publish(bytes([number]))
                        while len(found) <= number:
                            await asyncio.sleep(0)

                task = asyncio.create_task(publish())
                async for sample in subscriber:
                    found.append(sample.data[0])
                    if len(found) == 5:
                        break
                await task
                # Closing ends an iteration that waits; a second one at the same time is refused.
                one = self.there.subscriber("/b", bytes)

                async def count() -> int:
                    return len([sample async for sample in one])

                waiting = asyncio.create_task(count())
                await asyncio.sleep(0)
                with self.assertRaises(thalweg.UsageError):
                    await count()
                one.close()
                self.assertEqual(await asyncio.wait_for(waiting, LONG), 0)
                return found

        self.assertEqual(asyncio.run(main()), list(range(5)))

    def test_services_both_ways(self) -> None:
        server = self.there.server("/add", Point, str, lambda point: f"{point.name} {point.x}")
        client = self.here.client("/add", Point, str)
        self.assertEqual(client.call(Point(1.5, "a"), LONG), "a 1.5")
        with self.assertRaises(thalweg.MessageError):
            client.call("no point", LONG)
        self.assertEqual(client.call(Point(2.5, "b"), LONG), "b 2.5")
        server.close()
        with self.assertRaisesRegex(thalweg.PeerError, "no server on /add|no answer on /add"):
            client.call(Point(0, ""), 0.1)

    def test_ports_close_at_the_end_of_a_block(self) -> None:
        with self.here.publisher("/a", bytes) as publisher, self.there.subscriber("/a", bytes) as subscriber:
            self.connected(publisher, subscriber)
        with self.there.server("/add", int, int, lambda one: one + 1) as server, self.here.client("/add", int, int) as client:
            self.assertEqual(client.call(1, LONG), 2)
            self.assertEqual((repr(server), repr(client)), ("<server of /add>", "<client of /add>"))
        for closed in (lambda: publisher.publish(b""), lambda: subscriber.wait(LONG), lambda: client.call(1, LONG)):
            self.assertRaises(thalweg.ClosedError, closed)
        with self.assertRaises(ZeroDivisionError), self.here.publisher("/a", bytes):
            1 / 0

    def test_a_server_that_fails_answers_the_next(self) -> None:
        server = self.there.server("/divide", int, int, lambda by: 12 // by)
        client = self.here.client("/divide", int, int)
        self.assertEqual(client.call(3, LONG), 4)
        with self.assertLogs("thalweg", "ERROR"), self.assertRaises(thalweg.PeerError):
            client.call(0, 0.5)
        self.assertEqual(client.call(4, LONG), 3)
        server.close()

    def test_ports_are_listed(self) -> None:
        publisher, subscriber = self.pair(Point, name=None)
        ports = {port.name: port for port in self.here.list()}
        self.assertEqual((ports[publisher.name].direction, ports[publisher.name].type), ("publisher", "Point"))
        self.assertEqual((ports[subscriber.name].node, ports[subscriber.name].pid), ("there", os.getpid()))

    def test_ports_of_other_types_do_not_meet_and_the_node_says_so(self) -> None:
        publisher = self.here.publisher("/a", Point, name="/talker")
        subscriber = self.there.subscriber("/a", bytes, name="/listener")
        events = iter(lambda: self.there.wait_event(LONG), None)
        said = next(event for event in events if "do not match" in event)
        self.assertRegex(said, r"/talker and /listener do not match: type offered Point \(.*, requested bytes \(")
        self.assertFalse(publisher.wait_connected(1, 0) or subscriber.wait_connected(1, 0))
        self.there.close()
        with self.assertRaises(thalweg.ClosedError):
            self.there.wait_event(0)

    def test_a_priority_is_set_and_its_effect_told(self) -> None:
        publisher = self.here.publisher("/a", bytes, name="/talker", carriers=["tcp"], class_="low")
        subscriber = self.there.subscriber("/a", bytes, name="/listener", carriers=["tcp"])
        self.connected(publisher, subscriber)
        told = self.here.set("/talker", "/listener", class_="high")
        self.assertRegex(told, r"publisher: .*effective: \w+, because")
        self.assertRegex(told, r"subscriber: .*effective: \w+, because")
        self.assertIn("subscriber: ", self.here.set("/talker", "/listener", every=2))
        for wrong, said in [
            (lambda: self.here.set("/talker", "/nobody", class_="high"), "no port /nobody"),
            (lambda: self.here.set("/listener", "/talker", class_="high"), "is a subscriber"),
            (lambda: self.here.set("/talker", "/listener"), "nothing is set"),
            (lambda: self.here.set("/talker", "/listener", class_="best"), "best"),
            (lambda: self.here.set("/talker", "/listener", sched="fifo:1000"), "fifo"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(thalweg.Error, said):
                wrong()

    def test_options_are_checked(self) -> None:
        for options, said in [
            ({"reliability": "sometimes"}, "reliability"),
            ({"class_": "best"}, "class"),
            ({"depth": 1, "queue": "keep-all 3"}, "depth and queue"),
            ({"deadline": "soon"}, "deadline"),
            ({"deadline": -1.0}, "deadline"),
            ({"colour": "red"}, "colour"),
            ({"sched": "fifo"}, "fifo"),
            ({"carriers": ["pigeon"]}, "pigeon"),
            ({"name": "a//b"}, "empty segment"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(thalweg.UsageError, said):
                self.here.publisher("/a", bytes, **options)
        publisher = self.here.publisher(
            "/a", Point, deadline=0.01, latency_budget="2ms", max_message=1 << 20, key=["name"], queue="block 4 1ms", affinity="0"
        )
        self.here.subscriber("/b", Point, deadline=1, strict=False, picture=(320, 240), partition=["a", "b"], lifespan=10)
        with self.assertRaises(thalweg.NameTakenError):
            self.here.publisher("/a", bytes, name=publisher.name)
        with self.assertRaises(thalweg.UsageError):
            self.here.publisher("/a", None)
        with self.assertRaises(TypeError):
            self.here.publisher(7, bytes)

    def test_nodes_are_checked(self) -> None:
        for options, said in [
            ({"name": "a/b"}, "a/b"),
            ({"realm": "a/b"}, "realm"),
            ({"listen": ["nowhere"]}, "nowhere"),
            ({"admin_from": ["everywhere"]}, "everywhere"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(thalweg.UsageError, said):
                thalweg.Node(**options)
        with self.assertRaises(thalweg.ConfigurationError):
            thalweg.Node("a", discovery="/does/not/exist")

    def test_a_session_that_nobody_admitted_is_refused(self) -> None:
        with self.assertRaises((thalweg.PeerError, thalweg.NotAdmittedError)):
            self.here.publisher("/a", bytes, session="nobody")

    def test_types_that_differ_do_not_meet(self) -> None:
        publisher, any_type = self.here.publisher("/a", Point), self.there.subscriber("/a", None)
        other = self.there.subscriber("/a", str)
        self.connected(publisher, any_type)
        publisher.publish(Point(1, "x"))
        self.assertEqual(bytes(any_type.wait(LONG).value), thalweg.encode(Point(1, "x")))
        self.assertEqual(other.connected, 0)

    def test_many_threads_share_ports(self) -> None:
        publisher, subscriber = self.pair(int, queue="keep-all 10000")
        threads = [threading.Thread(target=lambda: [publisher.publish(number) for number in range(200)]) for _ in range(4)]
        found: queue.Queue[int] = queue.Queue()

        def take() -> None:
            for sample in subscriber:
                found.put(sample.info.seq)

        takers = [threading.Thread(target=take) for _ in range(3)]
        [thread.start() for thread in threads + takers]
        self.assertEqual(sorted(found.get(timeout=LONG) for _ in range(800)), list(range(1, 801)))
        subscriber.close()
        [thread.join(LONG) for thread in threads + takers]
        self.assertFalse(any(thread.is_alive() for thread in threads + takers))


if __name__ == "__main__":
    unittest.main()
