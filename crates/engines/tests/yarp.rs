//! YARP: the conformance suite, programs of YARP by the bytes that YARP's documents and sources have for them, and these programs.

mod programs;

use super::running::{Running, until};
use super::world::{LONG, address, node, realm};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use thalweg::Change;
use thalweg::codec::{Message, Raw};
use thalweg_engines::bridge::Rules;
use thalweg_engines::testing::Made;
use thalweg_engines::yarp::{Settings, Yarp};
use thalweg_engines::{Engine, Sample, Subscriber, Topic};

const COUNT: u32 = 1000;

fn server() -> SocketAddr {
    address().trim_start_matches("tcp/").parse().unwrap()
}

fn serving(server: SocketAddr, prefix: &str) -> Settings {
    Settings { serve: Some(server), prefix: prefix.to_owned(), ..Settings::default() }
}

fn using(server: SocketAddr, prefix: &str) -> Settings {
    Settings { server: server.to_string(), prefix: prefix.to_owned(), ..Settings::default() }
}

fn yarp() -> Made {
    let server = server();
    let from = |prefix: &str| vec![prefix.to_owned()];
    let first = Settings { from: from("/two"), ..serving(server, "/one") };
    let second = Settings { from: from("/one"), ..using(server, "/two") };
    let open = |settings| Box::new(Yarp::open(settings, None).unwrap()) as Box<dyn Engine>;
    (open(first), open(second))
}

thalweg_engines::engine_conformance!(of_yarp, yarp());

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

/// Topic and message of a sample.
type Got = (String, Vec<u8>);

fn listen(yarp: &Yarp, name: &str) -> (Box<dyn Subscriber>, Receiver<Got>) {
    let (tell, told) = channel();
    let deliver =
        Box::new(move |sample: &Sample<'_>| drop(tell.send((sample.topic.to_owned(), sample.message.to_vec()))));
    (yarp.subscriber(&topic(name), &qos::Qos::default(), deliver).unwrap(), told)
}

fn bridge(name: &str, realm: &str, settings: Settings) -> Running {
    let own = node(name, realm);
    let engine = Yarp::open(settings, Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

/// A connection of a program, or of a person with telnet.
struct Line(BufReader<TcpStream>);

impl Line {
    fn to(address: &str) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap()) as usize
    }

    /// A message with its index, by yarp_protocol.dox: command, and data.
    fn message(&mut self) -> (Vec<u8>, Vec<u8>) {
        assert_eq!(self.bytes(8), *b"YA\x0a\0\0\0RP");
        let index = self.bytes(10);
        let lengths: Vec<usize> = (0..index[0] + index[1]).map(|_| self.number()).collect();
        let whole = self.bytes(lengths.iter().sum());
        let (command, data) = whole.split_at(8);
        (command.to_vec(), data.to_vec())
    }
}

/// The answer to a command that `NetworkBase::write` sends: carrier `text_ack`.
fn admin(address: &str, command: &str) -> String {
    let mut line = Line::to(address);
    line.send("CONNACK admin\r\n");
    assert_eq!(line.line(), "Welcome admin\r\n");
    line.send(format!("a\r\n{command}\r\n"));
    let said = line.line();
    assert_eq!(line.line(), "<ACK>\r\n");
    said.trim_end().to_owned()
}

/// A program's question to the name server, in the older form (`NameClient::send`).
fn ask(server: SocketAddr, command: &str) -> Vec<String> {
    let mut line = Line::to(&server.to_string());
    line.send(format!("NAME_SERVER {command}\n"));
    let lines = std::iter::repeat_with(|| line.line().trim_end().to_owned());
    lines.take_while(|line| line != "*** end of message").collect()
}

/// The address of a port by its name.
fn find(server: SocketAddr, name: &str) -> Option<String> {
    let said = ask(server, &format!("query {name}"));
    let words: Vec<&str> = said.first()?.split(' ').collect();
    assert_eq!((words[2], words[8]), (name, "tcp"));
    Some(format!("{}:{}", words[4], words[6]))
}

/// A port of a program of YARP: it is registered, and accepts connections.
fn program(server: SocketAddr, name: &str) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let said = ask(server, &format!("register {name} tcp 127.0.0.1 {port}"));
    assert_eq!(said, [format!("registration name {name} ip 127.0.0.1 port {port} type tcp")]);
    listener
}

