#!/usr/bin/env python3
"""peers.py - compare quern with other CPU engines on this machine: prompts, decode in batches, clients over HTTP.

    peers.py --model DIR --gguf FILE [--modes int8,int16,f32] [--openvino PYTHON] [--llama BIN] [--ik BIN]
             [--pieces prompt,decode,serve] [--batches 1,4] [--rounds N] [--wrap CMD] [--save FILE]

DIR: an AWQ model for quern (make_model.py); FILE: the same shape for the others (make_gguf.py).  PYTHON: an interpreter
that has openvino-genai; BIN: a folder with llama-server, of llama.cpp or of ik_llama.cpp.  A mode is a value of
--compute with further options after colons: int8:--kv-cache-dtype=int8.

A measurement starts engines, warms them up, measures, and ends them.  Prompts and decode run all engines at once, taking
turns request by request, since the speed of a shared machine changes within a minute; serving runs one engine after
another.  Medians are over the turns of all rounds in which other processes used at most a tenth of the processors, if
there are any.  All engines with HTTP have the same client (`quern bench serve`, random token ids, outputs of full length);
OpenVINO GenAI runs in process, in a loop over its steps.  --wrap: a command put before every measurement, to have the
machine exclusively.  Prints tables in Markdown."""
import argparse
import atexit
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCHES = {1: 48, 4: 32, 8: 32, 16: 24, 32: 24}     # and the number of tokens of each request
CLIENTS, REQUESTS, INPUT, OUTPUT = 8, 16, 512, 128


# ---------------------------------------------------------------- what a run gave
# A request is (when it was sent, [when each chunk came]), in seconds.


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else 0.0


def plateau(requests):
    """Tokens per second of all requests together, from the first token of the last request until the first request
    ends."""
    begin, end = max(c[0] for _, c in requests), min(c[-1] for _, c in requests)
    inside = sum(begin < t <= end for _, c in requests for t in c)
    return inside / (end - begin) if end > begin else 0.0


def steady(requests, clients):
    """Tokens per second while all clients have a request, without the first round of prompts."""
    begin = max(sorted(c[0] for _, c in requests)[:clients])
    end = sorted(c[-1] for _, c in requests)[-clients]
    inside = sum(begin < t <= end for _, c in requests for t in c)
    return inside / (end - begin) if end > begin else 0.0


def figures_of_clients(requests, clients):
    gaps = [b - a for _, c in requests for a, b in zip(c, c[1:])]
    first = [c[0] - sent for sent, c in requests]
    tokens = sum(len(c) for _, c in requests)
    whole = max(c[-1] for _, c in requests) - min(sent for sent, _ in requests)
    return {"tok_s": tokens / whole, "steady": steady(requests, clients), "ttft_p50": statistics.median(first),
            "ttft_max": max(first), "gap_p50": percentile(gaps, 50) * 1e3, "gap_p99": percentile(gaps, 99) * 1e3,
            "gap_max": max(gaps) * 1e3}


