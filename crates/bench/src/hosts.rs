//! Several hosts on one machine: network namespaces with their own addresses and shaped links.
//! Needs root and iproute2.

use base::Problem;
use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Networks for documentation (RFC 5737), which nobody should use; one that is in use is skipped.
const PREFIXES: [&str; 3] = ["198.51.100.", "203.0.113.", "192.0.2."];
/// Time limit for the bridge's links to forward; it usually takes milliseconds.
const UP_WAIT: Duration = Duration::from_secs(10);
const UP_POLL: Duration = Duration::from_millis(10);
/// The last number of the machine's own address on the bridge.
const OURS: u32 = 254;
/// Burst of a shaped link in bytes: one packet as the kernel hands it over (64 KiB), and a few
/// more.
const BURST_BYTES: u32 = 256 << 10;
/// Maximum time of a packet in the queue of a shaped link.
const LATENCY: &str = "50ms";

/// A group of hosts; removed when dropped.
#[derive(Debug)]
pub struct Hosts {
    name_prefix: String,
    prefix: &'static str,
    count: u32,
    directory: TempDir,
}

impl Hosts {
    /// Makes one host for each link, all on one bridge. `links` are rates in Mbit/s in each
    /// direction.
    pub fn new(links: &[u32]) -> Result<Self, Problem> {
        if !rustix::process::geteuid().is_root() {
            return Err(Problem::new("hosts with links of their own are network namespaces, which need root")
                .hint("leave out --links to measure on this host"));
        }
        let directory = tempfile::tempdir()
            .map_err(|error| Problem::new(format!("cannot create a directory for processes: {error}")))?;
        let used = ip(&["address"])?;
        let free = |prefix: &&str| !used.contains(&format!(" {prefix}"));
        let prefix = PREFIXES.into_iter().find(free).ok_or_else(|| Problem::new("no network is free"))?;
        let count = u32::try_from(links.len()).unwrap_or(u32::MAX);
        let hosts = Self { name_prefix: format!("tb{}", std::process::id()), prefix, count, directory };
        hosts.up(links)?;
        Ok(hosts)
    }

    fn up(&self, links: &[u32]) -> Result<(), Problem> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}{OURS}/24", self.prefix), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for (host, rate) in (0..).zip(links) {
            let (name, outside, address) = (self.name(host), self.outside(host), self.address(host));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip(&["link", "set", &outside, "master", &bridge, "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            run("tc", &shape(&["qdisc", "add", "dev", &outside], *rate))?;
            run("tc", &shape(&["-n", &name, "qdisc", "add", "dev", "eth0"], *rate))?;
        }
        let until = Instant::now() + UP_WAIT;
        while !self.is_up()? {
            if Instant::now() > until {
                return Err(Problem::new("the bridge between the hosts does not forward"));
            }
            thread::sleep(UP_POLL);
        }
        Ok(())
    }

    fn is_up(&self) -> Result<bool, Problem> {
        let shown = ip(&["-d", "link", "show", "master", &self.bridge()])?;
        Ok(shown.matches("state forwarding").count() == self.count as usize)
    }

    fn bridge(&self) -> String {
        format!("{}br", self.name_prefix)
    }

    fn name(&self, host: u32) -> String {
        format!("{}h{}", self.name_prefix, host + 1)
    }

    fn outside(&self, host: u32) -> String {
        format!("{}v{}", self.name_prefix, host + 1)
    }

    /// The address of a host.
    pub fn address(&self, host: u32) -> String {
        format!("{}{}", self.prefix, host + 1)
    }

    /// A command that runs a program on a host.
    pub fn command(&self, host: u32, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host)]).arg(program);
        command
    }

    /// Writes a program that replaces `ssh` for these hosts: `-o OPTION ADDRESS COMMAND`.
    pub fn ssh(&self) -> Result<PathBuf, Problem> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.directory.path().join("ssh-to-namespaces");
        let text = format!("#!/bin/sh\nexec ip netns exec {}h\"${{3##*.}}\" sh -c \"$4\"\n", self.name_prefix);
        std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)))
            .map_err(|error| Problem::new(format!("{}: {error}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..self.count {
            // Ignore errors: some of these may not have been made.
            ip(&["netns", "del", &self.name(host)]).ok();
            ip(&["link", "del", &self.outside(host)]).ok();
        }
        ip(&["link", "del", &self.bridge()]).ok();
    }
}

fn shape(device: &[&str], rate: u32) -> Vec<String> {
    let tbf = format!("root tbf rate {rate}mbit burst {BURST_BYTES} latency {LATENCY}");
    device.iter().copied().chain(tbf.split(' ')).map(str::to_owned).collect()
}

fn ip(words: &[&str]) -> Result<String, Problem> {
    run("ip", &words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>())
}

fn run(program: &str, words: &[String]) -> Result<String, Problem> {
    let whole = || format!("{program} {}", words.join(" "));
    let done = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| Problem::new(format!("{}: {error}", whole())).hint("install iproute2"))?;
    if !done.status.success() {
        return Err(Problem::new(format!("{}: {}", whole(), String::from_utf8_lossy(&done.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
