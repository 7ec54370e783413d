// ---- Markdown ----
// A model's text becomes text nodes within a fixed set of elements.  Nothing of it is parsed as HTML, nothing
// of it is loaded, and the only attribute that comes from it is the address of a link, http or https.  Time is
// linear in the text: depth, open delimiters and addresses are bounded.
const MARKDOWN_MAX = 200000;  // longer texts are shown as they are
const MARKDOWN_DEPTH = 8;     // of lists and quotes in each other
const DELIMITERS_MAX = 32;    // open at a time: bounds the depth of emphasis
const COLUMNS_MAX = 64;       // of a table

const indentOf = (line) => line.length - line.trimStart().length;
const isRule = (line) => /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/.test(line);
const fenceOf = (line) => /^ {0,3}(`{3,}|~{3,})([^`]*)$/.exec(line);
const headingOf = (line) => /^ {0,3}(#{1,6})(?=[ \t]|$)/.exec(line);
const itemOf = (line) => isRule(line) ? null : /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/.exec(line);
const isQuote = (line) => /^ {0,3}>/.test(line);
const isBlank = (line) => !line.trim();
const isDelimiterRow = (line) => line.includes("-") && /^\|?(?:[ \t]*:?-+:?[ \t]*(?:\||$))+$/.test(line.trim());

// Lines are an item's if they are indented as its text is, or nearly: models are careless there.
function itemEnd(lines, at, marker) {
  const least = Math.min(marker[0].length, marker[1].length + 2);
  let end = at + 1, blank = false;
  for (let i = at + 1; i < lines.length; i++) {
    const line = lines[i];
    if (isBlank(line)) { blank = true; continue; }
    const inside = indentOf(line) >= least;
    if (!inside && (blank || itemOf(line) || starts(line))) break;
    end = i + 1;
    blank = false;
  }
  return end;
}
function starts(line) { return fenceOf(line) || headingOf(line) || isQuote(line) || isRule(line); }
function fenceEnd(lines, at, fence) {
  const mark = fence[1];
  for (let i = at + 1; i < lines.length; i++) {
    const line = lines[i].trim();
    if (line.length >= mark.length && line[0] === mark[0] && line === mark[0].repeat(line.length) && indentOf(lines[i]) < 4) return i;
  }
  return lines.length;
}

// The blocks of the lines: {kind, at, end, ...}, with the lines' numbers.
function blocksOf(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    const line = lines[i], nests = depth < MARKDOWN_DEPTH;
    let m;
    if (isBlank(line)) { i++; continue; }
    const block = { at: i };
    if ((m = fenceOf(line))) {
      const end = fenceEnd(lines, i, m);
      Object.assign(block, { kind: "code", indent: indentOf(line), language: m[2].trim().split(/\s/)[0].slice(0, 40), last: end, end: Math.min(end + 1, lines.length) });
    } else if ((m = headingOf(line))) {
      Object.assign(block, { kind: "heading", level: m[1].length, end: i + 1 });
    } else if (isRule(line)) {
      Object.assign(block, { kind: "rule", end: i + 1 });
    } else if (nests && isQuote(line)) {
      let end = i + 1;
      while (end < lines.length && isQuote(lines[end])) end++;
      Object.assign(block, { kind: "quote", end });
    } else if (nests && (m = itemOf(line)) && m[1].length < 4) {
      const ordered = /\d/.test(m[2]), mark = m[2].slice(-1);
      block.items = [];
      block.end = i;
      for (let at = i; at < lines.length; at = block.end) {
        while (at < lines.length && isBlank(lines[at])) at++;
        const marker = at < lines.length && itemOf(lines[at]);
        if (!marker || marker[1].length >= m[1].length + 4 || marker[2].slice(-1) !== mark) break;
        block.end = itemEnd(lines, at, marker);
        block.items.push({ at, end: block.end, offset: marker[0].length });
      }
      Object.assign(block, { kind: "list", ordered, start: ordered ? parseInt(m[2], 10) : 1 });
    } else if (line.includes("|") && i + 1 < lines.length && isDelimiterRow(lines[i + 1])) {
      let end = i + 2;
      while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end++;
      Object.assign(block, { kind: "table", end });
    } else {
      let end = i + 1;
      while (end < lines.length && !isBlank(lines[end]) && !starts(lines[end]) &&
             !(nests && itemOf(lines[end])) &&
             !(lines[end].includes("|") && end + 1 < lines.length && isDelimiterRow(lines[end + 1]))) end++;
      Object.assign(block, { kind: "text", end });
    }
    out.push(block);
    i = block.end;
  }
  return out;
}

