// ---- the page itself ----
function show(chatSide) {
  document.body.classList.toggle("at-chat", chatSide);
  document.body.classList.toggle("at-service", !chatSide);
  $("to-chat").setAttribute("aria-pressed", String(chatSide));
  $("to-service").setAttribute("aria-pressed", String(!chatSide));
  redraw();
}
function redraw() {
  for (const id in live.maps) live.maps[id].drawn = false;
  ["now", "maps", "replicas"].forEach((x) => live.changed.add(x));
  schedule();
}
$("to-chat").onclick = () => show(true);
$("to-service").onclick = () => show(false);
document.querySelector(".skip").onclick = () => show(true);
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
watch();
