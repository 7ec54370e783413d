// ---- the live stream ----
const live = { service: null, replicas: [], workers: [], jobs: { queued: 0, running: 0, finished: 0, rows: [] },
  steps: new Map(), speed: new Map(), maps: {}, history: [], changed: new Set(), online: false, abort: null, wake: () => {} };
const V = { time: 0, promptTps: 1, decodeTps: 2, running: 3, waiting: 4, swapped: 5, held: 6, cached: 7,
  ttft50: 8, ttft99: 9, itl50: 10, itl99: 11 };
const QUIET_MS = 6000, KEEP = 300;

function take(frame) {
  if (frame.history) {
    live.history = frame.history;
    live.maps = {};
    live.steps.clear();
    live.speed.clear();
  }
  if (frame.now) {
    live.history.push(frame.now);
    if (live.history.length > KEEP) live.history.shift();
  }
  for (const name of ["service", "replicas", "workers", "jobs"])
    if (frame[name]) {
      live[name] = frame[name];
      live.changed.add(name);
    }
  const now = live.history.length ? live.history[live.history.length - 1][V.time] : Date.now();
  for (const [id, n, us] of frame.steps || []) {
    const old = live.steps.get(id);
    live.steps.set(id, { n, us, at: now, rate: old && now > old.at ? Math.max(0, (n - old.n) * 1000 / (now - old.at)) : null });
  }
  if (frame.jobs) takeSpeeds(frame.jobs.rows);
  for (const id in frame.maps || {}) {
    live.maps[id] = { device: frame.maps[id][0], host: frame.maps[id][1], drawn: false };
    live.changed.add("maps");
  }
  live.changed.add("now");
  schedule();
}
function takeSpeeds(rows) {
  const seen = new Map();
  for (const r of rows) {
    const old = live.speed.get(r.job);
    const dt = old ? r.age_ms - old.age : 0;
    let speed = old ? old.speed : r.age_ms > 500 ? r.completion_tokens * 1000 / r.age_ms : null;
    if (r.state !== "running") speed = null;
    else if (dt > 0) speed = (r.completion_tokens - old.tokens) * 1000 / dt;
    seen.set(r.job, { tokens: r.completion_tokens, age: r.age_ms, speed });
  }
  live.speed = seen;
}
function online(is, text, kind) {
  live.online = is;
  document.body.classList.toggle("stale", !is);
  put($("pill"), text);
  setClass($("pill"), "pill " + kind);
}
function showReady() {
  const s = live.service;
  if (!live.online || !s) return;
  const r = live.replicas.filter((x) => x.state === "serving").length, all = live.replicas.length;
  if (s.ready) online(true, all > 1 ? `live, ${r} of ${all} replicas` : "live", r < all ? "warn" : "good");
  else online(true, "not ready: no replica can serve", "warn");
}
async function watch() {
  let pause = 500;
  for (;;) {
    const abort = live.abort = new AbortController();
    let quiet = 0;
    const alive = () => { clearTimeout(quiet); quiet = setTimeout(() => abort.abort(), QUIET_MS); };
    try {
      alive();
      const r = await fetch("/api/live", { headers: headers(), cache: "no-store", signal: abort.signal });
      if (r.status === 401) {
        clearTimeout(quiet);
        online(false, "an API key is needed", "bad");
        // Without a key nothing is asked again until there is one.
        if (!(await askKey())) await new Promise((given) => { live.wake = given; });
        continue;
      } else if (!r.ok) {
        throw new Error(await reason(r));
      }
      if (r.ok) for await (const data of events(r, alive)) {
        pause = 500;
        live.online = true;
        take(JSON.parse(data));
        showReady();
      }
    } catch (e) {
      console.debug("live:", e);
    }
    clearTimeout(quiet);
    online(false, "connection lost, retrying", "bad");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

