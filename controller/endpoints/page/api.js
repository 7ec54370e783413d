// ---- the API ----
const keyName = "quern.key";
function headers(more) {
  const key = sessionStorage.getItem(keyName);
  return key ? { ...more, Authorization: "Bearer " + key } : { ...more };
}
let asking = null;
function askKey() { // one dialog for all that are refused at once
  if (!asking) asking = new Promise((resolve) => {
    const d = $("key-dialog");
    $("key-forget").hidden = !sessionStorage.getItem(keyName);
    d.onclose = () => {
      asking = null;
      const ok = d.returnValue === "ok" && $("key").value;
      if (ok) {
        sessionStorage.setItem(keyName, $("key").value);
        live.wake();
      }
      if (d.returnValue === "forget") sessionStorage.removeItem(keyName);
      $("key").value = "";
      $("key-button").hidden = false;
      resolve(Boolean(ok));
    };
    d.returnValue = "";
    d.showModal();
  });
  return asking;
}
$("key-cancel").onclick = () => $("key-dialog").close("cancel");
$("key-forget").onclick = () => $("key-dialog").close("forget");
$("key-button").hidden = !sessionStorage.getItem(keyName);
$("key-button").onclick = async () => {
  const before = sessionStorage.getItem(keyName);
  await askKey();
  if (sessionStorage.getItem(keyName) !== before && live.abort) live.abort.abort(); // the stream begins again, with the other key
};
async function call(path, options) {
  for (;;) {
    const r = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
    if (r.status !== 401 || !(await askKey())) return r;
  }
}
async function reason(r) {
  try { return (await r.json()).error.message; } catch { return "HTTP " + r.status; }
}
async function* events(response, onBytes) { // the data of a text/event-stream
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (onBytes) onBytes();
    rest += decoder.decode(value, { stream: true });
    for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2))
      for (const line of rest.slice(0, at).split("\n"))
        if (line.startsWith("data:")) yield line.slice(5).trimStart();
  }
}

