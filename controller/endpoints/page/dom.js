// The text of jobs, models, users and replies goes into the page by textContent alone.
const $ = (id) => document.getElementById(id);
function el(name, props, ...children) {
  const e = document.createElement(name);
  for (const k in props || {}) k in e ? (e[k] = props[k]) : e.setAttribute(k, props[k]);
  e.append(...children);
  return e;
}
function put(e, text) { // only what changed
  text = String(text);
  if (e.textContent !== text) e.textContent = text;
}
function setClass(e, name) { if (e.className !== name) e.className = name; }
function say(text) { put($("say"), text); } // to screen readers

// What the browser keeps; it may refuse to, and then nothing is kept.
function kept(name) { try { return localStorage.getItem(name); } catch { return null; } }
function keep(name, value) {
  try {
    if (value == null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
    return true;
  } catch { return false; }
}

async function copyText(text, button) {
  let ok = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // only https and this machine have a clipboard
    const area = el("textarea", { className: "vh", value: text });
    (button.closest("dialog") || document.body).append(area);
    area.select();
    ok = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.dataset.name || button.textContent;
  button.dataset.name = before;
  put(button, ok ? "Copied" : "Not copied");
  say(ok ? "Copied" : "The browser does not allow to copy");
  setTimeout(() => put(button, before), 1500);
}
function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type })), a = el("a", { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// ---- numbers ----
const whole = new Intl.NumberFormat("en");
function count(x) {
  if (x == null) return "–";
  if (x >= 1e6) return (x / 1e6).toFixed(x >= 1e7 ? 1 : 2) + "M";
  if (x >= 1e5) return (x / 1e3).toFixed(0) + "k";
  return whole.format(x >= 100 || Number.isInteger(x) ? Math.round(x) : Math.round(x * 10) / 10);
}
function ms(x) {
  if (x == null) return ["–", ""];
  if (x >= 10000) return [(x / 1000).toFixed(1), "s"];
  if (x >= 1000) return [(x / 1000).toFixed(2), "s"];
  return [x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2), "ms"];
}
const msText = (x) => ms(x).join(" ").trim();
function bytes(x) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  while (x >= 1024 && u < 4) { x /= 1024; u++; }
  return (x < 10 && u ? x.toFixed(1) : x.toFixed(0)) + " " + units[u];
}
function age(s) {
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

