"""Several hosts on one machine: network namespaces with an address each, on one bridge.

    with hosts.network(tmp_path, 4) as net:       # 4 hosts, the last of which is the user's in most tests
        net.run(3, binary, "pool", "start", "--hosts", net.names(0, 1, 2), "--ssh", str(net.ssh))

Needs root; why_not says why they cannot be had. All that is made goes with the context: namespaces, links, and processes in them.
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

# Of documents (RFC 5737), so nobody's; but machines are known that have one of them, and would answer in a host's place.
PREFIXES = ["198.51.100.", "203.0.113.", "192.0.2."]


def why_not() -> str | None:
    """Why this machine has no network namespaces for us; None where they should work."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no `ip`: install iproute2"
    return None


def ip(*words: str) -> None:
    """One command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """Hosts 0 to `count` - 1, reached by each other at `address(host)`."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        # Names are the machine's: two runs at once must not meet. Those of links have 15 characters at most.
        self.mark = f"tm{os.getpid()}"
        self.bridge = f"{self.mark}br"
        used = subprocess.run(["ip", "address"], check=True, capture_output=True, text=True).stdout
        self.prefix = next(prefix for prefix in PREFIXES if f" {prefix}" not in used)
        self.ssh = folder / "ssh-to-namespaces"
        self.ssh.write_text(f'#!/bin/sh\n# ssh -o OPTION ADDRESS COMMAND\nexec ip netns exec {self.mark}h"${{3##*.}}" sh -c "$4"\n')
        self.ssh.chmod(0o755)

    def name(self, host: int) -> str:
        """Its namespace."""
        return f"{self.mark}h{host + 1}"

    def address(self, host: int) -> str:
        """Its address."""
        return f"{self.prefix}{host + 1}"

    def names(self, *hosts: int) -> str:
        """As `--hosts` takes them."""
        return ",".join(self.address(host) for host in hosts)

    def up(self) -> None:
        """Makes all."""
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
        """Whether all links carry: what is sent before is lost."""
        listed = subprocess.run(["ip", "-d", "-j", "link", "show", "master", self.bridge], capture_output=True, text=True, check=True)
        ports = json.loads(listed.stdout)
        forwarding = [port for port in ports if port["operstate"] == "UP" and port["linkinfo"]["info_slave_data"]["state"] == "forwarding"]
        return len(forwarding) == self.count

    def down(self) -> None:
        """Removes all that is there."""
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
        """Nothing reaches the host any more, and it reaches nobody: as when its cable is pulled."""
        ip("link", "set", f"{self.mark}v{host + 1}", "down")

    def inside(self, host: int, *words: str | Path) -> list[str]:
        """The command that does this on a host."""
        return ["ip", "netns", "exec", self.name(host), *map(str, words)]


@contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """So many hosts."""
    made = Network(folder, count)
    try:
        made.up()
        yield made
    finally:
        made.down()