/// Accepts a binary connection as a reader does.
fn accept(listener: &TcpListener, specifier: &[u8; 8], from: &str) -> Line {
    let mut line = Line::of(listener.accept().unwrap().0);
    assert_eq!(line.bytes(8), *specifier);
    let length = line.number();
    assert_eq!(line.bytes(length), [from.as_bytes(), b"\0"].concat());
    line.send(b"YA\x12\x27\0\0RP");
    line
}

const TCP: &[u8; 8] = b"YA\xe4\x1e\0\0RP";
const FAST_TCP: &[u8; 8] = b"YA\x64\x1e\0\0RP";

#[test]
fn telnet_to_the_name_server() {
    let server = server();
    let _yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let mut line = Line::to(&server.to_string());
    line.send("CONNECT foo\r\nd\r\nregister /write\r\nd\r\nquery /write\r\n");
    assert_eq!(line.line(), "Welcome foo\r\n");
    let port = server.port() + 2;
    for _ in 0..2 {
        assert_eq!(line.line(), format!("registration name /write ip 127.0.0.1 port {port} type tcp\r\n"));
        assert_eq!(line.line(), "*** end of message\r\n");
    }
    assert_eq!(ask(server, "list").len(), 2, "and the name server itself");
    assert_eq!(ask(server, "list /write").len(), 1);
    assert_eq!(admin(&server.to_string(), "[ver]"), "ver 1 2 3");
}

/// `yarp rpc /root`: a port of YARP connects to the name server by its carrier, tcp.
#[test]
fn who_asks_the_name_server_in_bytes_has_bytes() {
    let server = server();
    let _yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let mut line = Line::to(&server.to_string());
    line.send([&TCP[..], b"\x06\0\0\0admin\0"].concat());
    assert_eq!(line.bytes(8)[..2], *b"YA");
    line.send(data(b"\x04\x01\0\0\x03\0\0\0\x09\0\0\0subscribe\x02\0\0\0/a\x02\0\0\0/b"));
    assert_eq!(
        [line.number(), line.number(), line.number()],
        [260, 2, 4],
        "two texts, of which the first has four letters"
    );
    assert_eq!(line.bytes(4), b"fail");
    let length = line.number();
    assert!(line.bytes(length).starts_with(b"unknown command subscribe /a /b"));
    assert_eq!(line.bytes(8), b"YA\0\0\0\0RP");
}

/// `yarp ping`, `yarp exists`, `yarp connect` and `disconnect`, to the byte (`Companion::ping`, `NetworkBase::exists`, `enactConnection`).
#[test]
fn programs_connect_a_port_and_read_what_it_publishes() {
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let publisher = yarp.publisher(&topic("/robot/pose"), &qos::Qos::default()).unwrap();
    let port = find(server, "/thalweg/robot/pose").unwrap();
    assert_eq!(
        ask(server, "get /thalweg/robot/pose offers"),
        ["port /thalweg/robot/pose property offers = tcp fast_tcp text text_ack"]
    );
    let mut ping = Line::to(&port);
    ping.send("CONNACK <ping>\r\n*\r\n");
    let said: Vec<String> = std::iter::repeat_with(|| ping.line()).take_while(|line| line != "<ACK>\r\n").collect();
    assert_eq!(
        said,
        [
            "Welcome <ping>\r\n",
            &format!("This is /thalweg/robot/pose at tcp://{port}/\r\n"),
            "There are no outgoing connections\r\n",
            "There is an input connection from <ping> to /thalweg/robot/pose using text_ack\r\n",
        ]
    );
    assert_eq!(admin(&port, "[list] [out] /reader"), "fail \"cannot find any connection to/from /reader\"");
    let unknown = admin(&port, "[add] tcp://reader");
    assert_eq!(unknown, "-1 \"Do not know how to connect to /reader\"");
    let reader = program(server, "/reader");
    assert!(admin(&port, "[add] udp://reader").contains("udp"), "not offered");
    assert!(!publisher.is_wanted());
    let accepting = std::thread::spawn(move || (accept(&reader, TCP, "/thalweg/robot/pose"), reader));
    assert_eq!(admin(&port, "[add] tcp://reader"), "0 \"Added connection from /thalweg/robot/pose to /reader\"");
    let (mut line, _reader) = accepting.join().unwrap();
    assert!(publisher.is_wanted());
    assert_eq!(admin(&port, "[list] [out] /reader"), "(from /thalweg/robot/pose) (to /reader) (carrier tcp)");
    publisher.publish(&written(b"a pose")).unwrap();
    assert_eq!(line.message(), (b"\0\0\0\0~D\0\x01".to_vec(), b"a pose".to_vec()));
    line.send(b"YA\0\0\0\0RP");
    publisher.publish(&written(b"")).unwrap();
    assert_eq!(line.message().1, b"");
    assert_eq!(admin(&port, "[del] /reader"), "0 \"Removed connection from /thalweg/robot/pose to /reader\"");
    let (command, text) = line.message();
    assert_eq!((&command[..], &text[..]), (&b"\x02\0\0\0~\0\0\x01"[..], &b"q\0"[..]));
    assert_eq!(line.0.read(&mut [0; 8]).unwrap(), 0);
    until("it is not wanted any more", || !publisher.is_wanted());
}

