// ---- workers and jobs ----
function cells(row, texts) { texts.forEach((t, i) => put(row.children[i], t)); }
// Cells: [label, class].  The label is shown where the table has no room for columns.
function rowOf(columns) {
  return el("tr", { role: "row" }, ...columns.map(([label, c]) => {
    const td = el("td", { className: c, role: "cell" });
    td.dataset.label = label;
    return td;
  }));
}
function drawWorkers() {
  const ws = live.workers;
  $("no-workers").hidden = ws.length > 0;
  put($("workers-count"), ws.length ? `${ws.filter((w) => w.state === "serving").length} of ${ws.length} serve` : "");
  keyed($("workers"), ws, (w) => w.id,
    () => rowOf([["Worker", "n"], ["State", ""], ["Device", "long"], ["Host", "long"], ["Replica", "n"], ["Step", "n"],
      ["Steps/s", "n"], ["Weights", "n"], ["KV", "n"]]),
    (row, w) => {
      const s = live.steps.get(w.id) || {};
      const state = w.state === "loading" ? `loading ${(100 * w.progress).toFixed(0)} %` : w.state;
      cells(row, [w.id, state, w.device_name ? `${w.device}, ${w.device_name}` : w.device, w.host,
        w.replica ? (w.rank ? `${w.replica}.${w.rank}` : w.replica) : "–", s.us ? msText(s.us / 1000) : "–",
        count(s.rate), bytes(w.weights_bytes), bytes(w.kv_bytes)]);
      setClass(row.children[1], "state-" + w.state.replace(/\W/g, ""));
    });
}
function makeJob() {
  const row = rowOf([["Job", "mono"], ["State", "state"], ["User", "long"], ["Prompt", "n"], ["Output", "n"], ["tok/s", "n"], ["Age", "n"], ["", "n"]]);
  row.fill = el("i");
  row.tokens = el("span", { className: "of" });
  row.children[4].append(el("span", { className: "bar" }, row.fill), row.tokens);
  row.cancel = el("button", { type: "button" }, "Cancel");
  row.children[7].append(row.cancel);
  row.cancel.onclick = () => cancelJob(row);
  return row;
}
// The engine has accepted a running job, but without a token it may still be in the queue.
function stateOf(r) {
  if (r.cancelled && r.state !== "failed") return "cancelled";
  if (r.code) return `${r.state}: ${r.code}`;
  const name = r.state === "running" && !r.completion_tokens ? "waiting" : r.state;
  return r.n > 1 ? `${name} ×${r.n}` : name;
}
function drawJobs() {
  const j = live.jobs, shown = j.rows.filter((r) => r.state === "running" || r.state === "queued").length;
  const all = j.running + j.queued;
  $("no-jobs").hidden = j.rows.length > 0;
  put($("jobs-count"), `${count(all)} in progress, ${count(j.finished)} finished` +
    (all > shown ? `; the first ${shown} are shown` : ""));
  keyed($("jobs"), j.rows, (r) => r.job, makeJob, (row, r) => {
    const speed = live.speed.get(r.job), open = r.state === "running" || r.state === "queued";
    row.job = r.job;
    put(row.children[0], r.job.slice(0, 8));
    row.children[0].title = r.job;
    const state = stateOf(r);
    put(row.children[1], state);
    row.children[1].title = r.n > 1 ? `${r.n} outputs, each a sequence` : state;
    setClass(row.children[1], "state state-" + (r.cancelled ? "done" : state.match(/^\w+/)[0]));
    put(row.children[2], r.user || r.owner || "–");
    row.children[2].title = r.user || "";
    put(row.children[3], count(r.prompt_tokens));
    put(row.tokens, `${count(r.completion_tokens)} / ${count(r.max_tokens * (r.n || 1))}`);
    row.fill.style.width = Math.min(100, 100 * r.completion_tokens / Math.max(1, r.max_tokens * (r.n || 1))).toFixed(0) + "%";
    put(row.children[5], speed && speed.speed != null ? count(speed.speed) : "–");
    put(row.children[6], age(r.age_ms / 1000));
    row.cancel.hidden = !open;
    row.cancel.disabled = r.cancelled;
    row.cancel.setAttribute("aria-label", "Cancel job " + r.job.slice(0, 8));
  });
}
async function cancelJob(row) {
  row.cancel.disabled = true;
  try {
    const r = await call("/api/cancel", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ job: row.job }) });
    if (!r.ok) throw new Error(await reason(r));
  } catch (e) {
    row.cancel.disabled = false;
    row.cancel.title = String(e.message || e);
    put(row.cancel, "Failed, again?");
  }
}

