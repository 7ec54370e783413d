"""Estimate the time of a step of Qwen3-8B AWQ on an H200, from its kernels' machine code and from ASSUMED."""
import math

# These values were written down before any kernel was changed for speed.  Only a measurement changes a value: an entry
# of measured.json, with which assume() replaces it.
ASSUMED = {
    "sms": (132, "multiprocessors of an H200"),
    "clock_ghz_1": (1.95, "decode of at most 16 rows, bound by memory; at most 1.98"),
    "clock_ghz_64": (1.8, "decode of at most 64 rows: tensor cores take part of the 700 W"),
    "clock_ghz_256": (1.7, "decode of more rows, and prompts: limited by power"),
    "hbm_tbps": (4.3, "achievable by copies of whole lines: 90% of 4.8"),
    "scattered": (0.93, "of `hbm_tbps`, for F16 weights: a warp reads 64 bytes of each of 16 rows that are 8 KB apart"),
    "l2_tbps": (5.5, "activations and partial sums that stay in L2 (50 MB)"),
    "issue_4": (0.8, "of the 4 instructions that a multiprocessor can issue in a cycle, with 4 or more warps per scheduler"),
    "issue_3": (0.72, "the same with 3 warps per scheduler"),
    "issue_2": (0.65, "the same with 2 warps per scheduler, or fewer"),
    "issue_barrier_4": (0.72, "the same with 4 or more, in loops with a barrier of the block (tiles, attention)"),
    "issue_barrier_3": (0.65, "the same with 3 warps per scheduler and a barrier"),
    "issue_barrier_2": (0.58, "the same with 2 warps per scheduler, or fewer, and a barrier"),
    "mma_cycles": (1.6, "of a multiprocessor for one mma.m16n8k16 without wgmma: 62% of the peak of 1"),
    "launch_us": (1.0, "from a kernel's last block to the next one's first instruction, within a graph"),
    "ramp_us": (1.0, "until loads arrive at the rate of the memory"),
    "tail_us": (0.9, "end of a linear layer: reduction in shared memory, stores, drain; cold constants and instructions"),
    "row_us": (1.6, "a kernel of norms, rotations or copies of rows: two or three dependent round trips and a tail"),
    "trip_us": (0.7, "a dependent round trip to memory: a step of 64 keys in attention, when few blocks run"),
    "chain_us": (1.8, "attention of a decode before its first key: five dependent round trips (count, item, tile, block table, keys), most to L2"),
    "graph_us": (4.0, "start of a graph (of a decode)"),
    "mapped_us": (3.0, "a kernel's reads of the host's memory over PCIe"),
}
A = {k: v for k, (v, _) in ASSUMED.items()}
# Estimates from an independent reading of the source and the machine code (kernels/cuda at 25af7d68), in ms.
INDEPENDENT = {"decode 1": 2.3, "decode 16": 3.0, "decode 64": 6.4, "decode 256": 26, "prompt 2048": 87}


def assume(measured):
    """Replace assumed values by measured ones: {name: {"value", "date", "commit", "how"}}."""
    for name, m in measured.items():
        if name not in ASSUMED:
            raise SystemExit(f"measured.json: nothing is assumed as {name}")
        if set(m) != {"value", "date", "commit", "how"} or not isinstance(m["value"], (int, float)):
            raise SystemExit(f"measured.json: {name} needs a value (a number), a date, a commit, and how it was measured")
    A.update({k: v for k, (v, _) in ASSUMED.items()})
    A.update({name: m["value"] for name, m in measured.items()})


LAYERS, GROUP, CHUNK, STEP = 36, 128, 256, 64
LINEARS = {"qkv": (4096, 6144), "o": (4096, 4096), "gateup": (4096, 24576), "down": (12288, 4096),
           "head": (4096, 151936)}  # K, N
AWQ = "1"  # a kind of kernels/cuda/linear.cuh
ROWS = ("batch", "embed", "norm", "rotate", "gather", "last_norm")
IN_LAYER = ("norm", "qkv", "rotate", "attention", "o", "gateup", "down")


