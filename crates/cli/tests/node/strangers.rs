//! Who comes to the wrong door, slowly, or in too great numbers: each is told so in words that it
//! can read, and others are served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::resp::{Reply, Resp};
use crate::server::{NodeSetup, binary, outcome, test_folder};

/// Sends bytes, and reads what comes until the other end closes.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.write_all(bytes).expect("sends");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .unwrap_or_else(|error| panic!("not closed ({error}) after {answer:?}"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// A web page may send any local port a POST whose body is a command.
#[test]
fn a_web_page_cannot_have_commands_carried_out() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let node = place.start();
    let mut resp = Resp::connect(place.resp).expect("connects");
    assert!(resp.call(&[b"SET", b"k", b"v"]).expect("an answer").is_ok());
    let body = "FLUSHALL\r\n";
    let post = format!(
        "POST / HTTP/1.1\r\nHost: localhost:7401\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let attacks = [
        post.clone(),
        post.replacen("POST", "PUT", 1),
        post.replacen("POST / HTTP/1.1", "post", 1),
        format!("Host: localhost\r\n\r\n{body}"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n{body}"),
        format!("X-Header: 1\r\n{body}"),
        format!("{{\"a\": 1}}\r\n{body}"),
        format!("\u{1}\u{2}\r\n{body}"),
        "*1\r\n$4\r\nPOST\r\n*1\r\n$8\r\nFLUSHALL\r\n".to_owned(),
    ];
    for attack in &attacks {
        let answer = exchange(place.resp, attack.as_bytes());
        let told = answer.starts_with("HTTP/1.1 400") && answer.contains("7402")
            || answer.starts_with("-ERR Protocol error");
        assert!(told, "{attack:?} was answered {answer:?}");
        assert_eq!(
            resp.call(&[b"GET", b"k"]).expect("an answer"),
            Reply::Bulk(b"v".to_vec()),
            "after {attack:?}"
        );
    }
    assert!(node.text().contains("no redis client speaks here"), "{}", node.text());
    node.stop();
}

#[test]
fn every_port_says_what_it_is() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let node = place.start();
    let answer = exchange(place.native, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 400")
            && answer.contains("text/plain")
            && answer.contains("native protocol"),
        "{answer}"
    );
    for hello in [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"] {
        let answer = exchange(place.native, hello);
        assert!(answer.starts_with("-ERR ") && answer.contains("7401"), "{answer}");
    }
    for wrong in [place.resp, place.http] {
        let mut command = binary();
        command.args(["get", "k", "--address", &format!("timestone://{wrong}")]);
        let begun = Instant::now();
        let (code, text) = outcome(command);
        assert!(
            code == 1 && text.contains("does not speak Timestone's protocol (usually 7400)"),
            "{code}: {text}"
        );
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    node.stop();
}

#[test]
fn a_refused_connection_is_told_at_once() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let mut command = binary();
    command.args(["get", "k", "--address", &place.url()]);
    let begun = Instant::now();
    let (code, text) = outcome(command);
    assert!(
        code == 1 && text.contains("connection refused; is the server running?"),
        "{code}: {text}"
    );
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn slow_http_headers_are_not_waited_for() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let node = place.start();
    let mut slow = TcpStream::connect(place.http).expect("connects");
    slow.set_read_timeout(Some(Duration::from_millis(250))).expect("a timeout");
    slow.write_all(b"GET /livez HTTP/1.1\r\n").expect("sends");
    let begun = Instant::now();
    loop {
        let ended =
            slow.write_all(b"X: y\r\n").is_err() || matches!(slow.read(&mut [0; 512]), Ok(0));
        if ended {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "a header a quarter of a second, for ever"
        );
    }
    let answer =
        exchange(place.http, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    node.stop();
}

#[test]
fn a_process_with_few_descriptors_says_so_and_tells_how_it_is() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let mut command = std::process::Command::new("sh");
    let server = place.command();
    command
        .arg("-c")
        .arg("ulimit -n 80; exec \"$@\"")
        .arg("sh")
        .arg(server.get_program())
        .args(server.get_args());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let node = place.spawn_as(command).ready();
    let mut crowd: Vec<TcpStream> =
        (0..120).filter_map(|_| TcpStream::connect(place.resp).ok()).collect();
    // Who is too much is told so.
    let mut words = String::new();
    let last = crowd.last_mut().expect("the system accepts them");
    last.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    last.read_to_string(&mut words).expect("it is closed");
    assert!(words.contains("max number of clients reached"), "{words}");
    for _ in 0..3 {
        let answer =
            exchange(place.http, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let warnings = node.text().matches("Cannot accept connections").count();
    assert!(warnings <= 1, "{warnings} warnings: {}", node.text());
    drop(crowd);
    node.stop();
}
