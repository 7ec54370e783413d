"""Runs a private service for as long as the process that wants it lives.

    python _guard.py PARENT_PID DIRECTORY COMMAND...

stdin is a pipe from that process: its end, however the process ends, ends the service.  A child that the process
forked may hold the pipe open, so the parent's id is looked at, too.  The service dies with this process.

A byte before the end of stdin says that the process goes on, and removes the service's directory itself; without one
it has died, and the directory is removed here."""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
LOOK_S = 0.5
END_S = 20


def die_with_parent() -> None:
    """In the child, which has one thread: SIGTERM when this process dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    """The service's exit status."""
    parent, directory = int(sys.argv[1]), sys.argv[2]
    orphaned = False
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C is for the process that wants the service
    child = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    os.close(1)     # the service's alone: its end is seen
    while child.poll() is None and not orphaned:
        ready, _, _ = select.select([0], [], [], LOOK_S)
        if ready and os.read(0, 4096):
            break
        orphaned = bool(ready) or os.getppid() != parent
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if orphaned:
        shutil.rmtree(directory, ignore_errors=True)
    return child.returncode if child.returncode >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