/// The mark that the kernel has for the connection to `reader`, as `prop get` tells it.
fn mark(port: &str, reader: &str) -> String {
    let said = admin(port, &format!("prop get {reader}"));
    said.split_once("(qos ((tos ").unwrap_or_else(|| panic!("{said}")).1.trim_end_matches(')').to_owned()
}

/// `NetworkBase::setConnectionQos`, `yarp priority-qos`: YARP's words mark our connection, and no other.
#[test]
fn prop_set_marks_one_connection() {
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let publisher = yarp.publisher(&topic("/pose"), &qos::Qos::default()).unwrap();
    let port = find(server, "/thalweg/pose").unwrap();
    let readers = ["/left", "/right"].map(|name| {
        let reader = program(server, name);
        let accepting = std::thread::spawn(move || accept(&reader, FAST_TCP, "/thalweg/pose"));
        assert!(admin(&port, &format!("[add] fast_tcp:/{name}")).starts_with("0 "));
        accepting.join().unwrap()
    });
    assert_eq!(["/left", "/right"].map(|name| mark(&port, name)), ["0", "0"]);
    // `yarp priority-qos set` sends back what it was told of the thread, which is no wish for another one.
    let told = admin(&port, "prop get /left");
    let value = |key: &str| told.split_once(&format!("({key} ")).unwrap().1.split_once(')').unwrap().0;
    let thread = format!("(sched ((priority {}) (policy {})))", value("priority"), value("policy"));
    assert_eq!(admin(&port, &format!("prop set /left {thread} (qos ((tos 72)))")), "ok", "{told}");
    assert_eq!(["/left", "/right"].map(|name| mark(&port, name)), ["72", "0"]);
    for (groups, tos) in [
        ("(qos ((priority HIGH)))", "144"),
        ("(qos ((dscp AF12)))", "48"),
        ("(qos ((tos 12) (dscp EF)))", "184"),
        ("(sched ((policy -1) (priority -1))) (qos ((tos 40)))", "40"),
    ] {
        assert_eq!(admin(&port, &format!("prop set /left {groups}")), "ok", "{groups}");
        assert_eq!([mark(&port, "/left"), mark(&port, "/right")], [tos, "0"], "{groups}");
    }
    for (command, says) in [
        ("prop set /left (qos ((dscp moon)))", "0 to 63"),
        ("prop set /left (sched ((policy 1) (priority 30)))", "one thread"),
        ("prop set /nobody (qos ((tos 0)))", "cannot find any connection"),
        ("prop set /thalweg/pose (process ((policy 1) (priority 30)))", "one thread"),
    ] {
        let said = admin(&port, command);
        assert!(said.starts_with("fail ") && said.contains(says), "{command}: {said}");
    }
    assert_eq!(mark(&port, "/left"), "40", "what was refused has changed nothing");
    // A publisher of a higher class shares the port, which then has its mark; what was set by hand stays.
    let urgent =
        yarp.publisher(&topic("/pose"), &qos::Qos { class: qos::Class::Critical, ..Default::default() }).unwrap();
    assert_eq!([mark(&port, "/left"), mark(&port, "/right")], ["40", "176"]);
    drop(urgent);
    assert_eq!(mark(&port, "/right"), "0");
    publisher.publish(&written(b"on")).unwrap();
    for mut reader in readers {
        assert_eq!(reader.message().1, b"on");
    }
    assert!(admin(&port, "prop get /thalweg/pose").contains("(is_output 1)"));
}

