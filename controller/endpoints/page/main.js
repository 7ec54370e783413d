// ---- the page itself ----
function show() { // what the address says
  const chatting = location.hash === "#/chat";
  document.body.classList.toggle("at-chat", chatting);
  document.body.classList.toggle("at-service", !chatting);
  for (const [id, is] of [["to-chat", chatting], ["to-service", !chatting]])
    if (is) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  if (chatting) scrollDown(true);
  redraw();
}
function redraw() {
  for (const id in live.maps) live.maps[id].drawn = false;
  ["now", "maps", "replicas"].forEach((x) => live.changed.add(x));
  schedule();
}
document.querySelector(".skip").onclick = (e) => {
  e.preventDefault();
  location.hash = "#/chat";
  show();
  $("prompt").focus();
};
addEventListener("hashchange", show);
// A browser that keeps the page to come back to it would keep its streams, too, of the few connections that it opens to
// a host.  watch() goes on when it is back.
addEventListener("pagehide", () => {
  if (live.abort) live.abort.abort();
  stop();
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
show();
watch();
