//! The edge of the product: what the interface says of itself, who may own its name, and that no peer of
//! the private socket can be somebody else or take more than its share.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tenured::bus::proxy::{self, Options};

use crate::options;
use crate::support::bus::PrivateBus;
use crate::support::client::Named;
use crate::support::daemon::Setup;
use crate::support::wait::until;
use crate::support::{Client, Host, eventually, is_root, skip};

/// nobody: a bus lets in only those whom the host knows.
const MALLORY: u32 = 65_534;

fn none() -> Options<'static> {
    Options::new()
}

fn without_bus() -> Setup {
    Setup { with_bus: false, ..Setup::default() }
}

fn introspect(client: &Client) -> String {
    let call = async {
        let connection = client.manager.inner().connection();
        let interface = Some("org.freedesktop.DBus.Introspectable");
        let name = Some(proxy::BUS_NAME);
        let reply = connection.call_method(name, proxy::OBJECT_PATH, interface, "Introspect", &()).await?;
        reply.body().deserialize::<String>()
    };
    client.ask(call).unwrap()
}

/// Run with `TENURED_BLESS=1` to write the file anew, and read the difference before it is committed: what
/// is in it is a promise to those who script against it.
#[test]
fn the_interface_is_the_golden_one() {
    let host = Host::start_with(without_bus());
    let now = introspect(&host.client());
    let path = crate::support::source::root().join("tests/golden/introspection.xml");
    if std::env::var_os("TENURED_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(golden == now, "the interface has changed; see the head of this test\n{now}");
}

/// Strict parsers end at a double hyphen inside a comment, and then know nothing of the interface.
#[test]
fn what_the_interface_says_of_itself_is_sound_xml() {
    use quick_xml::events::Event;
    let golden = crate::support::source::root().join("tests/golden/introspection.xml");
    let text = std::fs::read_to_string(golden).unwrap();
    let mut reader = quick_xml::Reader::from_str(&text);
    reader.config_mut().check_comments = true;
    let mut named = BTreeSet::new();
    let mut commented = 0;
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => break,
            Event::Comment(_) => commented += 1,
            Event::Start(element) | Event::Empty(element) => {
                let attributes = element.attributes().map(Result::unwrap);
                let name = attributes.into_iter().find(|attribute| attribute.key.as_ref() == "name");
                let kind = element.name().as_ref().to_owned();
                if let Some(name) = name.filter(|_| kind == "method") {
                    named.insert(name.value.into_owned());
                }
            }
            _ => {}
        }
    }
    assert!(named.contains("CreateTask") && named.contains("OpenOutput"), "{named:?}");
    assert!(commented > 40, "{commented} comments");
}

#[test]
fn root_alone_may_own_the_name_and_everyone_may_ask() {
    if !is_root() {
        return skip("the bus policy", "needs a second user");
    }
    let directory = tempfile::Builder::new().prefix("tenured-it-").tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let bus = PrivateBus::start(directory.path());
    let own = |client: &Client| client.ask(client.manager.inner().connection().request_name(proxy::BUS_NAME));
    let mallory = Client::connect_as(MALLORY, &bus.address).unwrap();
    assert_eq!(own(&mallory).refusal(), "org.freedesktop.DBus.Error.AccessDenied");
    own(&Client::connect(&bus.address).unwrap()).unwrap();

    let host = Host::start();
    let mallory = host.client_as(MALLORY);
    assert!(introspect(&mallory).contains("CreateTask"));
    assert!(!mallory.ask(mallory.manager.version()).unwrap().is_empty());
    let last_sweep = mallory.ask(mallory.manager.last_sweep());
    assert_eq!(last_sweep.refusal(), "NotAuthorized");
    let elsewhere = mallory.ask(async {
        let connection = mallory.manager.inner().connection();
        let nowhere = Some("org.example.Nowhere");
        connection.call_method(Some(proxy::BUS_NAME), proxy::OBJECT_PATH, nowhere, "X", &()).await
    });
    assert_eq!(elsewhere.refusal(), "org.freedesktop.DBus.Error.AccessDenied");
}

