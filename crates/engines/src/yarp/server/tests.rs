use super::*;
use proptest::prelude::*;

fn names() -> Names {
    Names::new(Registration::parse("registration name /root ip 10.0.0.1 port 10000 type tcp").unwrap())
}

/// The answer in text.
fn said(names: &mut Names, command: &str, host: &str) -> String {
    names.answer(command, host).text()
}

/// name_server.dox, "The nameserver commands"; but that a name server here does not know a name twice.
#[test]
fn the_documents_commands_are_answered() {
    let mut names = names();
    for (command, answer) in [
        ("query /write", ""),
        ("register /write", "registration name /write ip 5.255.112.227 port 10002 type tcp\n"),
        ("query /write", "registration name /write ip 5.255.112.227 port 10002 type tcp\n"),
        ("query /net=5/write", "registration name /write ip 5.255.112.227 port 10002 type tcp\n"),
        ("register ... tcp 127.0.0.1 8080", "registration name /tmp/port/1 ip 127.0.0.1 port 8080 type tcp\n"),
        ("register /read ... ... ...", "registration name /read ip 5.255.112.227 port 10003 type tcp\n"),
        ("set /write offers tcp udp mcast", "port /write property offers = tcp udp mcast\n"),
        ("get /write offers", "port /write property offers = tcp udp mcast\n"),
        ("check /write offers tcp", "port /write property offers value tcp present true\n"),
        ("check /write offers text", "port /write property offers value text present false\n"),
        ("set \"/write\" ips 10.0.0.7 127.0.0.1", "port /write property ips = 10.0.0.7 127.0.0.1\n"),
        ("match /write ips 127", "port /write property ips = 127.0.0.1\n"),
        ("route /write /read", "port /write route /read = tcp://read\n"),
        ("unregister /write", ""),
        ("query /write", ""),
        ("get /write offers", "port /write property offers = \n"),
        ("announce /read", "ok\n"),
    ] {
        assert_eq!(said(&mut names, command, "5.255.112.227"), format!("{answer}*** end of message\n"), "{command}");
    }
    assert_eq!(
        said(&mut names, "list", "::1"),
        "registration name /read ip 5.255.112.227 port 10003 type tcp\n\
         registration name /root ip 10.0.0.1 port 10000 type tcp\n\
         registration name /tmp/port/1 ip 127.0.0.1 port 8080 type tcp\n*** end of message\n"
    );
    let read = "port (name /read) (ip 5.255.112.227) (port_number 10003) (carrier tcp)";
    assert_eq!(said(&mut names, "bot query /read", ""), format!("{read}\n"));
    assert_eq!(said(&mut names, "bot list /read", ""), format!("ports ({read})\n"));
    assert_eq!(said(&mut names, "bot query /x", ""), "port (error -2 \"port not known\")\n");
    let below = "registration name /tmp/port/1 ip 127.0.0.1 port 8080 type tcp\n*** end of message\n";
    assert_eq!([said(&mut names, "list /tmp", ""), said(&mut names, "list /tmp/", "")], [below, below]);
    assert_eq!(said(&mut names, "list /tm", ""), "*** end of message\n");
}

/// As `yarp rpc /root` asks.
#[test]
fn binary_connections_have_bottles() {
    let mut names = names();
    drop(names.answer("register /a tcp 10.0.0.2 10003", ""));
    drop(names.answer("set /a rates 10 2.5", ""));
    for (command, bottle) in [
        ("query /a", "\"registration name /a ip 10.0.0.2 port 10003 type tcp\""),
        ("bot query /a", "port (name /a) (ip 10.0.0.2) (port_number 10003) (carrier tcp)"),
        ("bot set /a colour red", "ok"),
        ("bot get /a rates", "10 2.5"),
        ("bot set /b colour red", "fail \"port /b is not known\""),
        ("subscribe /a /b", "fail \"unknown command subscribe /a /b; send help for a list\""),
        ("unregister /a", ""),
    ] {
        assert_eq!(names.answer(command, "").bottle().to_string(), bottle, "{command}");
    }
}

#[test]
fn a_name_is_of_the_last_one_who_registers_it_and_ports_are_not_given_twice() {
    let mut names = names();
    let first = said(&mut names, "register /a", "10.0.0.2");
    let second = said(&mut names, "register /a", "10.0.0.2");
    assert!(first.contains("port 10002") && second.contains("port 10003"), "{first}{second}");
    assert!(said(&mut names, "register /b", "10.0.0.3").contains("port 10004"));
    assert_eq!(said(&mut names, "list", "").lines().count(), 4);
}

#[test]
fn what_is_too_much_is_refused_with_the_limit() {
    let mut names = names();
    (1..MOST_NAMES).for_each(|number| drop(said(&mut names, &format!("register /{number} tcp h 1"), "")));
    assert!(said(&mut names, "register /one/more tcp h 1", "").starts_with("10000 names"));
    assert!(said(&mut names, "register /1 tcp other 2", "").starts_with("registration"));
    let many = vec!["x"; MOST_VALUES + 1].join(" ");
    for (command, says) in [
        (format!("set /1 key {many}"), "64 values"),
        (format!("set /1 key {}", "x".repeat(256)), "255 characters"),
        (format!("check /1 key {many}"), "64 values"),
        (format!("route /1 /{}", "x".repeat(600)), "510 characters"),
        ("set /unknown key x".to_owned(), "/unknown is not known"),
        (format!("register /2 tcp {} 1", "x".repeat(256)), "255"),
        ("register /2 tcp h 70000".to_owned(), "70000 is no port number"),
        ("register /2 mcast".to_owned(), "mcast is not offered"),
        ("register two tcp h 1".to_owned(), "begin with /"),
        ("dance".to_owned(), "unknown command dance"),
        (String::new(), "unknown command"),
    ] {
        let said = said(&mut names, &command, "");
        assert!(said.contains(says) && said.ends_with("*** end of message\n"), "{command}: {said}");
    }
    (0..MOST_PROPERTIES).for_each(|number| drop(said(&mut names, &format!("set /1 {number} x"), "")));
    assert!(said(&mut names, "set /1 more x", "").contains("32 properties"));
    assert!(said(&mut names, "set /1 0 y", "").contains("= y"));
}

proptest! {
    #[test]
    fn any_command_is_answered(command in "(register|query|set|get|check|match|bot|list|/a|\\.\\.\\.|tcp|=|[0-9]{1,6}|\"| ){0,20}") {
        let mut names = names();
        prop_assert!(said(&mut names, &command, "10.0.0.1").ends_with('\n'));
    }
}
