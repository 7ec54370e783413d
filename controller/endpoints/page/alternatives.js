// ---- tokens of an answer, and what else each might have been ----
// Tokens and text come side by side: text may be held back, a token may be half a character, and some (the
// marks around thoughts, the one that ends it) have no text.  A token gets a span when its text has come.
const WAITING_MAX = 64;
class Tokens {
  constructor() {
    this.parts = { thoughts: el("div", { className: "tokens" }), content: el("div", { className: "tokens", tabIndex: 0 }) };
    this.parts.content.setAttribute("aria-label", "Answer; arrow keys go from token to token");
    this.n = 0;
    this.waiting = [];  // their text has not come
    this.rest = "";     // text of a part that no token has claimed
    this.part = "content";
    this.decoder = new TextDecoder("utf-8", { fatal: false });
  }
  add(part, text, tokens) {
    if (text && part !== this.part) {
      this.flush();
      this.part = part;
    }
    this.rest += text;
    for (const t of tokens) {
      t.text = t.bytes ? this.decoder.decode(new Uint8Array(t.bytes), { stream: true }) : t.token;
      this.n++;
      this.waiting.push(t);
    }
    if (!tokens.length && !this.n) this.flush();
    this.match();
  }
  match() {
    while (this.waiting.length) {
      const t = this.waiting[0];
      if (!t.text && this.waiting.length === 1) return; // half a character: the next one may still come
      if (this.rest.startsWith(t.text)) {
        this.waiting.shift();
        if (t.text) this.span(t);
        this.rest = this.rest.slice(t.text.length);
      } else if (!this.rest || t.text.startsWith(this.rest)) {
        return; // more text will come
      } else if (!this.resume()) {
        return;
      }
    }
  }
  // The text does not begin with the next token: marks and blanks between thoughts and answer are left out of it.
  // The first token that ends in what the text begins with is the next one.
  resume() {
    for (let k = 0; k < this.waiting.length; k++) {
      const t = this.waiting[k];
      for (let at = k ? 0 : 1; at < t.text.length; at++) {
        const end = t.text.slice(at);
        if (!this.rest.startsWith(end) || (at && !end.trim())) continue;
        this.waiting.splice(0, k);
        t.text = end;
        return true;
      }
    }
    if (this.waiting.length > WAITING_MAX) this.waiting.shift();
    return false;
  }
  span(t) {
    const s = el("span", { className: "tok" + shade(t.logprob) }, t.text);
    s.token = t;
    this.parts[this.part].append(s);
  }
  flush() { // text without tokens, or of which a token says more
    const t = this.waiting[0];
    if (t && this.rest && t.text.startsWith(this.rest)) {
      this.waiting.shift();
      t.text = this.rest;
      this.span(t);
    } else if (this.rest) this.parts[this.part].append(this.rest);
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
    this.parts[this.part].append(s);
  }
}
function shade(logprob) {
  const p = Math.exp(logprob);
  return p >= 0.6 ? "" : p >= 0.3 ? " p1" : p >= 0.1 ? " p2" : " p3";
}
function tokensIn(choice) {
  const l = choice.logprobs;
  if (!l) return [];
  if (l.content) return l.content.map((t) => ({ token: t.token, bytes: t.bytes, logprob: t.logprob,
    tops: (t.top_logprobs || []).map((a) => [a.token, a.logprob]) }));
  return (l.tokens || []).map((token, i) => ({ token, logprob: l.token_logprobs[i],
    tops: Object.entries((l.top_logprobs || [])[i] || {}) }));
}

let on = null;
function visible(token) { return token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣"); }
function tipLine(token, logprob, chosen) {
  const p = Math.exp(logprob), fill = el("i");
  fill.style.width = (100 * p).toFixed(1) + "%";
  return el("div", { className: "line" + (chosen ? " chosen" : "") }, el("span", { className: "mono" }, visible(token)),
    el("span", { className: "bar" }, fill), el("span", { className: "n" }, (100 * p).toFixed(p < 0.1 ? 2 : p > 0.9995 ? 0 : 1) + " %"));
}
function showTip(span) {
  hideTip();
  on = span;
  span.classList.add("on");
  const t = span.token, tip = $("tip"), tops = t.tops.slice().sort((a, b) => b[1] - a[1]);
  const chosen = t.token, among = tops.some((a) => a[0] === chosen);
  tip.replaceChildren(el("div", { className: "title" }, "What it might have been"),
    ...tops.map((a) => tipLine(a[0], a[1], a[0] === chosen)));
  if (!among) tip.append(tipLine(chosen, t.logprob, true));
  tip.hidden = false;
  const r = span.getClientRects()[0] || span.getBoundingClientRect(), w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(8, Math.min(innerWidth - w - 8, r.left)) + "px";
  tip.style.top = (r.bottom + h + 10 < innerHeight ? r.bottom + 6 : Math.max(8, r.top - h - 6)) + "px";
}
function hideTip() {
  if (on) on.classList.remove("on");
  on = null;
  $("tip").hidden = true;
}
$("log").addEventListener("pointerover", (e) => { if (e.target.token) showTip(e.target); else hideTip(); });
$("log").addEventListener("pointerleave", hideTip);
$("log").addEventListener("scroll", hideTip);
$("log").addEventListener("focusout", hideTip);
$("log").addEventListener("keydown", (e) => {
  const text = e.target.closest && e.target.closest(".tokens");
  if (!text || !["ArrowLeft", "ArrowRight", "Escape"].includes(e.key)) return;
  e.preventDefault();
  if (e.key === "Escape") return hideTip();
  const all = [...text.querySelectorAll(".tok")], at = all.indexOf(on);
  const next = e.key === "ArrowRight" ? at + 1 : at < 0 ? all.length - 1 : at - 1;
  if (all[next]) { all[next].scrollIntoView({ block: "nearest" }); showTip(all[next]); }
});