/// Nobody can take the name from a daemon that has it, not even root.
#[test]
fn the_name_cannot_be_taken() {
    use zbus::fdo::RequestNameFlags;
    let host = Host::start();
    let client = host.client();
    let connection = client.manager.inner().connection();
    let flags = RequestNameFlags::REPLACE_EXISTING | RequestNameFlags::DO_NOT_QUEUE;
    let taken = client.ask(connection.request_name_with_flags(proxy::BUS_NAME, flags));
    assert!(taken.is_err(), "{taken:?}");
    client.create("the daemon still has it", &none());
}

#[test]
fn c27_the_bus_goes_and_comes_back_and_so_does_the_daemon() {
    let mut host = Host::start();
    let by_socket = Client::connect(&host.private_address()).unwrap();
    for round in 0..3 {
        let before = host.client();
        let task = before.create("before the bus went", &none());
        host.stop_bus();
        eventually("the daemon to notice", || {
            let degraded = by_socket.ask(by_socket.manager.degraded()).unwrap();
            if degraded == ["bus_lost"] { Ok(()) } else { Err(format!("{degraded:?}")) }
        });
        assert_eq!(by_socket.status(task), "ready", "work goes on without it");
        by_socket.create("while it is away", &none());
        host.start_bus();
        let client = eventually("the name to be back", || {
            let client = Client::connect(&host.address()).map_err(|refused| format!("{refused:?}"))?;
            client.ask(client.manager.version()).map_err(|refused| format!("{refused:?}"))?;
            Ok(client)
        });
        eventually("the daemon to be well", || {
            let degraded = by_socket.ask(by_socket.manager.degraded()).unwrap();
            if degraded.is_empty() { Ok(()) } else { Err(format!("{degraded:?}")) }
        });
        assert_eq!(client.status(task), "ready", "round {round}");
        let tasks = client.rows(client.ask(client.manager.list_tasks(&none())));
        assert_eq!(tasks.len(), 3 * round + 2, "nothing is done twice");
        hears_of_a_change(&client);
    }
}

fn hears_of_a_change(client: &Client) {
    use futures_util::StreamExt;
    let heard = async {
        let mut changes = client.manager.receive_task_changed().await?;
        let parked = client.manager.create_task("told", &none()).await?.0;
        client.manager.cancel_task(parked, &none()).await?;
        client.manager.archive_task(parked, &none()).await?;
        Ok(changes.next().await.unwrap().args()?.task == parked)
    };
    assert!(client.ask(heard).unwrap());
}

/// A peer of the private socket, byte by byte.
struct Peer(UnixStream);

