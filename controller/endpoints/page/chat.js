// ---- chat ----
// One answer at a time; it goes on while another conversation is shown.
const chat = { current: newChat(), answer: null, error: "" }; // answer: {chat, message, abort, thinking}
const tokensOf = new WeakMap(); // of messages: they are not kept
const views = new WeakMap();    // of messages that are shown

const lastOf = (list) => list[list.length - 1];
const answering = (m) => Boolean(chat.answer && chat.answer.message === m);
function action(name, what, run) {
  const b = el("button", { type: "button", title: what }, name);
  b.onclick = () => run(b);
  return b;
}
function viewOf(m) {
  const v = el("article", { className: `msg ${m.role === "user" ? "user" : "model"}` }), mine = m.role === "user";
  v.message = m;
  v.append(el("h3", { className: "speaker" }, mine ? (m.raw ? "Text" : "You") : m.raw ? "Continued" : "Model"));
  v.thoughts = el("div", { className: "md" });
  v.summary = el("summary", {}, "Thoughts");
  v.fold = el("details", { className: "thoughts", hidden: true }, v.summary, v.thoughts);
  v.summary.onclick = () => { v.touched = true; };
  v.textPart = el("div", { className: "text" });
  v.thoughtsMd = new Markdown(v.thoughts);
  v.textMd = new Markdown(v.textPart);
  v.notePart = el("p", { className: "note" });
  v.actions = el("div", { className: "actions" });
  if (!mine) v.append(v.fold);
  v.append(v.textPart, v.notePart, v.actions);
  views.set(m, v);
  return v;
}
function actionsOf(m) {
  const list = [action("Copy", "Copy the text as it came", (b) => copyText(m.content, b))];
  if (chat.answer) return list;
  list.push(action("Edit", m.role === "user" ? "Change it and ask again; what follows it is dropped" : "Change what the model has said", () => edit(m)));
  if (m.role === "assistant" && m === lastOf(chat.current.messages))
    list.push(action("Regenerate", "Drop this answer and ask again", () => regenerate()));
  return list;
}
// What has changed of a message; the rest of its view stays.
function paint(m) {
  const v = views.get(m), busy = answering(m), t = $("probs").checked && tokensOf.get(m);
  if (!v || !v.isConnected || v.classList.contains("editing")) return;
  v.classList.toggle("busy", busy);
  v.setAttribute("aria-busy", String(busy));
  v.fold.hidden = !m.thoughts;
  if (m.thoughts) {
    const thinking = busy && !m.content;
    put(v.summary, thinking ? "Thinking …" : "Thoughts");
    if (!v.touched) v.fold.open = thinking;
    if (t) place(v, "thoughts", t.parts.thoughts);
    else { unplace(v, "thoughts"); v.thoughtsMd.show(m.thoughts); }
  }
  if (t) place(v, "textPart", t.parts.content);
  else {
    unplace(v, "textPart");
    v.textPart.classList.toggle("md", m.role === "assistant" && !m.raw);
    if (m.role === "assistant" && !m.raw) v.textMd.show(m.content);
    else put(v.textPart, m.content);
  }
  put(v.notePart, m.note || "");
  v.notePart.hidden = !m.note;
}
function place(v, part, node) {
  if (node.parentNode === v[part]) return;
  v[part].replaceChildren(node);
  v[part === "thoughts" ? "thoughtsMd" : "textMd"].shown = [];
}
function unplace(v, part) {
  if (v[part].firstChild && v[part].firstChild.className === "tokens") v[part].replaceChildren();
}
function drawActions() {
  for (const v of $("log").querySelectorAll(".msg[aria-busy]"))
    v.actions.replaceChildren(...(answering(v.message) ? [] : actionsOf(v.message)));
}
function drawLog() {
  const c = chat.current, log = $("log");
  hideTip();
  for (const m of log.querySelectorAll(".msg")) m.remove();
  $("hello").hidden = c.messages.length > 0;
  for (const m of c.messages) { log.append(viewOf(m)); paint(m); }
  if (chat.error) log.append(el("div", { className: "msg error", role: "alert" }, el("div", { className: "text" }, chat.error)));
  put($("h-chat"), c.title);
  drawActions();
  scrollDown(true);
}
function drawChats() {
  const list = newestFirst();
  keyed($("chats"), list, (c) => c.id, (c) => {
    const li = el("li");
    li.open = el("button", { type: "button", className: "open" });
    li.drop = el("button", { type: "button", className: "drop", title: "Delete" }, "×");
    li.open.onclick = () => openChat(chats.get(c.id));
    li.drop.onclick = () => deleteChat(c.id);
    li.append(li.open, li.drop);
    return li;
  }, (li, c) => {
    put(li.open, c.title);
    li.drop.setAttribute("aria-label", "Delete: " + c.title);
    if (c.id === chat.current.id) li.open.setAttribute("aria-current", "true");
    else li.open.removeAttribute("aria-current");
  });
  const none = !chat.current.messages.length;
  $("export-md").disabled = $("export-json").disabled = none;
  $("forget").disabled = !list.length;
}
function scrollDown(force) {
  const log = $("log");
  if (force || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}
function saved(c) {
  if (c.messages.length) keepChat(c);
  drawChats();
}

// What a beginner may ask, for a model that answers and for one that continues texts.
const SAMPLES = [["Tell me a story about a small dog.", "Explain in three sentences what a cache is.", "Write a haiku about rain."],
  ["Once upon a time", "The little dog", "One day, a girl named Lily"]];
function drawSamples() {
  const raw = $("raw").checked;
  put($("hello-text"), raw ? "Begin a text." : "Ask something.");
  $("samples").replaceChildren(...SAMPLES[raw ? 1 : 0].map((text) => action(text, "Send it", () => {
    $("prompt").value = text;
    send();
  })));
}

function openChat(c) {
  chat.current = c;
  chat.error = "";
  $("system").value = c.system;
  sideOpen(false);
  drawLog();
  drawChats();
}
function startChat() {
  openChat(newChat(chat.current.system));
  $("prompt").focus();
}
function deleteChat(id) {
  const c = chats.get(id);
  if (!c || !confirm(`Delete the conversation "${c.title}"?`)) return;
  if (chat.answer && chat.answer.chat === c) chat.answer.abort.abort();
  dropChat(id);
  if (chat.current === c) startChat();
  else drawChats();
}
function forgetAll() {
  if (!confirm("Delete all conversations of this browser?")) return;
  if (chat.answer) chat.answer.abort.abort();
  for (const id of [...chats.keys()]) dropChat(id);
  for (const name of keptNames()) keep(name, null);
  startChat();
}

// ---- asking ----
function settings(raw) {
  const o = {}, number = (id) => { const v = $(id).value.trim(); if (v !== "") o[id] = Number(v); };
  ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"].forEach(number);
  // An answer ends by itself, a text that is continued may not.
  if (raw && !o.max_tokens && live.service) o.max_tokens = Math.min(512, Math.ceil(live.service.max_context / 2));
  return o;
}
// Thoughts are not sent back: they were never part of what the model said.
function requestOf(c, raw) {
  const body = { ...settings(raw), stream: true, stream_options: { include_usage: true }, return_timing: true }, probs = $("probs").checked;
  if (live.service) body.model = live.service.model;
  if (raw) return Object.assign(body, { prompt: lastOf(c.messages).content }, probs ? { logprobs: 5 } : {});
  const messages = c.messages.filter((m) => !m.raw).map((m) => ({ role: m.role, content: m.content }));
  if (c.system.trim()) messages.unshift({ role: "system", content: c.system.trim() });
  return Object.assign(body, { messages }, probs ? { logprobs: true, top_logprobs: 5 } : {});
}
function send() {
  const text = $("prompt").value, c = chat.current, raw = $("raw").checked;
  if (!text.trim() || chat.answer) return;
  const before = c.messages.slice();
  $("prompt").value = "";
  if (!c.messages.length) c.title = text.trim().split("\n")[0].slice(0, 60);
  c.messages.push({ role: "user", content: text, raw });
  answer(c, before, text);
}
function regenerate() {
  const c = chat.current, before = c.messages.slice();
  if (chat.answer || !c.messages.length) return;
  $("log").focus(); // the button goes
  c.messages.pop();
  answer(c, before, "");
}
// Asks for an answer to the last message.  Without any, the conversation is what it was before, and the text is back
// in the field.
async function answer(c, before, typed) {
  const raw = lastOf(c.messages).raw, body = requestOf(c, raw), abort = new AbortController();
  const m = { role: "assistant", content: "", thoughts: "", note: "", raw };
  c.messages.push(m);
  c.updated = Date.now();
  chat.answer = { chat: c, message: m, abort };
  chat.error = "";
  if (body.logprobs) tokensOf.set(m, new Tokens());
  busy(true);
  drawLog();
  saved(c);
  say("The model answers");
  const end = await receive(m, raw, body, abort);
  if (tokensOf.has(m)) tokensOf.get(m).end();
  chat.answer = null;
  if (m.content || m.thoughts || end.n) {
    m.note = end.note;
    say(`Answer complete: ${end.note}`);
  } else {
    c.messages = before;
    if (chat.current === c && typed && !$("prompt").value) $("prompt").value = typed;
    if (!before.length) c.title = "New conversation";
  }
  if (end.finish === "abort" && !end.n) end.error = "the job was cancelled";
  if (chat.current === c) {
    chat.error = end.error || "";
    if (c.messages === before || end.error) drawLog();
    else { paint(m); drawActions(); scrollDown(false); }
  }
  busy(false);
  if (c.messages.length && chats.has(c.id)) saved(c);
  else { dropChat(c.id); drawChats(); }
}
// The stream of an answer into the message: {n, note, finish, error}.
async function receive(m, raw, body, abort) {
  const start = performance.now(), tokens = tokensOf.get(m);
  let first = 0, pieces = 0, usage = null, timing = null, finish = null, error = null;
  try {
    const r = await call(raw ? "/v1/completions" : "/v1/chat/completions", { method: "POST",
      headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: abort.signal });
    if (!r.ok) throw new Error(await reason(r));
    for await (const data of events(r)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message || "the service gave up");
      if (chunk.usage) usage = chunk.usage;
      if (chunk.timing) timing = chunk.timing;
      const c = (chunk.choices || [])[0];
      if (!c) continue;
      if (c.finish_reason) finish = c.finish_reason;
      const delta = c.delta || {}, thought = raw ? "" : delta.reasoning_content || "", text = raw ? c.text || "" : delta.content || "";
      const more = tokensIn(c);
      if (thought || text || more.length) { first = first || performance.now(); pieces++; }
      m.thoughts += thought;
      m.content += text;
      if (tokens && thought) tokens.add("thoughts", thought, text ? [] : more);
      if (tokens && (text || !thought)) tokens.add("content", text, more);
      later(m);
    }
    if (!finish) error = "the stream ended before the answer did";
  } catch (e) {
    if (e.name === "AbortError") finish = "stopped";
    else error = e.message === "Failed to fetch" || e.name === "TypeError" ? "the service cannot be reached" : e.message;
  }
  const n = usage ? usage.completion_tokens : tokens ? tokens.n : pieces;
  return { n: first ? n : 0, finish, error, note: first ? noteOf(n, timing, first - start, usage, finish || "error", body) : "" };
}
// Speed is by the service's clock: chunks that come together say nothing of it.  An answer that was stopped has no times.
function noteOf(n, timing, waited, usage, finish, body) {
  const parts = [`${count(n)} tokens`], spent = timing ? timing.total_us - timing.first_token_us : 0;
  if (n > 1 && spent > 0) parts.push(`${count((n - 1) * 1e6 / spent)} tok/s`);
  parts.push(`first after ${msText(timing ? timing.first_token_us / 1000 : waited)}`);
  const why = { length: body.max_tokens ? `cut at ${count(body.max_tokens)} tokens, the longest answer allowed` : "cut: the context is full",
    stopped: "stopped", abort: "cancelled", error: "failed" }[finish];
  if (why) parts.push(why);
  if (usage && live.service) parts.push(`${count(usage.prompt_tokens + usage.completion_tokens)} of ${count(live.service.max_context)} tokens of the context`);
  return parts.join(", ");
}
let painting = false;
function later(m) { // once per frame at most
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => {
    painting = false;
    paint(m);
    scrollDown(false);
  });
}
function busy(is) {
  $("stop").hidden = !is;
  $("send").disabled = is;
}
function stop() { if (chat.answer) chat.answer.abort.abort(); }

