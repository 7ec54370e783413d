// ---- what else a token might have been ----
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
  const text = e.target.closest && e.target.closest(".msg.model .text");
  if (!text || !["ArrowLeft", "ArrowRight", "Escape"].includes(e.key)) return;
  e.preventDefault();
  if (e.key === "Escape") return hideTip();
  const all = [...text.querySelectorAll(".tok")], at = all.indexOf(on);
  const next = e.key === "ArrowRight" ? at + 1 : at < 0 ? all.length - 1 : at - 1;
  if (all[next]) { all[next].scrollIntoView({ block: "nearest" }); showTip(all[next]); }
});