/// yarp_without_yarp.dox, "Listening to a Port's owner", and talking to one.
#[test]
fn a_person_with_telnet_reads_and_writes() {
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let publisher = yarp.publisher(&topic("/words"), &qos::Qos::default()).unwrap();
    let mut line = Line::to(&find(server, "/thalweg/words").unwrap());
    line.send("CONNECT foo\r\nwhat\r\n");
    assert_eq!(line.line(), "Welcome foo\r\n");
    let said: Vec<String> = (0..3).map(|_| line.line()).collect();
    assert_eq!(
        said,
        ["Port command not understood.\r\n", "Type d to send data to the port's owner.\r\n", "Type ? for help.\r\n"]
    );
    line.send("r\r\n");
    until("it is wanted", || publisher.is_wanted());
    // A bottle of the words hello and yarp, by data_rep.dox.
    let hello = b"\x04\x01\0\0\x02\0\0\0\x05\0\0\0hello\x04\0\0\0yarp";
    publisher.publish(&written(hello)).unwrap();
    assert_eq!([line.line(), line.line()], ["D\r\n", "hello yarp\r\n"]);
    let lost = publisher.publish(&written(b"no bottle")).unwrap_err().to_string();
    assert!(lost.contains("foo cannot have this message on a text connection"), "{lost}");

    let (_subscriber, told) = listen(&yarp, "/heard");
    let mut line = Line::to(&find(server, "/thalweg/heard:i").unwrap());
    line.send("CONNACK bar\r\nd\r\nhello yarp\r\nd\r\n(1\r\n2.5)\r\n");
    assert_eq!([line.line(), line.line(), line.line()], ["Welcome bar\r\n", "<ACK>\r\n", "<ACK>\r\n"]);
    assert_eq!(told.recv_timeout(LONG).unwrap(), ("/heard".to_owned(), hello.to_vec()));
    assert_eq!(told.recv_timeout(LONG).unwrap().1[..4], [0, 1, 0, 0]);
}

#[test]
fn a_thousand_samples_leave_when_somebody_is_connected() {
    let (realm, server) = (realm("yarp-out"), server());
    let here = node("here", &realm);
    let queue = qos::Queue::Block { limit: 1024, up_to_us: 10_000_000 };
    let mut publisher = here.publisher::<Raw>("/robot/pose").queue(queue).open().unwrap();
    let bridge = bridge("bridge", &realm, serving(server, "/thalweg"));
    until("the port is there", || find(server, "/thalweg/robot/pose").is_some());
    assert_eq!((bridge.status().out, publisher.connected()), (0, 0), "nobody wants it");
    let reader = program(server, "/reader");
    let accepting = std::thread::spawn(move || accept(&reader, TCP, "/thalweg/robot/pose"));
    let port = find(server, "/thalweg/robot/pose").unwrap();
    assert!(admin(&port, "[add] /reader").starts_with("0 "));
    let mut line = accepting.join().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let reading = std::thread::spawn(move || {
        let got: Vec<Vec<u8>> = (0..COUNT)
            .map(|_| {
                let message = line.message().1;
                line.send(b"YA\0\0\0\0RP");
                message
            })
            .collect();
        (got, line)
    });
    (0..COUNT)
        .for_each(|number| assert_eq!(publisher.publish(format!("sample {number}").as_bytes()).unwrap().refused, 0));
    let (got, line) = reading.join().unwrap();
    assert_eq!(got, (0..COUNT).map(|number| format!("sample {number}").into_bytes()).collect::<Vec<_>>());
    drop(line);
    until("the route is closed", || publisher.connected() == 0);
}

/// What a program's port does when the bridge has it send (`enactConnection`, `PortCore::addOutput`): the connection to the bridge.
fn comply(source: &TcpListener, server: SocketAddr, name: &str, specifier: &[u8; 8]) -> Line {
    let mut asked = Line::of(source.accept().unwrap().0);
    assert_eq!(asked.line(), "CONNACK admin\r\n");
    asked.send("Welcome admin\r\n");
    assert_eq!(asked.line(), "a\r\n");
    let input = format!("/thalweg{name}:i");
    assert_eq!(asked.line(), format!("[add] fast_tcp:/{input}\r\n"));
    let mut line = Line::to(&find(server, &input).unwrap());
    line.send([&specifier[..], &(name.len() as u32 + 1).to_le_bytes(), name.as_bytes(), b"\0"].concat());
    assert_eq!(line.bytes(8)[..2], *b"YA");
    asked.send(format!("0 \"Added connection from {name} to fast_tcp:/{input}\"\r\n<ACK>\r\n"));
    line
}

