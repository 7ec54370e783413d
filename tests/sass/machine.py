"""Read the CUDA kernels' machine code: their resources (`nvcc -Xptxas -v`) and the instructions of their hot loops
(`nvdisasm -c`).

A kernel's hot loop is the innermost loop with the most tensor-core instructions, or, in kernels without any, with the
most loads from memory.  The cost of a round is found in the loop's graph of basic blocks.  It is the shortest path
around the loop with all mma, all copies to shared memory and all unconditional loads.  A linear layer of AWQ also has
steps that end a group of weights; the path with the most FFMA contains them."""
import re
import struct
from dataclasses import dataclass, field

LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?);")
LABEL = re.compile(r"^(\.L_\S+|\$\S+):")
BRANCH = re.compile(r"^(@!?U?P\d+ )?(BRA|BRX|JMP)(\.\S+)?\b.*?`\((\S+?)\)")


@dataclass
class Kernel:
    name: str
    registers: int = 0
    stack: int = 0
    spills: int = 0
    static_smem: int = 0
    code: list = field(default_factory=list)  # (label or None, text) of each instruction


def resources(text, arch=""):
    """Parse ptxas's remarks to {mangled name: Kernel}; with an architecture (sm_80), only its remarks."""
    kernels, cur, about = {}, None, True
    for line in text.splitlines():
        m = re.search(r"Compiling entry function '\w+' for '(\w+)'", line)
        if m:
            about = not arch or m.group(1) == arch
        if not about:
            continue
        m = re.search(r"(?:Compiling entry function|Function properties for) '?(\w+)", line)
        if m:
            cur = kernels.setdefault(m.group(1), Kernel(m.group(1)))
        m = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if m and cur:
            cur.stack, cur.spills = int(m.group(1)), int(m.group(2)) + int(m.group(3))
        m = re.search(r"Used (\d+) registers", line)
        if m and cur:
            cur.registers = int(m.group(1))
            m = re.search(r"(\d+) bytes smem", line)
            cur.static_smem = int(m.group(1)) if m else 0
    return {k: v for k, v in kernels.items() if v.registers}


def architectures(path):
    """Return the targets of an object or a shared object: machine code (sm_90a) and PTX (compute_120).

    Section .nv_fatbin has consecutive fat binaries, each with a header (magic, version, header size, payload size) and
    entries: u16 kind (1: PTX, 2: machine code), u16, u32 size of the entry's header, u64 size of its payload; at 28,
    u32 architecture; at 40, u32 flags (1 << 20: the variant of an architecture that ends in a)."""
    data, found = path.read_bytes(), set()
    at, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(n)]
    for name, _, _, _, begin, length in sections:
        name += sections[names][4]
        if data[name:data.index(b"\0", name)] != b".nv_fatbin":
            continue
        end = begin + length
        while begin < end:
            magic, _, header, length = struct.unpack_from("<IHHQ", data, begin)
            if magic != 0xba55ed50:  # padding
                begin += 8
                continue
            entry, begin = begin + header, begin + header + length
            while entry < begin:
                kind, _, header, length = struct.unpack_from("<HHIQ", data, entry)
                arch, flags = (struct.unpack_from("<I", data, entry + i)[0] for i in (28, 40))
                found.add(f"{'sm_' if kind == 2 else 'compute_'}{arch}{'a' if flags >> 20 & 1 else ''}")
                entry += header + length
    return found


def functions(text):
    """Parse nvdisasm's text to {mangled name: [(labels before the instruction, instruction)]}."""
    found, cur, labels = {}, None, []
    for line in text.splitlines():
        m = re.match(r"^\.text\.(\S+):", line)
        if m:
            cur, labels = found.setdefault(m.group(1), []), []
            continue
        if cur is None:
            continue
        if line.lstrip().startswith(".section"):
            cur = None
            continue
        m = LABEL.match(line)
        if m:
            labels.append(m.group(1))
            continue
        m = LINE.match(line)
        if m:
            cur.append((tuple(labels), " ".join(m.group(1).split())))
            labels = []
    return found


# ---- graphs of basic blocks ----


def opcode(text):
    return re.sub(r"^@!?U?P\w+ ", "", text).split(" ")[0]


