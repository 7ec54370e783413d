"""terminal.py - run a command on its own pseudo-terminal, type to it and read its output."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
import uuid

from jobclient import SLOW
from service import QUERN, no_processes_left, spawn


class Terminal:
    """A command on its own terminal."""

    def __init__(self, *arguments, **env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.mark = uuid.uuid4().hex
        # A session leader that opens a terminal gets that terminal's Ctrl-C.
        self.process = spawn(["sh", "-c", 'tty=$1; shift; exec "$@" <"$tty"', "sh", os.ttyname(slave), QUERN, *arguments],
                             self.mark, stdin=slave, stdout=slave, stderr=slave, env={"TERM": "xterm", **env})
        os.close(slave)
        self.text = ""

    def expect(self, word, timeout=60):
        end = time.monotonic() + timeout * SLOW
        while word not in self.text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{word!r} did not come: {self.text!r}"
            try:
                data = os.read(self.master, 4096)
            except OSError:     # the other end is closed
                data = b""
            assert data, f"{word!r} did not come: {self.text!r}"
            self.text += data.decode(errors="replace")
        before, self.text = self.text.split(word, 1)
        return before

    def rest(self):
        """Return all output until the command ends."""
        while True:
            try:
                data = os.read(self.master, 4096)
            except OSError:
                data = b""
            if not data:
                text, self.text = self.text, ""
                return text
            self.text += data.decode(errors="replace")

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        try:
            return self.process.wait(30 * SLOW)
        finally:
            self.process.kill()
            os.close(self.master)
            no_processes_left(self.mark)