def blocks_per_sm(registers, threads, smem):
    """Return the blocks that fit a multiprocessor of 9.0: 64 K registers, 256 at a time per warp; 228 KB; 64 warps."""
    warps = threads // 32
    by_registers = 65536 // ((registers * 32 + 255) // 256 * 256 * warps)
    return min(by_registers, 228 * 1024 // (smem + 1024), 64 // warps, 32)


def template(kernel):
    """Split linear_stream_kernel<false, 1, 1, 2> into its name and arguments."""
    name, _, rest = kernel.partition("<")
    return name, [{"true": True, "false": False}.get(v, v) for v in rest.rstrip(">").split(", ")] if rest else []


def instructions(kernel, loop):
    """Return the instructions of a round of the hot loop.  With groups of 128, one step in four ends a group."""
    name, args = template(kernel)
    awq = name in ("linear_stream_kernel", "linear_tile_kernel") and args[1] == AWQ
    return loop.usual + (loop.scaling - loop.usual) / (GROUP / 32) if awq else float(loop.usual)


def units(kernel, loop):
    """Return the units of 16 outputs x 64 inputs (512 bytes of AWQ) in a round of a linear kernel's loop."""
    name, args = template(kernel)
    rows8 = int(args[3]) if name in ("linear_stream_kernel", "linear_tile_kernel") else 0
    return loop.mma / (4 * rows8) if rows8 else 0


def clock_ghz(l):
    rows = l.rows if l.phase == "decode" else 256
    return A["clock_ghz_1" if rows <= 16 else "clock_ghz_64" if rows <= 64 else "clock_ghz_256"]


def issued(l, kernel, resident):
    """Return the instructions that a multiprocessor issues per cycle, with the blocks resident on it."""
    warps = min(resident, math.ceil(l.grid / A["sms"])) * l.threads // 32 // 4  # per scheduler
    barrier = template(kernel)[0] in ("linear_tile_kernel", "attn_kernel")
    return 4 * A[f"issue_{'barrier_' if barrier else ''}{min(max(warps, 2), 4)}"]


def linear_us(l, kernel, loop, resident):
    """Return a linear layer's times for memory, issue and tensor cores, on the multiprocessor with most blocks."""
    k, n = LINEARS[l.operation]
    name, args = template(kernel)
    rows_of_block = 8 * int(args[3]) * (int(args[5]) if name == "linear_tile_kernel" else 1)
    row_blocks = math.ceil(l.rows / rows_of_block)
    all_units = n / 16 * k / 64 * row_blocks  # of all warps: each block of rows uses each weight
    if name == "linear_tile_kernel":
        all_units *= int(args[5])
    of_sm = all_units / l.grid * math.ceil(l.grid / A["sms"])
    per_us = clock_ghz(l) * 1e3
    rate = A["hbm_tbps"] * (A["scattered"] if l.operation == "head" else 1)
    return {"memory": memory_bytes(l) / rate / 1e6,
            "issue": of_sm * instructions(kernel, loop) / units(kernel, loop) / issued(l, kernel, resident) / per_us,
            "tensor": of_sm * 4 * int(args[3]) * A["mma_cycles"] / per_us}


def attention_us(l, kernel, loop, resident):
    """Return attention's times over the rows' keys, for 8 KV heads of 128 with 4 query heads each."""
    _, args = template(kernel)
    split = args[2]
    if split:
        steps = l.rows * 8 * math.ceil(l.context / STEP)
        memory = memory_bytes(l) / A["hbm_tbps"]
        serial = min(math.ceil(l.context / STEP), CHUNK // STEP)
    else:  # a tile: 16 rows x 4 heads; it reads all earlier keys, mostly from L2
        steps = sum(math.ceil((r + 16) / STEP) for r in range(0, l.rows, 16)) * 8
        memory = steps * STEP * 128 * 2 * 2 / A["l2_tbps"]
        serial = math.ceil(l.context / STEP)
    per_us = clock_ghz(l) * 1e3
    of_sm = max(steps / A["sms"], serial)
    return {"memory": memory / 1e6, "issue": of_sm * loop.usual * 4 / issued(l, kernel, resident) / per_us,
            "tensor": of_sm * loop.mma * 4 * A["mma_cycles"] / per_us, "latency": serial * A["trip_us"] if split else 0}


def memory_bytes(l):
    """Return the least bytes that a launch reads or writes in device memory: weights once, keys and values once.  Rows
    between layers, partial sums and logits stay in L2."""
    if l.operation in LINEARS:
        k, n = LINEARS[l.operation]
        return k * n * ((0.5 + 2.5 / GROUP) if l.operation != "head" else 2)
    if l.operation == "attention" and l.kernel.startswith("attn_kernel"):
        sequences = l.rows if l.phase == "decode" else 1
        return sequences * l.context * 8 * 128 * 2 * 2
    return 0


def sampled(kernel, grid):
    """Return the rows whose logits a sampler launch reads: one block per row, or per 4,096 logits of a row."""
    if kernel == "sample_kernel":
        return grid
    return grid // math.ceil(LINEARS["head"][1] / 4096) if kernel.startswith("sample_") else 0


def launch_us(l, kernel, loop, resident):
    """Return the microseconds of a launch, with the gap before it, and its parts, of which the longest counts."""
    us = A["launch_us"]
    if l.operation in LINEARS:
        parts = linear_us(l, kernel, loop, resident)
        return us + A["ramp_us"] + max(parts.values()) + A["tail_us"], parts
    if l.operation == "attention" and kernel.startswith("attn_kernel"):
        parts = attention_us(l, kernel, loop, resident)
        us += A["ramp_us"] + max(parts.values())
        if l.phase == "decode":  # chunks are folded by two more round trips
            us += A["chain_us"] + (2 * A["trip_us"] if l.context > CHUNK else 0)
        return us, parts
    us += A["row_us"]
    if l.operation == "embed" and l.phase == "decode":
        us += A["graph_us"]
    if kernel in ("batch_spread_kernel", "move_kernel"):
        us += A["mapped_us"]
    traffic = l.logits * 151936 * 4 if l.operation == "sample" else l.rows * 4096 * 4 * 3 if l.operation in ROWS else 0
    memory = traffic / A["l2_tbps"] / 1e6
    return us + memory, {"memory": memory}


def layers_of(l, seen_list):
    """Return how often a launch occurs in a step; attention's work list is made once."""
    if l.operation == "attention" and seen_list:
        return 1
    return LAYERS if l.operation in IN_LAYER else 1