// ---- editing ----
function edit(m) {
  const v = views.get(m), c = chat.current, area = el("textarea", { value: m.content, rows: Math.min(12, m.content.split("\n").length + 1) });
  const mine = m.role === "user";
  area.setAttribute("aria-label", "Text of the message");
  const done = () => { drawLog(); $("prompt").focus(); };
  const use = () => {
    const at = c.messages.indexOf(m);
    if (chat.answer || at < 0 || !area.value.trim()) return;
    if (!mine) {
      m.content = area.value;
      tokensOf.delete(m);
      saved(c);
      return done();
    }
    const before = c.messages.slice();
    if (!at) c.title = area.value.trim().split("\n")[0].slice(0, 60);
    c.messages = c.messages.slice(0, at).concat({ role: "user", content: area.value, raw: m.raw });
    answer(c, before, "");
    $("prompt").focus();
  };
  area.onkeydown = (e) => {
    if (e.key === "Escape") { e.stopPropagation(); done(); }
    else if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) use();
  };
  v.classList.add("editing");
  v.textPart.replaceChildren(area);
  v.textMd.shown = [];
  const main = action(mine ? "Ask again" : "Save", "Ctrl+Enter", use);
  main.className = "main";
  v.actions.replaceChildren(main, action("Cancel", "Escape", done));
  area.focus();
}

