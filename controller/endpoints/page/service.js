// ---- drawing: once per frame at most, and only what changed ----
let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    const start = performance.now(), changed = live.changed;
    live.changed = new Set();
    draw(changed);
    // For the page's own test of how long a frame takes.
    document.body.dataset.drawMs = (performance.now() - start).toFixed(2);
    document.body.dataset.draws = Number(document.body.dataset.draws || 0) + 1;
  });
}
function draw(changed) {
  if (changed.has("service")) drawService();
  if (changed.has("now")) { drawNumbers(); drawCharts(); drawWorkers(); }
  if (changed.has("replicas") || changed.has("workers")) drawReplicas();
  if (changed.has("maps") || changed.has("replicas")) drawMaps();
  if (changed.has("jobs")) drawJobs();
}
// Children of parent, one for each item, kept by key.
function keyed(parent, items, keyOf, make, update) {
  const old = parent.kept || (parent.kept = new Map()), now = new Map();
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let e = old.get(key);
    if (!e) e = make(item);
    update(e, item);
    now.set(key, e);
    old.delete(key);
    if (e === at) at = at.nextElementSibling;
    else parent.insertBefore(e, at);
  }
  for (const e of old.values()) e.remove();
  parent.kept = now;
}

function drawService() {
  const s = live.service;
  put($("model"), s.model);
  document.title = s.model + " · quern";
  put($("note"), s.note || "");
  $("note").hidden = !s.note;
  $("raw").disabled = !s.chat;
  if (!s.chat) $("raw").checked = true;
  drawSamples();
  drawStart(s);
  put($("max-hint"), `empty: to the end of the context (${count(s.max_context)} tokens)`);
  showReady();
}
// What to do with a service that has had no job: its address, and a request.
const QUOTE = "'";
function drawStart(s) {
  const body = s.chat ? { messages: [{ role: "user", content: "Tell me a story." }] } : { prompt: "Once upon a time", max_tokens: 100 };
  const key = sessionStorage.getItem(keyName) ? ' -H "Authorization: Bearer $KEY"' : "";
  put($("base-url"), location.origin + "/v1");
  put($("curl"), `curl ${location.origin}/v1/${s.chat ? "chat/" : ""}completions${key} -H ${QUOTE}Content-Type: application/json${QUOTE} -d ${QUOTE}${JSON.stringify(body)}${QUOTE}`);
}
for (const b of document.querySelectorAll("#no-jobs button")) b.onclick = () => copyText($(b.dataset.of).textContent, b);
const percent = (x) => [(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0), "%"];
const sequences = (n) => (n === 1 ? "sequence" : "sequences");
const numbers = [
  ["Output", (p) => [count(p[V.decodeTps]), "tok/s"], "Tokens generated per second, all answers together."],
  ["Prompts", (p) => [count(p[V.promptTps]), "tok/s"], "Prompt tokens read per second. What the cache already had is not read again."],
  ["Running", (p) => [count(p[V.running]), sequences(p[V.running])],
    "Sequences being computed now. A job has one for each of its outputs, so eight outputs of one job are eight sequences."],
  ["Waiting", (p) => [count(p[V.waiting]), p[V.swapped] ? `${sequences(p[V.waiting])}, ${count(p[V.swapped])} swapped` : sequences(p[V.waiting])],
    "Sequences in the queue. Swapped ones had begun, and their blocks are kept in the host's memory until there is room."],
  ["First token", (p) => ms(p[V.ttft50]), "Time from a request to its first token, median of the last ten seconds."],
  ["Inter-token", (p) => ms(p[V.itl50]), "Time between two tokens of an answer, median of the last ten seconds."],
  ["Blocks held", (p) => percent(p[V.held]),
    "A block keeps what the model computed for a few tokens (their K and V). Held blocks are in use by sequences."],
  ["Blocks cached", (p) => percent(p[V.cached]),
    "Blocks of earlier prompts. A prompt that begins the same takes them instead of computing; they are given up when blocks are needed. The rest is free."],
];
for (const [name, , meaning] of numbers) $("meanings").append(el("div", {}, el("dt", {}, name), el("dd", {}, meaning)));
function drawNumbers() {
  const p = live.history[live.history.length - 1];
  if (!p) return;
  const s = live.service;
  if (s) put($("about"), `version ${s.version}, up ${age(Math.max(0, p[V.time] / 1000 - s.started))}, context ${count(s.max_context)}`);
  keyed($("numbers"), numbers, (n) => n[0],
    (n) => el("div", { title: n[2] }, el("dt", {}, n[0]), el("dd", {}, el("span"), el("small"))),
    (d, n) => {
      const [value, unit] = n[1](p), dd = d.lastChild;
      put(dd.firstChild, value);
      put(dd.lastChild, unit ? " " + unit : "");
    });
}