/// A message as YARP writes it: header block and body.
fn data(message: &[u8]) -> Vec<u8> {
    let mut bytes = b"YA\x0a\0\0\0RP\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\x08\0\0\0".to_vec();
    bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
    bytes.extend_from_slice(b"\0\0\0\0\0\0\0\0~D\0\x01");
    bytes.extend_from_slice(message);
    bytes
}

#[test]
fn a_thousand_samples_come_from_the_port_of_the_topics_name() {
    let (realm, server) = (realm("yarp-in"), server());
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<Raw>("/icub/state:o");
    let subscriber =
        subscriber.callback(move |sample| tell.send(String::from_utf8_lossy(&sample).into_owned()).unwrap()).unwrap();
    let bridge = bridge("bridge", &realm, serving(server, "/thalweg"));
    let source = program(server, "/icub/state:o");
    let mut line = comply(&source, server, "/icub/state:o", TCP);
    until("the subscriber has its channel", || subscriber.connected() == 1);
    (0..COUNT).for_each(|number| line.send(data(format!("sample {number}").as_bytes())));
    let got: Vec<String> = (0..COUNT).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(got, (0..COUNT).map(|number| format!("sample {number}")).collect::<Vec<_>>());
    (0..COUNT).for_each(|_| assert_eq!(line.bytes(8), *b"YA\0\0\0\0RP"));
    // The program starts again, and is asked again.
    drop(line);
    let mut line = comply(&source, server, "/icub/state:o", FAST_TCP);
    line.send(data(b"again"));
    assert_eq!(told.recv_timeout(LONG).unwrap(), "again");
    drop(subscriber);
    until("the route is closed", || bridge.status().into == 0 && find(server, "/thalweg/icub/state:o:i").is_none());
}

/// A name server that has lost its names gets them again.
#[test]
fn ports_are_registered_again_and_names_of_others_stay_theirs() {
    let server = server();
    let first = Yarp::open(serving(server, "/one"), None).unwrap();
    let second = Yarp::open(using(server, "/two"), None).unwrap();
    let _publisher = second.publisher(&topic("/pose"), &qos::Qos::default()).unwrap();
    let port = find(server, "/two/pose").unwrap();
    let third = Yarp::open(using(server, "/two"), None).unwrap();
    let taken = third.publisher(&topic("/pose"), &qos::Qos::default()).err().unwrap().to_string();
    assert!(taken.contains("/two/pose is taken") && taken.contains("--prefix"), "{taken}");
    // A program that died without a word leaves its name behind.
    drop(program(server, "/two/dead"));
    let revived = second.publisher(&topic("/dead"), &qos::Qos::default()).unwrap();
    drop(revived);
    assert_eq!(find(server, "/two/dead"), None);
    drop(first);
    let again = std::iter::repeat_with(|| Yarp::open(serving(server, "/one"), None)).find_map(Result::ok);
    let _again = again.unwrap();
    until("the name is there again", || find(server, "/two/pose").as_deref() == Some(&port));
}

/// A reader that takes nothing costs others nothing: neither its own topic's readers nor other topics.
#[test]
fn a_reader_that_stalls_holds_up_nobody() {
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let lossy = qos::Qos { reliability: qos::Reliability::BestEffort, ..qos::Qos::default() };
    let publisher = yarp.publisher(&topic("/image"), &lossy).unwrap();
    let port = find(server, "/thalweg/image").unwrap();
    let mut readers = ["/stalls", "/reads"].map(|name| {
        let reader = program(server, name);
        let accepting = std::thread::spawn(move || accept(&reader, FAST_TCP, "/thalweg/image"));
        assert!(admin(&port, &format!("[add] fast_tcp:/{name}")).starts_with("0 "));
        accepting.join().unwrap()
    });
    let image = vec![7; 1 << 20];
    for number in 0..100 {
        publisher.publish(&written(&image)).unwrap();
        publisher.publish(&written(&[number])).unwrap();
        assert_eq!(readers[1].message().1.len(), 1 << 20);
        assert_eq!(readers[1].message().1, [number]);
    }
    assert_eq!(readers[0].message().1.len(), 1 << 20, "the first is whole");
}

