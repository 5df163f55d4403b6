//! Child processes and what they cost, read from `/proc`.

use crate::Outcome;
use std::collections::HashMap;
use std::fs::read_to_string;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

/// Kernel clock ticks per second in `/proc/PID/stat`; 100 on every Linux that Rust supports (`sysconf(_SC_CLK_TCK)`).
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that ends with its owner.
pub(crate) struct Owned(Child);

impl Owned {
    /// Starts `command` without input; its output is the caller's affair.
    pub(crate) fn start(command: &mut Command) -> Outcome<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        child.map(Self).map_err(|error| {
            format!("cannot start {}: {error}", command.get_program().display()).into()
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// It has ended by itself.
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A free port of the loopback interface, free at least a moment ago.
pub(crate) fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Sockets of a server on this machine that have a client, by the client's port: their numbers in the kernel.
pub(crate) fn client_sockets(server: SocketAddr) -> Outcome<HashMap<u16, u64>> {
    Ok(clients_in(&read_to_string("/proc/net/tcp")?, server.port()))
}

/// Lines of `/proc/net/tcp` (proc(5)): second the local address, then the remote one, then the state, where 01 is
/// established; tenth the socket's number.
fn clients_in(table: &str, server: u16) -> HashMap<u16, u64> {
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let client = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let number = fields.nth(5)?.parse().ok()?;
        (state == "01" && port(local)? == server).then_some((port(remote)?, number))
    };
    table.lines().filter_map(client).collect()
}

/// The sockets that a process has open: their numbers in the kernel, and under which file descriptor.
pub(crate) fn open_sockets(pid: u32) -> Outcome<HashMap<u64, u32>> {
    let socket = |entry: std::io::Result<std::fs::DirEntry>| {
        let descriptor = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((socket_at(pid, descriptor)?, descriptor))
    };
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(socket)
        .collect())
}

/// Which socket a process has open under this file descriptor.
pub(crate) fn socket_at(pid: u32, descriptor: u32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// CPU seconds of a process, its threads included, ended ones too.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |stat| stat.own)
}

/// CPU seconds of a process and everything under it, ended children included.
pub(crate) fn tree_cpu_seconds(root: u32) -> f64 {
    tree(root)
        .iter()
        .map(|(_, stat)| stat.own + stat.ended_children)
        .sum()
}

/// The first process under `root`, nearest first, that runs a program of this name.
pub(crate) fn descendant_named(root: u32, name: &str) -> Option<u32> {
    let runs = |pid: u32| {
        read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    tree(root)
        .into_iter()
        .map(|(pid, _)| pid)
        .find(|pid| *pid != root && runs(*pid))
}

/// `root` and its descendants, nearest first.
fn tree(root: u32) -> Vec<(u32, Stat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all: Vec<(u32, Stat)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    let mut found: Vec<(u32, Stat)> = all.extract_if(.., |(pid, _)| *pid == root).collect();
    let mut next = 0;
    while let Some((parent, _)) = found.get(next) {
        let parent = *parent;
        found.extend(all.extract_if(.., |(_, stat)| stat.parent == parent));
        next += 1;
    }
    found
}

/// Memory of a process in MiB: what it maps (RSS) and its share of it (PSS).
pub(crate) fn memory_mib(pid: u32) -> Outcome<(f64, f64)> {
    let rollup = read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let mib = |name: &str| -> Outcome<f64> {
        let line = rollup
            .lines()
            .find(|line| line.starts_with(name))
            .ok_or("smaps_rollup lacks a line")?;
        let kib: f64 = line
            .split_whitespace()
            .nth(1)
            .ok_or("smaps_rollup lacks a value")?
            .parse()?;
        Ok(kib / 1024.0)
    };
    Ok((mib("Rss:")?, mib("Pss:")?))
}

/// Bytes that a process has sent to the disk: `write_bytes` of `/proc/PID/io` (proc(5)).
pub(crate) fn bytes_written(pid: u32) -> Outcome<f64> {
    let io = read_to_string(format!("/proc/{pid}/io"))?;
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"));
    Ok(line.ok_or("no write_bytes")?.trim().parse()?)
}

struct Stat {
    parent: u32,
    own: f64,
    ended_children: f64,
}

/// Fields 4 and 14 to 17 of `/proc/PID/stat` (proc(5)); the name in field 2 may hold anything, so count from its end.
fn stat(pid: u32) -> Option<Stat> {
    let text = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: seconds(11)? + seconds(12)?,
        ended_children: seconds(13)? + seconds(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_of_a_server_are_found_by_their_clients() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 70 1\n\
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 71 1\n\
            2: 0100007F:1F90 0100007F:C351 04 00025800:00000000 00:00000000 00000000 0 0 0 1\n\
            3: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 0 0 72 1\n";
        assert_eq!(clients_in(table, 8080), HashMap::from([(50_000, 71)]));
    }

    #[test]
    fn a_process_has_the_sockets_that_it_has_not_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let (accepted, _) = listener.accept().unwrap();
        let number = client_sockets(listener.local_addr().unwrap()).unwrap()[&port];
        let me = std::process::id();
        let at = open_sockets(me).unwrap()[&number];
        assert_eq!(socket_at(me, at), Some(number));
        drop(accepted);
        assert_ne!(socket_at(me, at), Some(number));
        assert!(!open_sockets(me).unwrap().contains_key(&number));
    }
}
