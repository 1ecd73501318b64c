"""An SSH server for tests: runs commands as this user, for the owner of one key.

    ssh_server.py ADDRESS HOST_KEY AUTHORIZED_KEYS

OpenSSH's is not installed everywhere. It prints a line when it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import asyncssh


async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Runs one command. Its input ends with the connection."""
    pipe = asyncio.subprocess.PIPE
    # A session of its own, as OpenSSH makes it: some commands end their whole process group.
    command = await asyncio.create_subprocess_shell(process.command or "exit 1", stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    reads = asyncio.ensure_future(pump(process.stdin, command.stdin))
    await asyncio.gather(pump(command.stdout, process.stdout), pump(command.stderr, process.stderr))
    process.exit(await command.wait())
    reads.cancel()


async def pump(source: Any, target: Any) -> None:  # noqa: ANN401 (streams of asyncio and of asyncssh)
    """Passes bytes on until they end."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while chunk := await source.read(1 << 16):
            target.write(chunk)
    if isinstance(target, asyncio.StreamWriter):
        target.close()


async def main(address: str, host_key: str, authorized: str) -> None:
    """Serves until it is ended."""
    await asyncssh.listen(address, 22, server_host_keys=[host_key], authorized_client_keys=authorized, process_factory=serve, encoding=None)
    print("listening", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
