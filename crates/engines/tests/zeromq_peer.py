"""Programs of others for tests/zeromq.rs: pyzmq, as its users publish and subscribe.

zeromq_peer.py zeromq talk|listen PORT COUNT: binds or connects to 127.0.0.1:PORT, publishes or receives COUNT samples, prints what came.
"""
import sys

import zmq

what, port, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LONG = 20_000
context = zmq.Context()
if what == 'talk':
    # As PUB, but that it tells of the first subscription, so that nothing leaves before.
    publisher = context.socket(zmq.XPUB)
    publisher.sndhwm = 0
    publisher.rcvtimeo = LONG
    publisher.bind(f'tcp://127.0.0.1:{port}')
    assert publisher.recv() == b'\x01robot/pose'
    for number in range(count):
        publisher.send_multipart([b'robot/position', b'of another topic'])
        publisher.send_multipart([b'robot/pose', f'sample {number}'.encode()])
    sys.stdin.read()
else:
    subscriber = context.socket(zmq.SUB)
    subscriber.rcvtimeo = LONG
    subscriber.connect(f'tcp://127.0.0.1:{port}')
    subscriber.subscribe('robot/pose')
    print('ready', flush=True)
    for _ in range(count):
        topic, message = subscriber.recv_multipart()
        assert topic == b'robot/pose', topic
        print(message.decode())
sys.stdout.flush()
context.destroy(linger=0)
