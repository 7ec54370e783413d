// ---- charts ----
const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes) {
  const e = document.createElementNS(SVG, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  return e;
}
const charts = [
  { title: "Tokens per second", one: ["output", V.decodeTps], two: ["prompts", V.promptTps], format: count, area: true },
  { title: "Sequences", one: ["running", V.running], two: ["waiting", V.waiting], format: count, area: true },
  { title: "Time to first token", one: ["median", V.ttft50], two: ["p99", V.ttft99], format: msText },
  { title: "Time between tokens", one: ["median", V.itl50], two: ["p99", V.itl99], format: msText },
];
const TOP = 6, BOTTOM = 18;
function makeChart(c) {
  const g = svg("svg", { role: "img", preserveAspectRatio: "none" });
  c.grid = [0, 1, 2].map(() => g.appendChild(svg("path", { class: "grid" })));
  c.ticks = [0, 1, 2].map(() => g.appendChild(svg("text", { "text-anchor": "start" })));
  c.times = ["start", "end"].map((a) => g.appendChild(svg("text", { "text-anchor": a })));
  if (c.area) c.fill = g.appendChild(svg("path", { class: "area" }));
  c.lines = ["two", "one"].map((k) => g.appendChild(svg("path", { class: k })));
  c.cross = g.appendChild(svg("path", { class: "cross" }));
  c.svg = g;
  c.keys = [el("span"), el("span", { className: "two" })];
  const head = el("div", { className: "head" }, el("h2", {}, c.title), el("div", { className: "key" }, ...c.keys));
  g.addEventListener("pointermove", (e) => pointAt(e.clientX - g.getBoundingClientRect().left));
  g.addEventListener("pointerleave", () => pointAt(null));
  return el("div", { className: "card chart" }, head, g);
}
let pointed = null; // x in a chart, of all of them
function pointAt(x) { pointed = x; live.changed.add("now"); schedule(); }
function roundUp(x) { // to 1, 2, 5 times a power of ten, which halves well
  if (!(x > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(x));
  for (const m of [1, 2, 4, 5, 10]) if (x <= m * ten * 1.0001) return m * ten;
  return 10 * ten;
}
function drawCharts() {
  keyed($("charts"), charts, (c) => c.title, makeChart, () => {});
  const h = live.history;
  if (!h.length) return;
  const sizes = charts.map((c) => [c.svg.clientWidth, c.svg.clientHeight]), end = h[h.length - 1][V.time];
  charts.forEach((c, i) => { if (sizes[i][0]) drawChart(c, h, ...sizes[i], end); });
}
function drawChart(c, h, w, H, end) {
  const span = KEEP * 1000, x = (t) => w - (end - t) / span * w;
  let top = 0;
  for (const p of h) top = Math.max(top, p[c.one[1]] || 0, p[c.two[1]] || 0);
  top = roundUp(top);
  const y = (v) => TOP + (H - TOP - BOTTOM) * (1 - v / top);
  c.svg.setAttribute("viewBox", `0 0 ${w} ${H}`);
  [0, top / 2, top].forEach((v, i) => {
    c.grid[i].setAttribute("d", `M0 ${y(v).toFixed(1)}H${w}`);
    c.ticks[i].setAttribute("y", (y(v) + (i === 2 ? 11 : -3)).toFixed(1));
    put(c.ticks[i], i ? c.format(v).replace(/\.0+(?=\D|$)/, "") : "");
  });
  c.times[1].setAttribute("x", w);
  for (const t of c.times) t.setAttribute("y", H - 2);
  put(c.times[0], "5 min ago");
  put(c.times[1], "now");
  const path = (v) => {
    let d = "", down = false;
    for (const p of h) {
      if (p[v] == null) { down = false; continue; }
      d += (down ? "L" : "M") + x(p[V.time]).toFixed(1) + " " + y(p[v]).toFixed(1);
      if (!down) d += "h.01"; // a moment alone is a dot
      down = true;
    }
    return d;
  };
  const one = path(c.one[1]);
  c.lines[0].setAttribute("d", path(c.two[1]));
  c.lines[1].setAttribute("d", one);
  if (c.fill) c.fill.setAttribute("d", one && `${one}V${y(0).toFixed(1)}H${x(h[0][V.time]).toFixed(1)}Z`);
  let p = h[h.length - 1];
  if (pointed != null) {
    const t = end - (w - pointed) / w * span;
    p = h.reduce((a, b) => (Math.abs(b[V.time] - t) < Math.abs(a[V.time] - t) ? b : a));
    c.cross.setAttribute("d", `M${x(p[V.time]).toFixed(1)} ${TOP}V${H - BOTTOM}`);
    put(c.times[1], new Date(p[V.time]).toLocaleTimeString());
  } else {
    c.cross.setAttribute("d", "");
  }
  const say = (k) => `${k[0]} ${c.format(p[k[1]])}`;
  put(c.keys[0], say(c.one));
  put(c.keys[1], say(c.two));
  c.svg.setAttribute("aria-label", `${c.title}, last five minutes. Now: ${say(c.one)}, ${say(c.two)}.`);
}

