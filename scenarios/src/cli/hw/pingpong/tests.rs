//! The command on a device in memory: finding a peer, and everything that it may be instead.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use doorbell_hw::verbs::fake::{DeviceConfig, Fake, FakeConfig};

use super::*;
use crate::cli::args::DeviceArgs;

fn args(port_number: u16) -> HwPingpongArgs {
    HwPingpongArgs {
        host: None,
        size: 4096,
        iterations: 10,
        device: DeviceArgs { device: vec![], port: None, gid: vec![] },
        port_number,
        listen: None,
        events: false,
        interop: false,
        limit: Duration::from_millis(300),
        json: false,
    }
}

fn client(port: u16) -> HwPingpongArgs {
    HwPingpongArgs { host: Some("127.0.0.1".to_owned()), ..args(port) }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a side runs into.
fn trouble(args: &HwPingpongArgs) -> Trouble {
    let fake = Fake::new(FakeConfig::default());
    let provider: Arc<dyn Provider> = Arc::new(fake.clone());
    let result = measure(args, &provider, &|_| None);
    fake.assert_clean();
    match result {
        Ok(report) => report.ended.trouble.expect("nobody answers on this device"),
        Err(trouble) => trouble,
    }
}

#[track_caller]
fn says(trouble: &Trouble, status: ExitStatus, words: &str) {
    assert!(trouble.text().contains(words), "{words:?} is not in {}", trouble.text());
    assert_eq!(trouble.status(), status, "{}", trouble.text());
}

#[test]
fn nobody_comes_and_nobody_is_there() {
    let tool = |a: HwPingpongArgs| HwPingpongArgs { interop: true, ..a };
    let port = free_port();
    says(&trouble(&args(port)), ExitStatus::NoProgress, "1 of 2 ranks did not join");
    says(&trouble(&client(port)), ExitStatus::NoProgress, "no rendezvous at 127.0.0.1");
    says(&trouble(&tool(args(port))), ExitStatus::NoProgress, "nobody connected to 127.0.0.1");
    says(&trouble(&tool(client(port))), ExitStatus::NoProgress, "start the server first");
    let nowhere = HwPingpongArgs { host: Some("no such host".to_owned()), ..tool(args(port)) };
    says(&trouble(&nowhere), ExitStatus::BadInput, "no address of host \"no such host\"");
}

#[test]
fn a_port_that_is_taken_and_an_address_for_all() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    says(&trouble(&args(port)), ExitStatus::BadInput, "is taken by another program");
    let tool = HwPingpongArgs { interop: true, ..args(port) };
    says(&trouble(&tool), ExitStatus::BadInput, "end who uses the port");
    let all: IpAddr = [0, 0, 0, 0].into();
    let open = HwPingpongArgs { listen: Some(all), ..args(free_port()) };
    says(&trouble(&open), ExitStatus::BadInput, "so the run needs a token: set DOORBELL_TOKEN");
}

/// Somebody who answers whoever connects, whatever it says, with these bytes.
fn answering<T>(bytes: &[u8], with: impl FnOnce(u16) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(bytes);
            let _ = stream.read(&mut [0; 512]);
        });
        with(port)
    })
}

#[test]
fn a_peer_that_is_something_else() {
    let limit = Duration::from_secs(10);
    let web = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let found = answering(web, |port| trouble(&HwPingpongArgs { limit, ..client(port) }));
    says(&found, ExitStatus::BadInput, "is no rendezvous of doorbell");
    let tool = |port| HwPingpongArgs { interop: true, limit, ..client(port) };
    let found = answering(web, |port| trouble(&tool(port)));
    says(&found, ExitStatus::BadInput, "is no message of ibv_rc_pingpong");
    // An answer of half a message, and then nothing more.
    let half = answering(b"0000:000017:", |port| trouble(&tool(port)));
    says(&half, ExitStatus::NoProgress, "12 of 52 bytes");
}

#[test]
fn a_client_that_leaves_during_the_exchange() {
    let port = free_port();
    let server = HwPingpongArgs { interop: true, limit: Duration::from_secs(10), ..args(port) };
    let found = std::thread::scope(|scope| {
        let server = scope.spawn(|| trouble(&server));
        // It says nothing and leaves.
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the server never listened");
            std::thread::yield_now();
        }
        server.join().unwrap()
    });
    says(&found, ExitStatus::NoProgress, "closed the connection after 0 of 52 bytes");
}

#[test]
fn two_sides_that_play_different_games() {
    let (port, limit) = (free_port(), Duration::from_secs(10));
    let server = HwPingpongArgs { limit, ..args(port) };
    let client = HwPingpongArgs { size: 64, limit, ..client(port) };
    let [server, client] = std::thread::scope(|scope| {
        let server = scope.spawn(|| trouble(&server));
        let client = trouble(&client);
        [server.join().unwrap(), client]
    });
    says(&server, ExitStatus::BadInput, "rank 1 runs a ping-pong of 10 round trips of 64 B");
    says(&client, ExitStatus::BadInput, "rank 0 runs a ping-pong of 10 round trips of 4096 B");
}

#[test]
fn a_port_with_a_small_mtu_is_no_peer_of_the_tool() {
    let mut devices = vec![DeviceConfig::roce("fake0", 1)];
    devices[0].port.active_mtu = Mtu::B512;
    let provider: Arc<dyn Provider> =
        Arc::new(Fake::new(FakeConfig { devices, ..FakeConfig::default() }));
    let args = HwPingpongArgs { interop: true, ..args(free_port()) };
    let Err(trouble) = measure(&args, &provider, &|_| None) else { panic!("it ran") };
    says(&trouble, ExitStatus::BadInput, "port 1 of fake0 only 512 B");
}

#[test]
fn a_report_says_what_happened_in_both_forms() {
    let fake = Fake::new(FakeConfig::default());
    let provider: Arc<dyn Provider> = Arc::new(fake);
    let (port, limit) = (free_port(), Duration::from_secs(3));
    let side = |args: HwPingpongArgs| measure(&args, &provider, &|_| None);
    let server = HwPingpongArgs { limit, ..args(port) };
    let args = HwPingpongArgs { limit, ..client(port) };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| side(server));
        measure(&args, &provider, &|_| None).unwrap_or_else(|t| panic!("{t:?}"))
    });
    let text = report.to_text(&args);
    for part in ["measured: 10 round trips of 4096 B by SEND\n", "client: ", "\nexit: while "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json(&args)).unwrap();
    assert_eq!((&json["role"], &json["received"]), (&"client".into(), &0.into()));
    assert_eq!(json["exit"]["kind"], "no-progress");
}
