"""`milkrun simulate`: serves the tracking world to environments in other processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

import typer


def simulate(
    port: int = typer.Option(33727, "--port", min=0, max=65535, help="TCP port; 0: a free one."),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen on; all but loopback need a token."),
    scene: str | None = typer.Option(
        None, "--scene", help="Scene of environments that do not choose one.", show_default=False
    ),
    weather: str | None = typer.Option(
        None, "--weather", help="Weather of environments that do not choose one.", show_default=False
    ),
    max_envs: int = typer.Option(256, "--max-envs", min=1, max=65536, help="Largest number of environments."),
    token_file: str | None = typer.Option(
        None, "--token-file", help="A file with the secret that clients must send.", show_default=False
    ),
    idle_timeout: float = typer.Option(
        600.0, "--idle-timeout", min=0.0, help="Seconds without an environment after which the server ends; 0: never."
    ),
    parent_pid: int | None = typer.Option(
        None, "--parent-pid", min=1, help="End when this process ends.", show_default=False
    ),
) -> None:
    """Serve the tracking world to environments in other processes, over TCP.

    When it is ready, the server prints one line of JSON on stdout; it logs connections on stderr. Ctrl-C ends it. The
    connection is not encrypted: between machines, use a tunnel.

    \b
    Examples:
      milkrun simulate
      milkrun simulate --host 0.0.0.0 --token-file secret.txt --scene village
    """
    # Idle threads sleep instead of spinning. Read when compiled code is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from milkrun.tracking.config import TrackingConfig
    from milkrun.tracking.link.group import compile_code
    from milkrun.tracking.link.server import Limits, Server
    from milkrun.tracking.link.wire import PROTO, read_token

    def log(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)

    server = Server(
        host,
        port,
        token=read_token(token_file),
        max_envs=max_envs,
        defaults={"scene": scene, "weather": weather},
        limits=Limits(idle=idle_timeout),
        watch=parent_pid,
        log=log,
    )
    _allow_files(max_envs)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: server.stop())
    log("loading; the first run compiles for half a minute")
    compile_code(TrackingConfig())
    print(json.dumps({"ready": True, "port": server.port, "proto": PROTO}, separators=(",", ":")), flush=True)
    log(f"ends: {server.serve()}")


def _allow_files(connections: int) -> None:
    """Raises the limit of open files to the number of connections and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