# ---------------------------------------------------------------- engines


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes(root):
    """Return a process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def peak_mb(pids):
    total = 0
    for pid in pids:
        try:
            for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


class Http:
    """A server in its own process group, with `quern bench serve` as its client."""

    def __init__(self, argv, port, quern, health):
        self.url, self.quern = f"http://127.0.0.1:{port}", quern
        began = time.monotonic()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, start_new_session=True)
        atexit.register(self.close)
        while True:
            try:
                with urllib.request.urlopen(self.url + health, timeout=5) as r:
                    if r.status == 200:
                        break
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > began + 300:
                self.log.seek(0)
                raise SystemExit(f"{argv[0]} did not start:\n{self.log.read()[-2000:].decode(errors='replace')}")
            time.sleep(0.01)
        self.start_s = time.monotonic() - began

    def run(self, n, clients, n_in, n_out, seed):
        with tempfile.NamedTemporaryFile(suffix=".json") as f:
            subprocess.run([self.quern, "bench", "serve", "--base-url", self.url, "-n", str(n), "-c", str(clients),
                            "--lengths", f"fixed:{n_in},{n_out}", "--prompts", "ids:1000,100000", "--ignore-eos",
                            "--seed", str(seed), "--warmups", "0", "--save-detailed", "--save", f.name],
                           check=True, stdout=subprocess.DEVNULL)
            d = json.load(open(f.name, encoding="utf-8"))
        if any(d["errors"]):
            raise SystemExit(f"requests failed: {sorted(set(d['errors']))}")
        out = []
        for sent, first, gaps in zip(d["start_times"], d["ttfts"], d["itls"]):
            times = [sent + first]
            for g in gaps:
                times.append(times[-1] + g)
            out.append((sent, times))
        return out

    def memory(self):
        return peak_mb(processes(self.process.pid))

    def close(self):
        atexit.unregister(self.close)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def quern_server(a, spec, slots, context):
    mode, *more = spec.split(":")
    port = free_port()
    argv = [a.quern, "serve", a.model, "--http", f"127.0.0.1:{port}", "--jobs", "none", "--compute", mode, "--threads",
            str(a.threads), "--context", str(context), "--max-seqs", str(max(slots, 2)), "--kv-bytes", "1800M",
            "--log-level", "error", *more]
    return Http(argv, port, a.quern, "/readyz")


def llama_server(a, binary, slots, context, more):
    port = free_port()
    argv = [str(Path(binary) / "llama-server"), "-m", a.gguf, "-t", str(a.threads), "-tb", str(a.threads), "-np",
            str(slots), "-c", str(slots * context), "--host", "127.0.0.1", "--port", str(port), *more]
    return Http(argv, port, a.quern, "/health")


class OpenVino:
    """In process: requests enter as clients would send them, and the tokens of every step are recorded. in_step: tokens
    of a step, 256 by default."""

    def __init__(self, a, slots, context, in_step):
        began = time.monotonic()
        import numpy
        import openvino
        import openvino_genai as genai
        self.numpy, self.openvino, self.genai = numpy, openvino, genai
        s = genai.SchedulerConfig()
        s.max_num_batched_tokens = in_step
        s.num_kv_blocks = max(256, slots * context // 16)
        s.max_num_seqs = max(slots, 2)
        s.enable_prefix_caching = False
        self.pipe = genai.ContinuousBatchingPipeline(a.gguf, s, "CPU", {"INFERENCE_NUM_THREADS": a.threads})
        self.start_s = time.monotonic() - began
        self.number = 0

    def run(self, n, clients, n_in, n_out, seed):
        rng = self.numpy.random.default_rng(seed)
        c = self.genai.GenerationConfig()
        c.max_new_tokens, c.ignore_eos, c.do_sample = n_out, True, False
        done, live, left = [], [], n
        while left or live:
            while left and len(live) < clients:
                ids = self.openvino.Tensor(rng.integers(1000, 100000, (1, n_in), dtype=self.numpy.int64))
                sent = time.monotonic()
                live.append((self.pipe.add_request(self.number, ids, c), sent, []))
                self.number, left = self.number + 1, left - 1
            self.pipe.step()
            now = time.monotonic()
            for handle, _, times in live:
                while handle.can_read():
                    times += [now] * sum(len(g.generated_ids) for g in handle.read().values())
            done += [(sent, times) for _, sent, times in live if len(times) >= n_out]
            live = [x for x in live if len(x[2]) < n_out]
        return done

    def memory(self):
        return peak_mb([os.getpid()])

    def close(self):
        del self.pipe


def open_engine(a, engine, slots, context, in_step):
    kind, _, spec = engine.partition(" ")
    if kind == "quern":
        return quern_server(a, spec, slots, context)
    if kind == "openvino":
        return OpenVino(a, slots, context, in_step)
    if kind == "llama.cpp":
        return llama_server(a, a.llama, slots, context, ["--no-webui", *shlex.split(a.llama_options)])
    return llama_server(a, a.ik, slots, context, shlex.split(a.ik_options))


# ---------------------------------------------------------------- measurements


# A measurement returns {engine: {figure: [[value, the share of the processors that others used meanwhile]]}}.

CALM = 0.1      # values up to this share count, if there are any


def put(out, engine, others, **figures):
    for name, value in figures.items():
        out.setdefault(engine, {}).setdefault(name.replace("_", " "), []).append([value, others])


def busy():
    """Return the processor seconds used by this process and its descendants, and by the whole machine."""
    tick, mine = os.sysconf("SC_CLK_TCK"), 0
    for pid in processes(os.getpid()):
        try:
            fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
            mine += sum(map(int, fields[11:15]))
        except OSError:
            pass
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return mine / tick, (user + nice + system + irq + soft + steal) / tick


def turn(e, *request):
    """Return the result of a run, and the share of the processors that other processes used."""
    (mine0, all0), began = busy(), time.monotonic()
    got = e.run(*request)
    (mine1, all1), took = busy(), time.monotonic() - began
    return got, round(max(0, all1 - all0 - (mine1 - mine0)) / took / os.cpu_count(), 3)


def piece_prompt(a, engines):
    out, live = {}, [(e, open_engine(a, e, 1, 2304, 4096)) for e in engines]
    for name, e in live:
        put(out, name, 0, start=e.start_s)
        e.run(1, 1, 512, 2, 1)
    began = time.monotonic()
    for i, n in enumerate((512, 2048, 512, 512, 512, 2048, 512)):
        if i > 1 and time.monotonic() - began > a.seconds:
            break
        for name, e in live:
            ((sent, chunks),), others = turn(e, 1, 1, n, 2, 10 + i)
            put(out, name, others, **{f"prompt {n}": n / (chunks[0] - sent)})
    for _, e in live:
        e.close()
    return out


def chosen(a):
    return {b: n for b, n in BATCHES.items() if not a.batches or str(b) in a.batches.split(",")}


def piece_decode(a, engines):
    out, live = {}, [(e, open_engine(a, e, max(chosen(a)), 192, 4096)) for e in engines]
    for name, e in live:
        put(out, name, 0, start=e.start_s)
        e.run(2, 2, 64, 8, 1)
    began = time.monotonic()
    for i in range(3):
        for batch, tokens in chosen(a).items():
            if i and time.monotonic() - began > a.seconds:
                break
            for name, e in live:
                got, others = turn(e, batch, batch, 16, tokens, batch + i)
                put(out, name, others, **{f"decode {batch}": plateau(got)})
    for _, e in live:
        e.close()
    return out


def piece_serve(a, engines):
    out = {}
    for name in engines:
        e = open_engine(a, name, CLIENTS, INPUT + OUTPUT + 64, 256)
        e.run(2, 2, 64, 8, 1)
        got, others = turn(e, REQUESTS, CLIENTS, INPUT, OUTPUT, 3)
        put(out, name, others, start=e.start_s, **figures_of_clients(got, CLIENTS))
        put(out, name, 0, memory=e.memory())
        e.close()
    return out


PIECES = {"prompt": piece_prompt, "decode": piece_decode, "serve": piece_serve}


def probe(a):
    """Measure this machine's memory reads in GB/s, and byte multiplications in TOP/s, with quern's own probes."""
    got = subprocess.run([a.quern, "inspect", "cpu", "--json"], capture_output=True, text=True, check=True)
    probes = json.loads(got.stdout)[0]["probes"]
    return {"read": probes["read"]["all"] / 1e9,
            "int8": max(v["all"] for k, v in probes.items() if k.startswith("int8")) / 1e12}


def run_piece(a, piece, engines):
    """Run in a separate process, after --wrap, with the interpreter that has the engines' modules."""
    python = a.openvino if "openvino" in engines else sys.executable
    argv = [*shlex.split(a.wrap), python, __file__, *a.argv, "--only", "/".join([piece, *engines])]
    got = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in got.stdout.splitlines() if line.startswith("{")]
    if got.returncode or not lines:
        print(f"{piece} of {', '.join(engines)}: no figures (exit status {got.returncode})", file=sys.stderr)
        return {}
    return json.loads(lines[-1])


