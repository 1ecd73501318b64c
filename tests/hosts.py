"""Several hosts on one machine: network namespaces with an address each, on one bridge.

    with hosts.network(tmp_path, 4) as net:       # 4 hosts; in most tests the last is the user's
        net.run(3, binary, "pool", "start", "--hosts", net.names(0, 1, 2), "--ssh", str(net.ssh))

Needs root; unsupported_reason says why a machine does not support it. The end of the context
removes everything: namespaces, links, and the processes in the namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import wait_for

# Address ranges for documentation (RFC 5737), which belong to nobody. Some machines use one of them
# nevertheless, and would answer instead of a host.
PREFIXES = ["198.51.100.", "203.0.113.", "192.0.2."]


def unsupported_reason() -> str | None:
    """Returns why network namespaces are not available, or None if they should work."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no `ip`: install iproute2"
    return None


def ip(*words: str) -> None:
    """Runs one command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """Hosts 0 to `count` - 1, which reach each other at `address(host)`."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        # The names are global on the machine, so two test runs need different ones. Names of links
        # have at most 15 characters.
        self.mark = f"tm{os.getpid()}"
        self.bridge = f"{self.mark}br"
        used = subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout
        self.prefix = next(prefix for prefix in PREFIXES if f" {prefix}" not in used)
        self.ssh = folder / "ssh-to-namespaces"
        self.ssh.write_text(f'#!/bin/sh\n# ssh -o OPTION ADDRESS COMMAND\nexec nsenter --net=/run/netns/{self.mark}h"${{3##*.}}" sh -c "$4"\n')
        self.ssh.chmod(0o755)

    def name(self, host: int) -> str:
        """The namespace of a host."""
        return f"{self.mark}h{host + 1}"

    def address(self, host: int) -> str:
        """The IP address of a host."""
        return f"{self.prefix}{host + 1}"

    def names(self, *hosts: int) -> str:
        """The addresses of hosts as `--hosts` takes them."""
        return ",".join(self.address(host) for host in hosts)

    def up(self) -> None:
        """Makes the bridge, namespaces and links."""
        ip("link", "add", self.bridge, "type", "bridge")
        ip("link", "set", self.bridge, "up")
        for host in range(self.count):
            name, outside = self.name(host), f"{self.mark}v{host + 1}"
            ip("netns", "add", name)
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", outside, "master", self.bridge, "up")
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        wait_for(self.is_up, "the bridge does not forward")

    def is_up(self) -> bool:
        """True if all links forward; packets sent earlier are lost."""
        listed = subprocess.run(["ip", "-d", "-j", "link", "show", "master", self.bridge], capture_output=True, text=True, check=True)
        ports = json.loads(listed.stdout)
        forwarding = [port for port in ports if port["operstate"] == "UP" and port["linkinfo"]["info_slave_data"]["state"] == "forwarding"]
        return len(forwarding) == self.count

    def down(self) -> None:
        """Removes everything that exists."""
        for host in range(self.count):
            name = self.name(host)
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for pid in map(int, listed.split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", f"{self.mark}v{host + 1}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def cut(self, host: int) -> None:
        """Disconnects a host in both directions, like an unplugged cable."""
        ip("link", "set", f"{self.mark}v{host + 1}", "down")

    def sent_bytes(self, host: int) -> int:
        """Bytes that a host has sent to others so far."""
        return int(Path(f"/sys/class/net/{self.mark}v{host + 1}/statistics/rx_bytes").read_text())

    def inside(self, host: int, *words: str | Path) -> list[str]:
        """A command line that runs a command on a host."""
        # `ip netns exec` would copy all mounts of the machine into a namespace of its own, and a mount
        # of another test would stay alive as long as this process.
        return ["nsenter", f"--net=/run/netns/{self.name(host)}", *map(str, words)]


@contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """A network of `count` hosts."""
    made = Network(folder, count)
    try:
        made.up()
        yield made
    finally:
        made.down()
