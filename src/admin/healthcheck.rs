//! `hangu healthcheck`: asks a gateway on this host whether it is ready. It is the probe of
//! images that have neither a shell nor curl.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// More than an answer ever has.
const MAX_ANSWER: u64 = 64 << 10;

/// Asks the admin listener at `address`, an unspecified one on loopback. Returns whether it is
/// ready, and its answer; an error if there was none.
pub fn healthcheck(address: SocketAddr, timeout: Duration) -> io::Result<(bool, String)> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let address = SocketAddr::new(ip, address.port());
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(not_http)?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    Ok((status.ok_or_else(not_http)? == "200", body.to_owned()))
}

fn not_http() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not that of an admin listener")
}