# ---------------------------------------------------------------- tables

ROWS = [("prompt 512, tok/s", "prompt 512", 0), ("prompt 2,048", "prompt 2048", 0),
        *[(f"decode, batch {b}" + (", tok/s" if b == 1 else ""), f"decode {b}", 0) for b in BATCHES],
        (f"{CLIENTS} clients, {INPUT} in, {OUTPUT} out: tok/s, steady", "steady", 0), ("the same, all requests", "tok s", 0),
        ("TTFT p50, s", "ttft p50", 2), ("longest TTFT, s", "ttft max", 2), ("time between tokens p50, ms", "gap p50", 0),
        ("p99, ms", "gap p99", 0), ("longest, ms", "gap max", 0), ("start, s", "start", 2), ("memory, MB", "memory", 0)]


def median(pairs):
    return statistics.median([v for v, others in pairs if others <= CALM] or [v for v, _ in pairs])


def table(engines, got):
    print("| |", " | ".join(engines), "|\n|---|" + "---|" * len(engines))
    for title, key, digits in ROWS:
        cells = [median(v) if (v := got.get(e, {}).get(key)) else None for e in engines]
        if any(c is not None for c in cells):
            print(f"| {title} |", " | ".join("-" if c is None else f"{c:,.{digits}f}" for c in cells), "|")


