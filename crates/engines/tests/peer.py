"""Programs of others for tests/peers.rs: eclipse-zenoh, and zenoh-ros2-sdk as nodes of ROS 2.

peer.py zenoh|ros2 talk|listen PORT COUNT: connects to 127.0.0.1:PORT, publishes or receives COUNT samples, prints what came.
"""
import logging
import queue
import sys
import time

try:
    import zenoh
    from zenoh_ros2_sdk import ROS2Publisher, ROS2Subscriber
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)

engine, what, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LONG = 20
came = queue.Queue()


def until(holds):
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, 'not in time'
        time.sleep(0.005)


def session():
    config = zenoh.Config()
    config.insert_json5('mode', '"peer"')
    config.insert_json5('connect/endpoints', f'["tcp/127.0.0.1:{port}"]')
    config.insert_json5('scouting/multicast/enabled', 'false')
    return zenoh.open(config)


def received():
    for _ in range(count):
        print(came.get(timeout=LONG))


if engine == 'zenoh':
    with session() as peer:
        if what == 'talk':
            publisher = peer.declare_publisher('robot/pose', congestion_control=zenoh.CongestionControl.BLOCK)
            until(lambda: publisher.matching_status.matching)
            for number in range(count):
                publisher.put(f'sample {number}')
            sys.stdin.read()
        else:
            subscriber = peer.declare_subscriber('robot/pose', lambda sample: came.put(sample.payload.to_string()))
            print('ready', flush=True)
            received()
else:
    logging.disable(logging.CRITICAL)
    # zenoh-ros2-sdk 0.1.8 looks for CongestionControl here. Where it finds none, even a reliable publisher drops what finds a full queue.
    zenoh.qos = zenoh
    if what == 'talk':
        publisher = ROS2Publisher('/chatter', 'std_msgs/msg/String', 'string data\n', node_name='talker', router_port=port)
        until(lambda: publisher.pub.matching_status.matching)
        for number in range(count):
            publisher.publish(data=f'sample {number}')
        sys.stdin.read()
        publisher.close()
    else:
        subscriber = ROS2Subscriber('/chatter', 'std_msgs/msg/String', lambda message: came.put(message.data), 'string data\n',
                                    node_name='listener', router_port=port)
        print('ready', flush=True)
        received()
        subscriber.close()
sys.stdout.flush()