function nodeOf(block, lines, depth) {
  const own = lines.slice(block.at, block.end);
  switch (block.kind) {
  case "code":
    return codeNode(lines.slice(block.at + 1, block.last).map((l) => l.slice(Math.min(block.indent, indentOf(l)))).join("\n"), block.language);
  case "heading": { // the page has its own first two levels
    const text = own[0].trim().slice(block.level).trim(), e = el("h" + Math.min(6, block.level + 2));
    e.append(inline(text.replace(/(?:^|[ \t])#{1,6}$/, "").trim()));
    return e;
  }
  case "rule":
    return el("hr");
  case "quote": {
    const e = el("blockquote");
    addAll(e, nodesOf(own.map((l) => l.replace(/^ {0,3}> ?/, "")), depth + 1));
    return e;
  }
  case "list":
    return listNode(block, lines, depth);
  case "table":
    return tableNode(own);
  default: {
    const e = el("p");
    e.append(inline(own.map((l) => l.trimStart()).join("\n").trimEnd()));
    return e;
  }
  }
}
function addAll(e, nodes) { for (const n of nodes) e.append(n); } // more than a call may have arguments
function nodesOf(lines, depth) { return blocksOf(lines, depth).map((b) => nodeOf(b, lines, depth)); }
function listNode(block, lines, depth) {
  const e = el(block.ordered ? "ol" : "ul");
  if (block.ordered && block.start !== 1) e.start = block.start;
  const loose = block.items.some((it, i) => i + 1 < block.items.length && isBlank(lines[it.end]));
  for (const it of block.items) {
    const own = lines.slice(it.at, it.end).map((l, i) => l.slice(i ? Math.min(it.offset, indentOf(l)) : it.offset)), li = el("li");
    const task = /^\[([ xX])\] /.exec(own[0]);
    if (task) own[0] = (task[1] === " " ? "☐ " : "☑ ") + own[0].slice(4);
    for (const n of nodesOf(own, depth + 1))
      if (!loose && n.tagName === "P") addAll(li, [...n.childNodes]);
      else li.append(n);
    e.append(li);
  }
  return e;
}
function cellsOf(line) {
  const cells = [];
  let cell = "", text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length && cells.length < COLUMNS_MAX; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") { cell += "|"; i++; }
    else if (text[i] === "|") { cells.push(cell.trim()); cell = ""; }
    else cell += text[i];
  }
  if (cell.trim() && cells.length < COLUMNS_MAX) cells.push(cell.trim());
  return cells;
}
function tableNode(lines) {
  const align = cellsOf(lines[1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : ""));
  const row = (line, name) => {
    const tr = el("tr");
    cellsOf(line).forEach((c, i) => {
      const cell = el(name, { className: align[i] || "" });
      cell.append(inline(c));
      tr.append(cell);
    });
    return tr;
  };
  const body = el("tbody");
  addAll(body, lines.slice(2).map((l) => row(l, "td")));
  return el("div", { className: "scroll-x", tabIndex: 0, role: "group", "aria-label": "Table" }, el("table", {}, el("thead", {}, row(lines[0], "th")), body));
}
function codeNode(text, language) {
  const copy = el("button", { type: "button" }, "Copy");
  copy.setAttribute("aria-label", "Copy the code");
  copy.onclick = () => copyText(text, copy);
  return el("div", { className: "code" }, el("div", { className: "code-head" }, el("span", {}, language || "code"), copy),
    el("pre", { tabIndex: 0 }, el("code", {}, text)));
}

// An absolute address of http or https; else null.
function webAddress(text) {
  let u;
  try { u = new URL(text); } catch { return null; }
  return u.protocol === "http:" || u.protocol === "https:" ? u.href : null;
}
function linkNode(address, ...children) {
  return el("a", { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow", referrerPolicy: "no-referrer" }, ...children);
}

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'", "&#39;": "'", "&nbsp;": "\u00a0" };
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const ORDINARY = /[^\\`<[\]!*_~&\nh]+/y;
const ANGLE_LINK = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const BARE_LINK = /https?:\/\/[^\s<>"`[\]]{1,2000}/y;
const DESTINATION = /\([ \t]*(?:<([^<>\n]{1,2000})>|([^\s()<>]{1,2000}(?:\([^\s()]{0,200}\)[^\s()]{0,200})?))(?:[ \t]+(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?[ \t]*\)/y;
const sticky = (regex, text, at) => { regex.lastIndex = at; return regex.exec(text); };

// Whether a run of delimiters may open and close emphasis, by what is before and after it.
function flanks(before, after, char) {
  const space = (c) => !c || /\s/.test(c), mark = (c) => c && /[\p{P}\p{S}]/u.test(c);
  const left = !space(after) && (!mark(after) || space(before) || mark(before));
  const right = !space(before) && (!mark(before) || space(after) || mark(after));
  if (char !== "_") return [left, right];
  return [left && (!right || mark(before)), right && (!left || mark(after))];
}

class Inline {
  constructor(text) {
    this.s = text;
    this.at = 0;
    this.out = document.createDocumentFragment();
    this.plain = "";     // text that has no node yet
    this.open = [];      // delimiters: {node, char, n}; brackets: {node, image, bracket: true}
    this.noTicks = {};   // lengths of backtick runs that do not come again
  }
  text(t) { this.plain += t; }
  flush() {
    if (this.plain) this.out.append(this.plain);
    this.plain = "";
  }
  node(n) { this.flush(); this.out.append(n); return n; }
  push(entry, text) {
    entry.node = this.node(document.createTextNode(text));
    if (this.open.length >= DELIMITERS_MAX) this.open.shift();
    this.open.push(entry);
  }
  // All after a node becomes the content of another.
  wrap(after, e) {
    this.flush();
    while (after.nextSibling) e.append(after.nextSibling);
    this.out.append(e);
  }
  run() {
    const s = this.s;
    while (this.at < s.length) {
      const plain = sticky(ORDINARY, s, this.at);
      if (plain) { this.text(plain[0]); this.at += plain[0].length; continue; }
      const c = s[this.at];
      if (c === "\\") this.escape();
      else if (c === "`") this.code();
      else if (c === "*" || c === "_" || c === "~") this.delimiter(c);
      else if (c === "[") { this.push({ bracket: true }, "["); this.at++; }
      else if (c === "!" && s[this.at + 1] === "[") { this.push({ bracket: true, image: true }, "!["); this.at += 2; }
      else if (c === "]") this.close();
      else if (c === "\n") { this.plain = this.plain.replace(/ {1,9}$/, ""); this.node(el("br")); this.at++; }
      else if (c === "&") this.entity();
      else if (c === "<" || c === "h") this.address(c);
      else { this.text(c); this.at++; }
    }
    this.flush();
    return this.out;
  }
  escape() {
    const next = this.s[this.at + 1];
    if (next && PUNCTUATION.test(next)) { this.text(next); this.at += 2; }
    else { this.text("\\"); this.at++; }
  }
  entity() {
    const end = this.s.indexOf(";", this.at), name = end > 0 && end - this.at < 8 ? this.s.slice(this.at, end + 1) : "";
    const known = Object.hasOwn(ENTITIES, name);
    this.text(known ? ENTITIES[name] : "&");
    this.at += known ? name.length : 1;
  }
  code() {
    const s = this.s, ticks = sticky(/`+/y, s, this.at)[0], n = ticks.length, from = this.at + n;
    for (let at = from; !this.noTicks[n] && (at = s.indexOf("`", at)) >= 0;) {
      const m = sticky(/`+/y, s, at)[0].length;
      if (m === n) {
        let t = s.slice(from, at).replace(/\n/g, " ");
        if (t.length > 2 && t[0] === " " && t.endsWith(" ") && t.trim()) t = t.slice(1, -1);
        this.node(el("code", {}, t));
        this.at = at + n;
        return;
      }
      at += m;
    }
    this.noTicks[n] = true;
    this.text(ticks);
    this.at = from;
  }
  address(c) {
    const s = this.s;
    if (c === "<") {
      const m = sticky(ANGLE_LINK, s, this.at), href = m && webAddress(m[1]);
      if (href) this.node(linkNode(href, m[1]));
      else this.text("<");
      this.at += href ? m[0].length : 1;
      return;
    }
    const m = !/[\p{L}\p{N}]/u.test(s[this.at - 1] || "") && sticky(BARE_LINK, s, this.at);
    let t = m ? m[0] : "";
    for (let last; (last = t.slice(-1)) && (".,;:!?*_~'|".includes(last) || (last === ")" && !t.includes("(")));) t = t.slice(0, -1);
    const href = t && webAddress(t);
    if (href) this.node(linkNode(href, t));
    else this.text("h");
    this.at += href ? t.length : 1;
  }
  // A run of delimiters closes what it can, and the rest of it opens.
  delimiter(char) {
    const s = this.s;
    let n = 1;
    while (s[this.at + n] === char) n++;
    const [opens, closes] = flanks(s[this.at - 1], s[this.at + n], char), run = n;
    this.at += n;
    if (n > 3 || (char === "~" && n !== 2)) { this.text(char.repeat(n)); return; }
    for (let i = this.open.length - 1; closes && n && i >= 0; i--) {
      const o = this.open[i];
      if (o.bracket) break;
      // As CommonMark has it: of runs that both open and close, some pairs do not match.
      if (o.char !== char || (char === "~" ? o.n !== 2 : (o.both || opens) && (o.run + run) % 3 === 0 && (o.run % 3 || run % 3))) continue;
      while (n && o.n) {
        const k = n >= 2 && o.n >= 2 ? 2 : 1;
        this.open.length = i + 1;
        this.wrap(o.node, el(char === "~" ? "del" : k === 2 ? "strong" : "em"));
        o.n -= k;
        n -= k;
        o.node.data = o.node.data.slice(0, o.n);
      }
      if (!o.n) { o.node.remove(); this.open.length = i; }
    }
    if (!n) return;
    if (opens) this.push({ char, n, run, both: closes }, char.repeat(n));
    else this.text(char.repeat(n));
  }
  close() {
    let i = this.open.length - 1;
    while (i >= 0 && !this.open[i].bracket) i--;
    const o = this.open[i], m = o && sticky(DESTINATION, this.s, this.at + 1), href = m && webAddress(m[1] || m[2]);
    if (!href) {
      if (o) this.open.splice(i, 1);
      this.text("]");
      this.at++;
      return;
    }
    const a = linkNode(href);
    this.open.length = i;
    this.wrap(o.node, a);
    o.node.remove();
    for (const inner of a.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    if (o.image) { // is not loaded
      a.className = "image";
      a.textContent = a.textContent || href;
    } else {
      for (const other of this.open) if (other.bracket && !other.image) other.bracket = false;
      this.open = this.open.filter((x) => x.bracket !== false);
    }
    if (!a.textContent) a.textContent = href;
    this.at += 1 + m[0].length;
  }
}
function inline(text) { return new Inline(text).run(); }

// Tabs that indent become blanks, but not those of code.
function linesOf(text) {
  let fence = null;
  return text.replace(/\r\n?/g, "\n").split("\n").map((line) => {
    if (!fence) line = line.replace(/^[ \t]+/, (t) => t.replace(/\t/g, "    "));
    const m = fenceOf(line.trimStart());
    if (m && !fence) fence = m[1];
    else if (m && m[1].startsWith(fence) && !m[2].trim()) fence = null;
    return line;
  });
}

// A text that grows: blocks that are complete keep their nodes.
class Markdown {
  constructor(e) {
    this.e = e;
    this.shown = []; // sources of the blocks
  }
  show(text) {
    if (text.length > MARKDOWN_MAX) {
      this.shown = [];
      this.e.replaceChildren(el("p", { className: "as-is" }, text));
      return;
    }
    const lines = linesOf(text), blocks = blocksOf(lines, 0);
    const sources = blocks.map((b) => lines.slice(b.at, b.end).join("\n"));
    let same = 0;
    while (same < sources.length && same < this.shown.length && sources[same] === this.shown[same]) same++;
    while (this.e.childNodes.length > same) this.e.lastChild.remove();
    addAll(this.e, blocks.slice(same).map((b) => nodeOf(b, lines, 0)));
    this.shown = sources;
  }
}