def add(got, more):
    for engine, figures in more.items():
        for name, values in figures.items():
            got.setdefault(engine, {}).setdefault(name, []).extend(values)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--gguf", default="")
    p.add_argument("--quern", default=str(ROOT / "build" / "bin" / "quern"))
    p.add_argument("--modes", default="int8,int16,f32")
    p.add_argument("--openvino", metavar="PYTHON", default="")
    p.add_argument("--llama", metavar="BIN", default="")
    p.add_argument("--ik", metavar="BIN", default="")
    p.add_argument("--llama-options", default="")
    p.add_argument("--ik-options", default="-rtr")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--pieces", default=",".join(PIECES))
    p.add_argument("--batches", default="", help="of decode: some of " + ", ".join(map(str, BATCHES)))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=90, help="a piece begins no further turn then (90)")
    p.add_argument("--wrap", default="")
    p.add_argument("--save", type=Path, metavar="FILE", help="add every piece's figures to this file, a line each")
    p.add_argument("--only", help=argparse.SUPPRESS)        # measure these engines in this process
    a = p.parse_args()
    a.argv = sys.argv[1:]
    if a.only:
        piece, *engines = a.only.split("/")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))      # no server may be left
        before = probe(a)
        print(json.dumps(PIECES[piece](a, engines) | {"probe": {k: [[v, 0], [probe(a)[k], 0]] for k, v in before.items()}}))
        return
    engines = [f"quern {m}" for m in a.modes.split(",") if m]
    engines += [name for name, given in (("openvino", a.openvino), ("ik_llama.cpp", a.ik), ("llama.cpp", a.llama)) if given]
    got = {}
    for _ in range(a.rounds):
        for piece in a.pieces.split(","):
            for some in [[e] for e in engines] if piece == "serve" else [engines]:
                more = run_piece(a, piece, some)
                add(got, more)
                if a.save:
                    with a.save.open("a") as f:
                        print(json.dumps({"at": time.strftime("%H:%M:%S"), "piece": piece} | more), file=f)
    table(engines, got)
    for key, unit in (("read", "GB/s read"), ("int8", "TOP/s in bytes")):
        print(f"\nprobed before and after each piece, {unit}:", " ".join(f"{x:.1f}" for x, _ in got["probe"][key]))


if __name__ == "__main__":
    main()