// ---- what is remembered, and what keys and buttons do ----
const FIELDS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"], CHECKS = ["raw", "probs", "shade"];
function loadSettings() {
  let o = {};
  try { o = JSON.parse(kept("quern.settings")) || {}; } catch { /* as they are */ }
  for (const id of FIELDS) if (typeof o[id] === "string") $(id).value = o[id];
  for (const id of CHECKS) if (typeof o[id] === "boolean") $(id).checked = o[id];
}
function useSettings() {
  const o = {};
  for (const id of FIELDS) o[id] = $(id).value;
  for (const id of CHECKS) o[id] = $(id).checked;
  keep("quern.settings", JSON.stringify(o));
  $("log").classList.toggle("shade", $("shade").checked);
  drawSamples();
  for (const m of chat.current.messages) paint(m);
}
function sideOpen(is) {
  document.body.classList.toggle("side-open", is);
  $("to-side").setAttribute("aria-expanded", String(is));
}
$("more").addEventListener("change", (e) => {
  if (e.target.id === "system") {
    chat.current.system = e.target.value;
    if (chat.current.messages.length) saved(chat.current);
  } else {
    useSettings();
  }
});
$("compose").onsubmit = (e) => { e.preventDefault(); send(); };
$("prompt").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
};
$("chat").addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (document.body.classList.contains("side-open")) { sideOpen(false); $("to-side").focus(); }
  else if ($("tip").hidden) stop();
});
$("stop").onclick = () => { stop(); $("prompt").focus(); };
$("new").onclick = startChat;
$("to-side").onclick = () => {
  sideOpen(!document.body.classList.contains("side-open"));
  if (document.body.classList.contains("side-open")) $("new").focus();
};
$("forget").onclick = forgetAll;
$("keep").checked = keeping;
$("keep").onchange = () => setKeeping($("keep").checked);
$("export-md").onclick = () => download(fileName(chat.current) + ".md", "text/markdown", asMarkdown(chat.current));
$("export-json").onclick = () => download(fileName(chat.current) + ".json", "application/json", asJSON(chat.current));
addEventListener("pagehide", () => { if (chat.answer) keepChat(chat.answer.chat); });
addEventListener("storage", (e) => { // another tab's
  if (!e.key || !e.key.startsWith(CHAT)) return;
  const id = e.key.slice(CHAT.length), c = e.newValue == null ? null : readChat(id, e.newValue);
  if (chat.answer && chat.answer.chat.id === id) return;
  if (c) chats.set(id, c);
  else chats.delete(id);
  if (c && chat.current.id === id) openChat(c);
  else drawChats();
});
loadSettings();
loadChats();
if (chats.size) chat.current = newestFirst()[0];
$("system").value = chat.current.system;
$("log").classList.toggle("shade", $("shade").checked);
drawLog();
drawChats();
