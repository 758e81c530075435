"""A program of DDS for tests/dds.rs: cyclonedds.

dds_peer.py talk|listen|keep|keyed|track-talk|track-listen|ros-talk|ros-listen|ros-serve|ros-ask DOMAIN TOPIC COUNT: on loopback without multicast; publishes or receives COUNT samples, prints what came.
"""
import os
import select
import sys
import time
from dataclasses import dataclass

what, domain, name, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
os.environ['CYCLONEDDS_URI'] = '''<CycloneDDS><Domain Id="any">
  <General><Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces><AllowMulticast>false</AllowMulticast></General>
  <Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer Address="127.0.0.1"/></Peers></Discovery>
</Domain></CycloneDDS>'''

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, key
from cyclonedds.idl.types import array, int64, sequence, uint8, uint32, uint64
from cyclonedds.internal import InvalidSample
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

LONG = 20


@dataclass
@final
class Text(IdlStruct, typename='robot.Text'):
    number: uint32
    data: str


@dataclass
@final
class Keyed(IdlStruct, typename='Keyed'):
    number: uint32
    key('number')


@dataclass
@final
class Track(IdlStruct, typename='Track'):
    value: uint32
    number: uint32
    key('number')
    name: str
    key('name')


@dataclass
@final
class String(IdlStruct, typename='std_msgs.msg.dds_.String_'):
    data: str


@dataclass
@final
class Gid(IdlStruct, typename='rmw_dds_common.msg.dds_.Gid_'):
    data: array[uint8, 16]


@dataclass
@final
class Node(IdlStruct, typename='rmw_dds_common.msg.dds_.NodeEntitiesInfo_'):
    node_namespace: str
    node_name: str
    reader_gid_seq: sequence[Gid]
    writer_gid_seq: sequence[Gid]


@dataclass
@final
class Participant(IdlStruct, typename='rmw_dds_common.msg.dds_.ParticipantEntitiesInfo_'):
    gid: Gid
    node_entities_info_seq: sequence[Node]


# A service of ROS 2 as rmw_cyclonedds_cpp has it: a header, and the request or reply.
@dataclass
@final
class Request(IdlStruct, typename='example_interfaces.srv.dds_.AddTwoInts_Request_'):
    guid: uint64
    number: int64
    a: int64
    b: int64


@dataclass
@final
class Reply(IdlStruct, typename='example_interfaces.srv.dds_.AddTwoInts_Response_'):
    guid: uint64
    number: int64
    sum: int64


def until(holds):
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, 'not in time'
        time.sleep(0.005)


def gid(entity):
    return Gid(list(entity.guid.bytes))


reliable = Policy.Reliability.Reliable(duration(seconds=10))
all_of_it = Qos(reliable, Policy.History.KeepAll)
participant = DomainParticipant(domain)
# What nodes of ROS 2 have beside DDS: rmw_cyclonedds_cpp, rmw_dds_common.
hashed = Policy.Userdata(b'typehash=RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18;')
of_ros = Qos(reliable, Policy.History.KeepAll, hashed)
service = Policy.Userdata(b'typehash=RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a;')
of_service = Qos(reliable, Policy.History.KeepLast(10), service)
of_nodes = Qos(reliable, Policy.Durability.TransientLocal, Policy.History.KeepLast(1))

if what == 'talk':
    writer = DataWriter(participant, Topic(participant, name, Text), qos=all_of_it)
    until(lambda: writer.get_matched_subscriptions())
    for number in range(count):
        writer.write(Text(number, f'sample {number}'))
    sys.stdin.read()
elif what == 'listen':
    reader = DataReader(participant, Topic(participant, name, Text), qos=all_of_it)
    print('ready', flush=True)
    came = 0
    end = time.monotonic() + LONG
    while came < count and time.monotonic() < end:
        for sample in reader.take(N=100):
            print(sample.number, sample.data)
            came += 1
        time.sleep(0.001)