class Flow:
    """The basic blocks of a function, and the edges between them."""

    def __init__(self, code):
        at = {label: i for i, (labels, _) in enumerate(code) for label in labels}
        starts = {0}
        jumps = {}
        for i, (labels, text) in enumerate(code):
            if labels:
                starts.add(i)
            m = BRANCH.match(text)
            if m:
                starts.add(i + 1)
                # `BRA.DIV` branches if the lanes have diverged, which these kernels' lanes do not.
                if m.group(4) in at and not (m.group(3) or "").startswith(".DIV"):
                    jumps[i] = (at[m.group(4)], bool(m.group(1)) or " P" in text.split("`")[0] or ".U" in (m.group(3) or ""))
            elif opcode(text) in ("EXIT", "RET", "RET.REL.NODEC", "RET.ABS.NODEC"):
                starts.add(i + 1)
        starts = sorted(s for s in starts if s < len(code))
        self.blocks = [code[a:b] for a, b in zip(starts, starts[1:] + [len(code)])]
        index = {s: i for i, s in enumerate(starts)}
        self.next = [[] for _ in starts]
        for i, (a, b) in enumerate(zip(starts, starts[1:] + [len(code)])):
            last = code[b - 1][1]
            if b - 1 in jumps:
                to, conditional = jumps[b - 1]
                self.next[i].append(index[to])
                if conditional and b in index:
                    self.next[i].append(index[b])
            elif opcode(last) in ("EXIT",) or opcode(last).startswith("RET"):
                if last.startswith("@") and b in index:
                    self.next[i].append(index[b])
            elif b in index:
                self.next[i].append(index[b])

    def loops(self):
        """Return (head, blocks, tails) of every loop: its blocks are those that reach a jump back to the head."""
        back = {}
        before = [[] for _ in self.blocks]
        for i, targets in enumerate(self.next):
            for t in targets:
                before[t].append(i)
                if t <= i:
                    back.setdefault(t, []).append(i)
        found = []
        for head, tails in back.items():
            inside, todo = {head}, list(tails)
            while todo:
                b = todo.pop()
                if b not in inside:
                    inside.add(b)
                    todo += before[b]
            if min(inside) >= head:  # entered only at its head
                found.append((head, inside, tails))
        return found

    def count(self, blocks, *names):
        return sum(opcode(t).startswith(names) for b in blocks for _, t in self.blocks[b])


def block_weights(block, ffma):
    """Return a path's sort key: mma, copies, loads, then FFMA (most or fewest), then fewest instructions."""
    n = dict.fromkeys(("mma", "copy", "load", "ffma"), 0)
    for _, text in block:
        op = opcode(text)
        n["mma"] += op.startswith(("HMMA", "HGMMA"))
        n["copy"] += op.startswith("LDGSTS")
        n["load"] += op.startswith("LDG.") and not text.startswith("@")
        n["ffma"] += op.startswith("FFMA")
    return (n["mma"], n["copy"], n["load"], ffma * n["ffma"], -len(block))


def way_round(flow, head, inside, tails, ffma):
    """Return the weights of the best path from head to a tail, without inner loops, or None."""
    best = {head: block_weights(flow.blocks[head], ffma)}
    for b in sorted(inside):  # forward jumps lead to later blocks
        if b not in best:
            continue
        for t in flow.next[b]:
            if t > b and t in inside:
                w = tuple(x + y for x, y in zip(best[b], block_weights(flow.blocks[t], ffma)))
                if t not in best or w > best[t]:
                    best[t] = w
    ends = [best[t] for t in tails if t in best]
    return max(ends) if ends else None


@dataclass
class Loop:
    mma: int      # per round
    copies: int   # to shared memory
    loads: int
    usual: int    # instructions of a usual round
    scaling: int  # instructions of a round in which every step ends a group
    size: int     # instructions of the loop's code


def hot_loop(code):
    """Return the hot loop of a function, or None."""
    flow = Flow(code)
    loops = flow.loops()
    loops = [l for l in loops if sum(len(flow.blocks[b]) for b in l[1]) > 1]  # without the padding at the code's end
    multiplies = [l for l in loops if flow.count(l[1], "HMMA", "HGMMA")] or loops
    inner = [l for l in multiplies if not any(o[1] < l[1] for o in multiplies)]
    best = None
    for head, inside, tails in inner:
        key = (flow.count(inside, "HMMA", "HGMMA"), flow.count(inside, "LDG"), flow.count(inside, "LDS", "FADD"))
        if best is None or key > best[0]:
            best = (key, head, inside, tails)
    if best is None:
        return None
    _, head, inside, tails = best
    plain, ends = way_round(flow, head, inside, tails, -1), way_round(flow, head, inside, tails, 1)
    if plain is None:
        return None
    return Loop(plain[0], plain[1], plain[2], -plain[4], -ends[4], sum(len(flow.blocks[b]) for b in inside))
