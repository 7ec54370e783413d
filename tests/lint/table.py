"""The house's plan: which folder may include and call which, and the bounds that `make lint` checks.
docs/ARCHITECTURE.md draws it; a change of the plan changes both."""
import re

PURE = {"grammar", "controller/tokenizer", "controller/jinja", "controller/chat", "controller/sched"}


def may(root):
    """{folder: those that it may include and call beside itself}, from the Makefile's USES_... lines."""
    lines = re.sub(r"\\\n", " ", (root / "Makefile").read_text())
    values = dict(re.findall(r"^(\w+(?:/\w+)*)\s*:=[ \t]*(.*)$", lines, re.M))

    def expand(text):
        text = re.sub(r"\$\(([\w/]+)\)", lambda m: expand(values.get(m.group(1), "")), text)
        return re.sub(r"\$\(addprefix ([^,]*),([^)]*)\)",
                      lambda m: " ".join(m.group(1) + w for w in m.group(2).split()), text)
    return {k[5:]: set(expand(v).split()) for k, v in values.items() if k.startswith("USES_")}


# Headers that the pure folders must not include: sockets, threads, HTTP, databases.
IMPURE = r"zmq|pthread|threads\.h|microhttpd|sqlite|sys/socket|sys/epoll|netinet|curl/"

# Functions that read the environment, and the files that may call them.
GETENV = {"controller/metrics/tracer_config.c", "base/user_socket.c", "cli/terminal/environment.c", "worker/main.c", "kernels/kern.c"}

MAX_LINES = 900           # of a file
MAX_FUNCTION_LINES = 80
MAX_FOLDER_SOURCES = 25
MAX_FOLDER_SHARE = 0.2    # of the lines of all folders
MAX_SUBJECT_COLUMNS = 72
SUBJECTS_SINCE = "2026-11-22T13:00:00Z"   # older commits were written before the rule
# Published with 73 columns before it was seen; history that others build on is not rewritten for it.
SUBJECTS_EXCEPT = {"89eb42fef54e530b34810edcb1c228b08dd3f6bf"}
CLANG_FORMAT = "14.0.6"

# Words for persons where a sequence, a worker or a request is meant: at most one in N lines.
PERSONS = r"\b(who|whom|whose|nobody|somebody)\b"
LINES_PER_PERSON = 3000