elif what == 'keep':
    kept = Policy.DurabilityService(duration(seconds=0), Policy.History.KeepLast(2), 1000, 1000, 1000)
    durable = Qos(reliable, Policy.Durability.TransientLocal, Policy.History.KeepLast(2), kept)
    writers = [DataWriter(participant, Topic(participant, name, Text), qos=durable) for _ in range(3)]
    for writer, first in zip(writers, (10, 20, 30)):
        for number in (1, 2, 3):
            writer.write(Text(first + number, 'kept'))
    print('ready', flush=True)
    sys.stdin.read()
elif what == 'track-talk':
    writer = DataWriter(participant, Topic(participant, name, Track), qos=all_of_it)
    until(lambda: writer.get_matched_subscriptions())
    writer.write(Track(1, 7, 'arm'))
    writer.write(Track(2, 8, 'leg'))
    writer.dispose(Track(9, 7, 'arm'))
    writer.write(Track(3, 8, 'leg'))
    writer.write(Track(4, 7, 'arm'))
    writer.dispose(Track(9, 8, 'leg'))
    sys.stdin.read()
elif what == 'track-listen':
    reader = DataReader(participant, Topic(participant, name, Track), qos=all_of_it)
    print('ready', flush=True)
    end = time.monotonic() + LONG
    while time.monotonic() < end and not select.select([sys.stdin], [], [], 0.001)[0]:
        for sample in reader.take(N=100):
            if isinstance(sample, InvalidSample):
                print('disposed', sample.key_sample.number, sample.key_sample.name, flush=True)
            else:
                print(sample.value, sample.number, sample.name, flush=True)
elif what == 'ros-talk':
    writer = DataWriter(participant, Topic(participant, f'rt/{name}', String), qos=of_ros)
    nodes = DataWriter(participant, Topic(participant, 'ros_discovery_info', Participant), qos=of_nodes)
    nodes.write(Participant(gid(participant), [Node('/', 'talker', [], [gid(writer)])]))
    until(lambda: writer.get_matched_subscriptions())
    for number in range(count):
        writer.write(String(f'sample {number}'))
    sys.stdin.read()
elif what == 'ros-listen':
    nodes = DataReader(participant, Topic(participant, 'ros_discovery_info', Participant), qos=of_nodes)
    reader = DataReader(participant, Topic(participant, f'rt/{name}', String), qos=of_ros)
    print('ready', flush=True)
    came = 0
    end = time.monotonic() + LONG
    while came < count and time.monotonic() < end:
        for sample in reader.take(N=100):
            print(sample.data)
            came += 1
        time.sleep(0.001)
    writers = [end.key.bytes for handle in reader.get_matched_publications()
               for end in [reader.get_matched_publication_data(handle)]]
    for told in nodes.take(N=100):
        for node in told.node_entities_info_seq:
            ours = [bytes(each.data) for each in node.writer_gid_seq]
            print('node', node.node_namespace, node.node_name, sorted(ours) == sorted(writers))
elif what == 'ros-serve':
    reader = DataReader(participant, Topic(participant, f'rq/{name}Request', Request), qos=of_service)
    writer = DataWriter(participant, Topic(participant, f'rr/{name}Reply', Reply), qos=of_service)
    print('ready', flush=True)
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        for asked in reader.take(N=100):
            writer.write(Reply(asked.guid, asked.number, asked.a + asked.b))
elif what == 'ros-ask':
    writer = DataWriter(participant, Topic(participant, f'rq/{name}Request', Request), qos=of_service)
    reader = DataReader(participant, Topic(participant, f'rr/{name}Reply', Reply), qos=of_service)
    until(lambda: writer.get_matched_subscriptions() and reader.get_matched_publications())
    own = os.getpid()  # rmw_cyclonedds_cpp has a number of 64 bits for each client, which leaves the answers of others out
    for number in range(count):
        writer.write(Request(own, number, number, own))
        answers = []
        until(lambda: answers.extend(answer for answer in reader.take(N=100) if answer.guid == own) or answers)
        print([(answer.number, answer.sum - own) for answer in answers])
else:
    keyed = Topic(participant, name, Keyed)
    ends = DataWriter(participant, keyed, qos=all_of_it), DataReader(participant, keyed, qos=all_of_it)
    print('ready', flush=True)
    sys.stdin.read()
sys.stdout.flush()
