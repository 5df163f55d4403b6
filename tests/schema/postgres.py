"""A throw-away PostgreSQL server: what tests/src/postgres.rs does for the tests in Rust."""

import contextlib
import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

SETTINGS = "listen_addresses = '127.0.0.1'\nfsync = off\nfull_page_writes = off\nsynchronous_commit = on\nmax_connections = 100\n"


@contextlib.contextmanager
def maybe(wanted):
    """The address of an empty database, or `None` when none is wanted."""
    if not wanted:
        yield None
        return
    found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
    if not found:
        raise SystemExit("there is no initdb on PATH or under /usr/lib/postgresql")
    bin_folder = os.path.dirname(os.path.realpath(found))
    home = tempfile.mkdtemp(prefix="quita-schema-pg-")
    # PostgreSQL refuses to run as root.
    user = {}
    if os.geteuid() == 0:
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = {"user": "postgres" if "postgres" in names else "nobody"}
        os.chown(home, pwd.getpwnam(user["user"]).pw_uid, -1)
    data = os.path.join(home, "data")
    initdb = [os.path.join(bin_folder, "initdb"), "-U", "quita", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", data]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
    with open(os.path.join(data, "postgresql.auto.conf"), "w") as settings:
        settings.write(SETTINGS)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [os.path.join(bin_folder, "postgres"), "-D", data, "-k", home, "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **user)
    try:
        while not _ready(data):
            if server.poll() is not None:
                raise SystemExit("PostgreSQL did not start")
            time.sleep(0.02)
        yield f"postgres://quita@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def _ready(data):
    """The server says so itself, in the eighth line of its lock file."""
    with contextlib.suppress(OSError, IndexError), open(os.path.join(data, "postmaster.pid")) as lock:
        return lock.read().splitlines()[7].strip() == "ready"
    return False
