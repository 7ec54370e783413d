// ---- replicas and their blocks ----
function makeReplica() {
  const d = el("div", { className: "replica" });
  d.name = el("h3");
  d.state = el("span", { className: "pill" });
  d.devices = el("span", { className: "devices" });
  d.map = el("canvas", { role: "img" });
  d.host = el("canvas", { role: "img", hidden: true });
  d.facts = el("p", { className: "facts" });
  d.append(el("div", { className: "top" }, d.name, d.state, d.devices), d.map, d.host, d.facts);
  return d;
}
function fact(name, value) { return el("span", {}, name + " ", el("b", {}, value)); }
function drawReplicas() {
  const of = new Map();
  for (const w of live.workers) {
    const name = w.device_name ? `${w.device}, ${w.device_name}` : w.device;
    of.set(w.replica, (of.get(w.replica) || []).concat(name));
  }
  $("replicas").classList.toggle("one", live.replicas.length === 1);
  keyed($("replicas"), live.replicas, (r) => r.id, makeReplica, (d, r) => {
    const names = of.get(r.id) || [], same = new Set(names).size === 1;
    put(d.name, "Replica " + r.id);
    put(d.state, r.state);
    setClass(d.state, "pill " + (r.state === "serving" ? "good" : "warn"));
    put(d.devices, same && names.length > 1 ? `${names.length} × ${names[0]}` : names.join(" · "));
    const [n, held, cached] = r.blocks, hit = r.prefix_queries ? (100 * r.prefix_hits / r.prefix_queries).toFixed(0) + " %" : "–";
    d.facts.replaceChildren(
      fact("running", count(r.running)),
      fact("waiting", count(r.waiting) + (r.queued_tokens ? ` (${count(r.queued_tokens)} tokens)` : "")),
      ...(r.swapped ? [fact("swapped", count(r.swapped))] : []),
      fact("output", count(r.decode_tps) + " tok/s"),
      fact("step", msText(r.step_us ? r.step_us / 1000 : null)),
      fact("blocks", `${count(held)} of ${count(n)}`), fact("cached", count(cached)), fact("prefix hits", hit),
      ...(r.preemptions ? [fact("preempted", count(r.preemptions))] : []),
      ...(r.recomputed_tokens ? [fact("recomputed", count(r.recomputed_tokens) + " tokens")] : []));
    d.map.setAttribute("aria-label", `Blocks of replica ${r.id}: ${held} held, ${cached} cached, ${n - held - cached} free of ${n}`);
    d.host.setAttribute("aria-label", `Host blocks of replica ${r.id}: ${r.host_blocks[1]} of ${r.host_blocks[0]} hold swapped sequences`);
    d.host.hidden = !r.host_blocks[1];
  });
}
// '.' + the place of (held, cached), in eighths, among all pairs of at most eight.
const cellPairs = [];
for (let held = 0; held <= 8; held++) for (let cached = 0; held + cached <= 8; cached++) cellPairs.push([held / 8, cached / 8]);
const FIRST_CELL = ".".charCodeAt(0);
function drawMap(canvas, cells, held, cached, free) {
  const w = canvas.clientWidth, n = cells.length, ratio = Math.min(devicePixelRatio || 1, 3);
  if (!w || !n) return false;
  // As square as it gets within about 110 px; one row where there are few.
  const size = Math.max(4, Math.min(14, Math.floor(Math.sqrt(w * 110 / n))));
  const columns = Math.max(1, Math.floor((w + 1) / size)), rows = Math.ceil(n / columns), h = rows * size;
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(h * ratio);
  canvas.style.height = h + "px";
  const g = canvas.getContext("2d"), step = (w + 1) / columns, gap = size > 5 ? 1 : 0.5;
  g.scale(ratio, ratio);
  g.fillStyle = free;
  for (let i = 0; i < n; i++)
    g.fillRect((i % columns) * step, Math.floor(i / columns) * size, step - gap, size - gap);
  for (const [color, which] of [[cached, 1], [held, 0]]) {
    g.fillStyle = color;
    for (let i = 0; i < n; i++) {
      const pair = cellPairs[cells.charCodeAt(i) - FIRST_CELL];
      if (!pair || !pair[which]) continue;
      const full = size - gap, part = full * pair[which], below = which ? full * pair[0] : 0;
      g.fillRect((i % columns) * step, Math.floor(i / columns) * size + full - part - below, step - gap, part);
    }
  }
  return true;
}
function drawMaps(all) {
  const css = getComputedStyle(document.documentElement), color = (name) => css.getPropertyValue(name).trim();
  const held = color("--accent"), cached = color("--tint"), free = color("--free"), swapped = color("--second");
  const kept = $("replicas").kept || new Map();
  for (const [id, d] of kept) {
    const m = live.maps[id];
    if (!m || (m.drawn && !all)) continue;
    m.drawn = drawMap(d.map, m.device, held, cached, free);
    if (!d.host.hidden) drawMap(d.host, m.host, swapped, cached, free);
    else m.drawn = m.drawn && !/[^.]/.test(m.host);
  }
}

