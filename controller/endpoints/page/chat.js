// ---- chat ----
const chat = { messages: [], abort: null };
function message(kind, speaker) {
  $("hello").hidden = true;
  const m = el("div", { className: "msg " + kind });
  m.textPart = el("span", { className: "text" });
  m.append(el("span", { className: "speaker" }, speaker), m.textPart);
  $("log").append(m);
  return m;
}
function scrollDown(force) {
  const log = $("log");
  if (force || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}
function note(m, text) {
  if (!m.notePart) m.append((m.notePart = el("span", { className: "note" })));
  put(m.notePart, text);
}
function fail(text) {
  const m = message("error", "Error");
  m.setAttribute("role", "alert");
  put(m.textPart, text);
  scrollDown(true);
}

// Tokens of a reply and its text come side by side: text may be held back, and a token may be half
// a character.  A token gets a span when its own text has come.
class Reply {
  constructor(m) {
    this.m = m;
    this.tokens = [];   // all of them: {text, logprob, tops}
    this.waiting = [];  // their text has not come
    this.rest = "";     // text that no token has claimed
    this.text = "";
    this.decoder = new TextDecoder("utf-8", { fatal: false });
    m.reply = this;
  }
  add(text, tokens) {
    this.text += text;
    this.rest += text;
    for (const t of tokens) {
      t.text = t.bytes ? this.decoder.decode(new Uint8Array(t.bytes), { stream: true }) : t.token;
      this.tokens.push(t);
      this.waiting.push(t);
    }
    if (!tokens.length && !this.tokens.length) this.flush();
    while (this.waiting.length && this.rest.startsWith(this.waiting[0].text)) {
      const t = this.waiting[0];
      if (!t.text && this.waiting.length === 1) break; // half a character: the next one may still come
      this.waiting.shift();
      if (t.text) this.span(t);
      this.rest = this.rest.slice(t.text.length);
    }
  }
  span(t) {
    const s = el("span", { className: "tok" + shade(t.logprob) }, t.text);
    s.token = t;
    this.m.textPart.append(s);
  }
  flush() { // text without tokens
    if (this.rest) this.m.textPart.append(this.rest);
    this.rest = "";
  }
  end() {
    if (this.rest) this.waiting = this.waiting.filter((t) => !t.text || !this.rest.includes(t.text));
    this.flush();
    const last = this.waiting.filter((t) => t.text).pop();
    if (!last) return;
    // The token that ended it is not text, but was chosen like the others.
    const s = el("span", { className: "tok end" }, "■");
    s.token = last;
    this.m.textPart.append(s);
  }
}
function shade(logprob) {
  const p = Math.exp(logprob);
  return p >= 0.6 ? "" : p >= 0.3 ? " p1" : p >= 0.1 ? " p2" : " p3";
}
function tokensOf(choice) {
  const l = choice.logprobs;
  if (!l) return [];
  if (l.content) return l.content.map((t) => ({ token: t.token, bytes: t.bytes, logprob: t.logprob,
    tops: (t.top_logprobs || []).map((a) => [a.token, a.logprob]) }));
  return (l.tokens || []).map((token, i) => ({ token, logprob: l.token_logprobs[i],
    tops: Object.entries((l.top_logprobs || [])[i] || {}) }));
}
function settings() {
  const o = {}, number = (id) => { const v = $(id).value.trim(); if (v !== "") o[id] = Number(v); };
  ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"].forEach(number);
  return o;
}
async function ask() {
  const text = $("prompt").value, raw = $("raw").checked;
  if (!text.trim() || chat.abort) return;
  $("prompt").value = "";
  put(message("user", raw ? "Text" : "You").textPart, text);
  scrollDown(true);
  chat.messages.push({ role: "user", content: text });
  const system = $("system").value.trim();
  const body = { ...settings(), stream: true, stream_options: { include_usage: true } };
  if (live.service) body.model = live.service.model;
  if (raw) Object.assign(body, { prompt: text, logprobs: 5 });
  else Object.assign(body, { messages: (system ? [{ role: "system", content: system }] : []).concat(chat.messages), logprobs: true, top_logprobs: 5 });
  chat.abort = new AbortController();
  busy(true);
  const m = message("model", raw ? "Continued" : "Model"), reply = new Reply(m);
  m.textPart.tabIndex = 0;
  m.textPart.setAttribute("aria-label", "Answer; arrow keys go from token to token");
  m.classList.add("busy");
  const start = performance.now();
  let first = 0, usage = null, finish = null, error = null;
  try {
    const r = await call(raw ? "/v1/completions" : "/v1/chat/completions", { method: "POST",
      headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: chat.abort.signal });
    if (!r.ok) throw new Error(await reason(r));
    for await (const data of events(r)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message || "the service gave up");
      if (chunk.usage) usage = chunk.usage;
      const c = (chunk.choices || [])[0];
      if (!c) continue;
      if (c.finish_reason) finish = c.finish_reason;
      const piece = raw ? c.text || "" : (c.delta && (c.delta.content || c.delta.reasoning_content)) || "", tokens = tokensOf(c);
      if (!first && (piece || tokens.length)) first = performance.now();
      reply.add(piece, tokens);
      scrollDown(false);
    }
    if (!finish) error = "the stream ended before the answer did";
  } catch (e) {
    if (e.name === "AbortError") finish = "stopped";
    else error = e.message === "Failed to fetch" || e.name === "TypeError" ? "the service cannot be reached" : e.message;
  }
  reply.end();
  m.classList.remove("busy");
  const n = usage ? usage.completion_tokens : reply.tokens.length, seconds = (performance.now() - first) / 1000;
  if (n) {
    const speed = n > 1 && seconds > 0 ? `, ${count((n - 1) / seconds)} tok/s` : "";
    const why = { length: ", cut at the most tokens", stopped: ", stopped", abort: ", cancelled", error: ", failed" }[finish] || "";
    note(m, `${count(n)} tokens${speed}, first after ${msText(first - start)}${why}`);
  } else {
    m.remove();
  }
  if (reply.text) chat.messages.push({ role: "assistant", content: reply.text });
  else chat.messages.pop();
  if (finish === "abort" && !n) error = "the job was cancelled";
  if (error) fail(error);
  if (error && !reply.text && !$("prompt").value) $("prompt").value = text;
  chat.abort = null;
  busy(false);
  scrollDown(false);
}
function busy(is) {
  $("stop").hidden = !is;
  $("send").disabled = is;
}
$("compose").onsubmit = (e) => { e.preventDefault(); ask(); };
$("prompt").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); ask(); }
};
$("stop").onclick = () => { if (chat.abort) chat.abort.abort(); $("prompt").focus(); };
$("clear").onclick = () => {
  if (chat.abort) chat.abort.abort();
  chat.messages = [];
  for (const m of $("log").querySelectorAll(".msg")) m.remove();
  $("hello").hidden = false;
  hideTip();
  $("prompt").focus();
};
$("shade").onchange = () => $("log").classList.toggle("shade", $("shade").checked);