impl Peer {
    fn connect(host: &Host) -> Self {
        let stream = UnixStream::connect(host.path("run").join("private")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    fn say(&mut self, text: &[u8]) -> String {
        self.0.write_all(text).unwrap();
        let mut answer = [0; 256];
        let read = self.0.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    /// Admitted, in blocking form.
    fn admitted(host: &Host) -> Self {
        let mut peer = Self::connect(host);
        assert_eq!(peer.say(b"\0AUTH EXTERNAL\r\n"), "DATA\r\n");
        assert!(peer.say(b"DATA\r\n").starts_with("OK "));
        peer.0.write_all(b"BEGIN\r\n").unwrap();
        peer
    }

    /// Whether the daemon closes it within the time that a read may take.
    fn closes(mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok()
    }
}

fn message(method: &str, sender: Option<&str>, flags: zbus::message::Flags) -> zbus::Message {
    let mut builder = zbus::Message::method_call(proxy::OBJECT_PATH, method);
    if let Some(sender) = sender {
        builder = builder.sender(sender);
    }
    builder.interface(proxy::INTERFACE).with_flags(flags).build(&(none(),)).unwrap()
}

/// What a peer writes about itself is not who it is.
#[test]
fn nobody_can_be_somebody_else_on_the_private_socket() {
    if !is_root() {
        return skip("identity on the private socket", "needs a second user");
    }
    let host = Host::start_with(without_bus());
    let root = host.client();
    let task = root.create("root's", &none());
    let roots_name = root.manager.inner().connection().unique_name().unwrap().to_string();

    // An admitted peer that puts other senders into its messages, root's own among them.
    let mallory = host.client_as(MALLORY);
    for sender in [roots_name.as_str(), ":1.0", "org.freedesktop.DBus", ":1.1"] {
        let Ok(sender) = zbus::names::UniqueName::try_from(sender) else { continue };
        let forged = mallory.ask(async {
            let connection = mallory.manager.inner().connection();
            let call = zbus::Message::method_call(proxy::OBJECT_PATH, "GetTask");
            let call = call.sender(sender.clone()).interface(proxy::INTERFACE).build(&task)?;
            let mut messages = zbus::MessageStream::from(connection);
            connection.send(&call).await?;
            let serial = call.primary_header().serial_num();
            loop {
                use futures_util::StreamExt;
                let answer = messages.next().await.unwrap()?;
                if answer.header().reply_serial() == Some(serial) {
                    break Ok(answer.header().error_name().map(ToString::to_string));
                }
            }
        });
        assert_eq!(forged, Ok(Some("org.tenured1.Error.NoSuchTask".to_owned())), "as {sender}");
    }

    // The handshake: the kernel says who it is.
    let thread = std::thread::spawn({
        let socket = host.path("run").join("private");
        move || {
            let uid = rustix::process::Uid::from_raw(MALLORY);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            let stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            Peer(stream).say(b"\0AUTH EXTERNAL 30\r\n")
        }
    });
    assert_eq!(thread.join().unwrap(), "REJECTED EXTERNAL\r\n");
}

#[test]
fn a_peer_that_does_not_shake_hands_is_closed() {
    let host = Host::start_with(without_bus());
    assert!(Peer::connect(&host).closes(), "it said nothing, and was kept");
    let mut peer = Peer::connect(&host);
    peer.0.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    assert!(peer.closes());
}

#[test]
fn one_user_cannot_take_all_connections() {
    let host = Host::start_with(without_bus());
    let client = host.client();
    let kept: Vec<Peer> = (0..60).map(|_| Peer::admitted(&host)).collect();
    let mut more: Vec<UnixStream> = Vec::new();
    eventually("the daemon to take no more", || {
        let mut peer = Peer::connect(&host);
        peer.0.write_all(b"\0AUTH EXTERNAL\r\n").map_err(|error| error.to_string()).ok();
        let mut answer = [0; 16];
        match peer.0.read(&mut answer) {
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => {
                more.push(peer.0);
                Err(format!("{} more were taken", more.len()))
            }
        }
    });
    client.create("those who are there are served", &none());
    drop((kept, more));
    eventually("room for others", || {
        let client = Client::connect(&host.address()).map_err(|refused| format!("{refused:?}"))?;
        client.ask(client.manager.version()).map(drop).map_err(|refused| format!("{refused:?}"))
    });
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Writes calls without ever reading an answer, until nothing is taken any more.
fn flood(mut stream: &UnixStream, message: &zbus::Message, at_most: usize) -> usize {
    stream.set_nonblocking(true).unwrap();
    let bytes = message.data();
    for written in 0..at_most {
        let mut rest: &[u8] = bytes;
        let taken = until(Duration::from_secs(2), || match stream.write(rest) {
            Ok(count) => {
                rest = &rest[count..];
                if rest.is_empty() { Ok(()) } else { Err("half of it".to_owned()) }
            }
            Err(error) => Err(error.to_string()),
        });
        if taken.is_err() {
            return written;
        }
    }
    at_most
}

/// A client that asks for pages and reads none of them.
#[test]
fn a_peer_that_asks_and_never_reads_leaves_the_daemons_memory_alone() {
    let host = Host::start_with(without_bus());
    let client = host.client();
    let body = "x".repeat(60_000);
    for _ in 0..20 {
        client.create("large", &options! { "Body" => body.as_str() });
    }
    let before = resident_kib(host.pid());
    let peers: Vec<Peer> = (0..8).map(|_| Peer::admitted(&host)).collect();
    let call = message("ListTasks", None, zbus::message::Flags::empty());
    for peer in &peers {
        let written = flood(&peer.0, &call, 20_000);
        assert!(written < 20_000, "all of it was taken");
    }
    let unanswered = message("ListTasks", None, zbus::message::Flags::NO_REPLY_EXPECTED);
    let loud = Peer::admitted(&host);
    flood(&loud.0, &unanswered, 20_000);
    let grown = resident_kib(host.pid()).saturating_sub(before);
    assert!(grown < 128 * 1_024, "the daemon has grown by {grown} KiB");
    // Its own user's pages wait behind it, for a while; everything else goes on.
    client.create("others are served", &none());
}

/// On the bus it is the bus that holds what nobody reads; the daemon works on so many calls at once.
#[test]
fn a_client_of_the_bus_that_asks_and_never_reads_leaves_the_daemons_memory_alone() {
    let host = Host::start();
    let client = host.client();
    let body = "x".repeat(60_000);
    for _ in 0..20 {
        client.create("large", &options! { "Body" => body.as_str() });
    }
    let before = resident_kib(host.pid());
    let path = host.address();
    let path = path.trim_start_matches("unix:path=").split(',').next().unwrap().to_owned();
    let mut peer = Peer(UnixStream::connect(path).unwrap());
    peer.0.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(peer.say(b"\0AUTH EXTERNAL\r\n").starts_with("DATA"));
    assert!(peer.say(b"DATA\r\n").starts_with("OK "));
    peer.0.write_all(b"BEGIN\r\n").unwrap();
    let hello = zbus::Message::method_call("/org/freedesktop/DBus", "Hello");
    let hello =
        hello.destination("org.freedesktop.DBus").interface("org.freedesktop.DBus").build(&()).unwrap();
    peer.0.write_all(hello.data()).unwrap();
    let call = zbus::Message::method_call(proxy::OBJECT_PATH, "ListTasks").destination(proxy::BUS_NAME);
    let call = call.interface(proxy::INTERFACE).build(&(none(),)).unwrap();
    flood(&peer.0, &call, 5_000);
    let grown = resident_kib(host.pid()).saturating_sub(before);
    assert!(grown < 128 * 1_024, "the daemon has grown by {grown} KiB");
    client.create("others are served", &none());
}

/// Signals go to those who asked for them, and to nobody else.
#[test]
fn a_peer_that_did_not_ask_hears_nothing() {
    use futures_util::StreamExt;
    let host = Host::start_with(without_bus());
    let (listener, silent) = (host.client(), host.client());
    let task = host.client().create("told", &none());
    listener
        .ask(async {
            let connection = listener.manager.inner().connection();
            let properties = zbus::fdo::PropertiesProxy::builder(connection).destination(proxy::BUS_NAME);
            let properties = properties.path(proxy::OBJECT_PATH).build().await?;
            let mut drains = properties.receive_properties_changed().await?;
            let mut changes = listener.manager.receive_task_changed().await?;
            let everything = zbus::MessageStream::from(silent.manager.inner().connection());
            futures_util::pin_mut!(everything);
            listener.manager.cancel_task(task, &none()).await?;
            assert_eq!(changes.next().await.unwrap().args()?.task, task);
            listener.manager.drain(true, &none()).await?;
            let told = drains.next().await.unwrap();
            let told = told.args()?;
            assert_eq!(told.interface_name, proxy::INTERFACE);
            assert_eq!(told.changed_properties.get("Draining"), Some(&zbus::Variant::from(true)));
            let heard = futures_util::FutureExt::now_or_never(everything.next());
            assert!(heard.is_none(), "{heard:?}");
            Ok(())
        })
        .unwrap();
    silent.ask(silent.manager.version()).unwrap();
}

/// Work is not given to somebody who is no longer there to take it.
#[test]
fn whoever_leaves_while_waiting_for_work_is_given_none() {
    let host = Host::start();
    let client = host.client();
    for address in [host.address(), host.private_address()] {
        let waiting = Client::connect(&address).unwrap();
        let asked = waiting.ask(async {
            let connection = waiting.manager.inner().connection();
            let call =
                zbus::Message::method_call(proxy::OBJECT_PATH, "ClaimTask").destination(proxy::BUS_NAME);
            let wait = options! { "WaitUsec" => 60_000_000_u64 };
            let call = call.interface(proxy::INTERFACE).build(&("", wait))?;
            connection.send(&call).await?;
            // Calls of one connection are taken up in their order: when this one is answered, it waits.
            waiting.manager.version().await
        });
        assert!(asked.is_ok());
        drop(waiting);
        let next = Client::connect(&address).unwrap();
        next.ask(next.manager.version()).unwrap();
        let task = client.create("for somebody else", &none());
        let given = next.ask(next.manager.claim_task("", &none())).map(|(task, _, _)| task);
        assert_eq!(given, Ok(task), "by {address}");
    }
}
