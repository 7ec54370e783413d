// ---- conversations, kept in the browser ----
// {id, title, updated, system, messages: [{role, content, thoughts, note, raw}]}, each under a name of its own, so
// that two tabs do not overwrite each other's.
const CHAT = "quern.chat.", CHATS_MAX = 50, CHATS_CHARS = 2000000;
const chats = new Map(); // by id
let keeping = kept("quern.keep") !== "no";

function newChat(system) {
  const id = [...crypto.getRandomValues(new Uint8Array(9))].map((b) => b.toString(16).padStart(2, "0")).join("");
  return { id, title: "New conversation", updated: Date.now(), system: system || "", messages: [] };
}
const asText = (x) => (typeof x === "string" ? x : "");
function readChat(id, text) { // null: it is not one
  let c;
  try { c = JSON.parse(text); } catch { return null; }
  if (!c || !Array.isArray(c.messages)) return null;
  const messages = c.messages.filter((m) => m && (m.role === "user" || m.role === "assistant")).map((m) => ({ role: m.role,
    content: asText(m.content), thoughts: asText(m.thoughts), note: asText(m.note), raw: m.raw === true }))
    .filter((m) => m.role === "user" || m.content || m.thoughts); // the page was closed before an answer began
  return { id, title: asText(c.title) || "Conversation", updated: Number(c.updated) || 0, system: asText(c.system), messages };
}
const newestFirst = () => [...chats.values()].sort((a, b) => b.updated - a.updated);
function keptNames() {
  const names = [];
  try { for (let i = 0; i < localStorage.length; i++) names.push(localStorage.key(i)); } catch { /* none */ }
  return names.filter((n) => n.startsWith(CHAT));
}
function loadChats() {
  for (const name of keptNames()) {
    const id = name.slice(CHAT.length), c = readChat(id, kept(name));
    if (c) chats.set(id, c);
    else keep(name, null);
  }
}
// The oldest go until the rest fits.
function keepChat(c) {
  chats.set(c.id, c);
  if (!keeping) return;
  const text = JSON.stringify(c);
  let chars = text.length, n = 1;
  for (const other of newestFirst()) {
    if (other === c) continue;
    const its = kept(CHAT + other.id);
    if (its == null) continue;
    n++;
    chars += its.length;
    if (n > CHATS_MAX || chars > CHATS_CHARS) dropChat(other.id);
  }
  if (text.length > CHATS_CHARS || !keep(CHAT + c.id, text)) {
    keep(CHAT + c.id, null);
    say("This conversation is too long to be kept in the browser");
  }
}
function dropChat(id) {
  chats.delete(id);
  keep(CHAT + id, null);
}
function setKeeping(is) {
  keeping = is;
  keep("quern.keep", is ? null : "no");
  if (is) for (const c of [...chats.values()]) { if (c.messages.length) keepChat(c); }
  else for (const name of keptNames()) keep(name, null);
}

// ---- export ----
const fileName = (c) => (c.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 50) || "conversation");
function asMarkdown(c) {
  const parts = [`# ${c.title}`];
  if (c.system) parts.push("## System", c.system);
  for (const m of c.messages) {
    parts.push(m.role === "user" ? "## You" : "## Model");
    if (m.thoughts) parts.push(m.thoughts.split("\n").map((l) => "> " + l).join("\n"));
    parts.push(m.content);
  }
  return parts.join("\n\n") + "\n";
}
function asJSON(c) {
  const messages = (c.system ? [{ role: "system", content: c.system }] : []).concat(c.messages.map((m) =>
    ({ role: m.role, content: m.content, ...(m.thoughts ? { reasoning_content: m.thoughts } : {}) })));
  return JSON.stringify({ title: c.title, model: live.service ? live.service.model : "", updated: new Date(c.updated).toISOString(), messages }, null, 2) + "\n";
}
