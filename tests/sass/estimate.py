"""What a step of Qwen3-8B AWQ takes on an H200, from what its kernels are made of and from ASSUMED."""
import math

# Each is replaced by a measured figure as soon as there is one (docs/performance/cuda.md).
ASSUMED = {
    "sms": (132, "multiprocessors of an H200"),
    "clock_ghz": (1.755, "under load; at most 1.98"),
    "hbm_tbps": (4.3, "achievable by copies of whole lines: 90% of 4.8"),
    "l2_tbps": (5.5, "activations and partial sums that stay in L2 (50 MB)"),
    "issue": (0.8, "of the 4 instructions that a multiprocessor can issue in a cycle"),
    "mma_cycles": (1.6, "of a multiprocessor for one mma.m16n8k16 without wgmma: 62% of the peak of 1"),
    "launch_us": (1.0, "from a kernel's last block to the next one's first instruction, within a graph"),
    "ramp_us": (1.0, "until loads arrive at the rate of the memory"),
    "row_us": (1.0, "a kernel of norms, rotations or copies of rows: two or three dependent round trips"),
    "trip_us": (0.7, "a dependent round trip to memory: a step of 64 keys in attention, when few blocks run"),
}
A = {k: v for k, (v, _) in ASSUMED.items()}

LAYERS, GROUP, CHUNK, STEP = 36, 128, 256, 64
LINEARS = {"qkv": (4096, 6144), "o": (4096, 4096), "gateup": (4096, 24576), "down": (12288, 4096),
           "head": (4096, 151936)}  # K, N
AWQ = "1"  # of the kinds in kernels/cuda/linear.cuh
ROWS = ("batch", "embed", "norm", "rotate", "gather", "last_norm")
IN_LAYER = ("norm", "qkv", "rotate", "attention", "o", "gateup", "down")


def blocks_per_sm(registers, threads, smem):
    """Blocks that a multiprocessor of 9.0 holds: 64 K registers in pieces of 256 a warp, 228 KB, 64 warps."""
    warps = threads // 32
    by_registers = 65536 // ((registers * 32 + 255) // 256 * 256 * warps)
    return min(by_registers, 228 * 1024 // (smem + 1024), 64 // warps, 32)


def template(kernel):
    """linear_stream_kernel<false, 1, 1, 2> to its name and arguments."""
    name, _, rest = kernel.partition("<")
    return name, [{"true": True, "false": False}.get(v, v) for v in rest.rstrip(">").split(", ")] if rest else []


def instructions(kernel, loop):
    """Of a round of the hot loop, of a model with groups of 128: one step in four ends a group."""
    name, args = template(kernel)
    awq = name in ("linear_stream_kernel", "linear_tile_kernel") and args[1] == AWQ
    return loop.usual + (loop.scaling - loop.usual) / (GROUP / 32) if awq else float(loop.usual)


def units(kernel, loop):
    """Units of 16 outputs x 64 inputs (512 bytes of AWQ) that a round of a linear kernel's loop takes."""
    name, args = template(kernel)
    rows8 = int(args[3]) if name in ("linear_stream_kernel", "linear_tile_kernel") else 0
    return loop.mma / (4 * rows8) if rows8 else 0


def linear_us(l, kernel, loop, k, n, awq):
    """A linear layer: the slowest of memory, issue and tensor cores; the multiprocessor with most blocks."""
    name, args = template(kernel)
    rows_of_block = 8 * int(args[3]) * (int(args[5]) if name == "linear_tile_kernel" else 1)
    row_blocks = math.ceil(l.rows / rows_of_block)
    all_units = n / 16 * k / 64 * row_blocks  # of warps: each weight meets each block of rows
    if name == "linear_tile_kernel":
        all_units *= int(args[5])
    of_sm = all_units / l.grid * math.ceil(l.grid / A["sms"])
    issue = of_sm * instructions(kernel, loop) / units(kernel, loop) / (4 * A["issue"])
    mma = of_sm * 4 * int(args[3]) * A["mma_cycles"]
    weights = k * n * ((0.5 + 2.5 / GROUP) if awq else 2)
    memory = weights / A["hbm_tbps"] / 1e6
    cycles = 1 / (A["clock_ghz"] * 1e3)
    return max(memory, issue * cycles, mma * cycles), {"memory": memory, "issue": issue * cycles, "tensor": mma * cycles}


def attention_us(l, kernel, loop):
    """Of the rows' keys; 8 KV heads of 128, 4 query heads to each."""
    _, args = template(kernel)
    split = args[2]
    if split:
        steps = l.rows * 8 * math.ceil(l.context / STEP)
        bytes_kv = l.rows * l.context * 8 * 128 * 2 * 2
        serial = min(math.ceil(l.context / STEP), CHUNK // STEP)
    else:  # a tile: 16 rows x 4 heads; it sees what stands before it
        steps = sum(math.ceil((r + 16) / STEP) for r in range(0, l.rows, 16)) * 8
        bytes_kv = steps * STEP * 128 * 2 * 2  # from L2, mostly
        serial = math.ceil(l.context / STEP)
    cycles = 1 / (A["clock_ghz"] * 1e3)
    of_sm = max(steps / A["sms"], serial)
    issue = of_sm * loop.usual * 4 / (4 * A["issue"]) * cycles
    mma = of_sm * loop.mma * 4 * A["mma_cycles"] * cycles
    memory = bytes_kv / A["hbm_tbps" if split else "l2_tbps"] / 1e6
    parts = {"memory": memory, "issue": issue, "tensor": mma, "latency": serial * A["trip_us"] if split else 0}
    return max(parts.values()) + (A["trip_us"] * 2 if split and l.context > CHUNK else 0), parts


def launch_us(l, kernel, loop):
    """Microseconds of one launch, with the gap before it; and what they are made of."""
    gap = A["launch_us"]
    if l.operation in LINEARS:
        k, n = LINEARS[l.operation]
        t, parts = linear_us(l, kernel, loop, k, n, l.operation != "head")
        return gap + A["ramp_us"] + t, parts
    if l.operation == "attention" and kernel.startswith("attn_kernel"):
        t, parts = attention_us(l, kernel, loop)
        return gap + A["ramp_us"] + t, parts
    if l.operation == "sample":
        memory = l.logits * 151936 * 4 / A["l2_tbps"] / 1e6
        return gap + A["row_us"] + memory, {"memory": memory}
    memory = l.rows * 4096 * 4 * 3 / A["l2_tbps"] / 1e6 if l.operation in ROWS else 0
    return gap + A["row_us"] + memory, {"memory": memory}


def layers_of(l, seen_list):
    """How often a launch comes in a step: the list of attention's work is made once."""
    if l.operation == "attention" and seen_list:
        return 1
    return LAYERS if l.operation in IN_LAYER else 1
