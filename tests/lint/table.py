"""The rules' data: the folders that each folder may include and call, and the limits that `make lint` checks.
docs/ARCHITECTURE.md draws the same plan; change both together."""
import re

PURE = {"grammar", "controller/tokenizer", "controller/jinja", "controller/chat", "controller/sched"}


def may(root):
    """Return {folder: other folders that it may include and call}, from the Makefile's USES_... lines."""
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

OPTIONS = "base/option_table.c"   # every option's row

MAX_LINES = 900           # of a file
MAX_FUNCTION_LINES = 80
MAX_PARAMETERS = 8        # of a function; more are a struct with named members
MAX_FOLDER_SHARE = 0.2    # of the lines of all folders
COMMENT_COLUMNS = 110
PAGE_COLUMNS = 120        # of a page's prose
DRAWING_IS_FULL = 85      # columns: if the next line is prose, a formatter may have wrapped a drawing
MAX_SUBJECT_COLUMNS = 72
SUBJECTS_SINCE = "2026-11-22T13:00:00Z"   # older commits were written before the rule
# This subject was published with 73 columns before it was noticed; published history is not rewritten.
SUBJECTS_EXCEPT = {"89eb42fef54e530b34810edcb1c228b08dd3f6bf"}
CLANG_FORMAT = "14.0.6"

# Sources with log lines without a key, each with its reason.
LOG_TEXTS = {"cli/terminal/term.c": "messages of a command for people: the text that a terminal would show"}
# Keys of log lines that have one name everywhere.
LOG_KEYS = {"n": "the noun that it counts, as jobs=", "of": "total_...=", "why": "reason=", "error": "reason=",
            "what": "call=", "size": "bytes=", "id": "job=, worker= or another noun"}

# Functions with more parameters, each with its reason.
PARAMETERS = {
    ("controller/endpoints/files.c", "on_part"): "a callback of libmicrohttpd (MHD_PostDataIterator)",
    ("tests/cudasim/cublas.cc", "cublasGemmEx"): "a function of cuBLAS, emulated",
}

# Words for persons, used for a sequence, a worker or a request: at most one in N lines.
PERSONS = r"\b(who|whom|whose|nobody|somebody)\b"
LINES_PER_PERSON = 3000

# Comments of a folder that begin with "Of", "What", "Where" and the like: at most so many of 1,000.
OPENINGS = 3
OPENINGS_LATER = {"tests"}   # not rewritten yet