/// Who asks and does not read is not listened to until it does. It loses no answer, and holds up nobody.
#[test]
fn commands_are_carried_out_as_their_answers_are_read() {
    const ASKED: usize = 60_000; // 27 MB of answers: more than wait for anybody
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let _publisher = yarp.publisher(&topic("/words"), &qos::Qos::default()).unwrap();
    let port = find(server, "/thalweg/words").unwrap();
    let mut greedy = Line::to(&port);
    greedy.send("CONNECT foo\r\n");
    assert_eq!(greedy.line(), "Welcome foo\r\n");
    let mut writing = greedy.0.get_ref().try_clone().unwrap();
    let asking = std::thread::spawn(move || writing.write_all("?\r\n".repeat(ASKED).as_bytes()).unwrap());
    assert_eq!(admin(&port, "[ver]"), "ver 1 2 3");
    for number in 0..ASKED {
        assert!(greedy.line().starts_with("This is a YARP port."), "{number}");
        (1..10).for_each(|_| assert_ne!(greedy.line(), "", "{number}"));
    }
    asking.join().unwrap();
}

/// Programs come and go with names of their own: a pattern keeps none of those that are gone.
#[test]
fn topics_of_a_pattern_are_given_back() {
    let server = server();
    let yarp = Yarp::open(serving(server, "/thalweg"), None).unwrap();
    let (_subscriber, _told) = listen(&yarp, "/arm/*");
    let input = || find(server, "/thalweg/arm/left:i");
    for _ in 0..2 {
        drop(program(server, "/arm/left")); // its name stays
        until("the topic has a port", || input().is_some());
        ask(server, "unregister /arm/left");
        until("the port is closed", || input().is_none());
    }
}

#[test]
fn what_is_malformed_is_counted_and_ends_its_connection_alone() {
    let server = server();
    let yarp = Yarp::open(Settings { max_message: 1000, ..serving(server, "/thalweg") }, None).unwrap();
    let (_subscriber, told) = listen(&yarp, "/heard");
    let address = find(server, "/thalweg/heard:i").unwrap();
    let mut good = Line::to(&address);
    good.send([&FAST_TCP[..], b"\x03\0\0\0/a\0"].concat());
    good.bytes(8);
    let opened = [&FAST_TCP[..], b"\x03\0\0\0/b\0"].concat();
    let large = [&opened[..], &data(&[0; 20_000])[..100]].concat();
    let own = [&FAST_TCP[..], b"\x11\0\0\0/thalweg/heard:i\0"].concat();
    for (count, (bytes, says)) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "carriers are tcp"),
        ([&opened[..], b"YA\x0b\0\0\0RP"].concat(), "index has 10 bytes"),
        (large, "at most 1000"),
        (own, "circle"),
        (b"NAME_SERVER list\n".to_vec(), "this port is none"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bad = Line::to(&address);
        bad.send(&bytes);
        until("it is refused", || yarp.refused().count > count as u64);
        let last = yarp.refused().last;
        assert!(last.contains(says) && last.contains("/thalweg/heard:i"), "{last}");
        while bad.0.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    }
    good.send(data(b"good"));
    assert_eq!(told.recv_timeout(LONG).unwrap().1, b"good");
}

/// What one bridge of a realm carries, the other one of its kind does not.
#[test]
fn two_bridges_of_one_realm_stand_in_for_each_other() {
    let (realm, server) = (realm("yarp-two"), server());
    let here = node("here", &realm);
    let _publisher = here.publisher::<Raw>("/pose").open().unwrap();
    let _names = Yarp::open(serving(server, "/names"), None).unwrap();
    let bridges = ["one", "two"].map(|name| bridge(name, &realm, using(server, "/thalweg")));
    let standing = || bridges.iter().filter(|bridge| bridge.status().standby_for.is_some()).count();
    until("one carries, one is on standby", || {
        standing() == 1 && bridges.iter().map(|bridge| bridge.status().publishers).sum::<usize>() == 1
    });
    let carrying = usize::from(bridges[0].status().standby_for.is_some());
    let [one, two] = bridges;
    let (carrying, other) = if carrying == 0 { (one, two) } else { (two, one) };
    drop(carrying);
    until("the other one carries", || other.status().standby_for.is_none() && other.status().publishers == 1);
    until("the port is its", || find(server, "/thalweg/pose").is_some());
}
