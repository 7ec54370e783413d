# Records of help.awk to a manual page.  -v page=quern-serve -v about=... -v version=0.1.0 -v see=...
# pages: the names of all pages, blank-separated; a table of commands refers to those of its rows.
function text(s) {
	gsub(/\\/, "\\\\&", s)
	gsub(/-/, "\\-", s)
	return s ~ /^[.']/ ? "\\&" s : s
}
# Literal words are bold, metavariables ("MODEL", "[PROMPT]", "[options]") are italic.
function synopsis(s,   n, words, i, out) {
	n = split(s, words, " ")
	for (i = 1; i <= n; i++)
		out = out (i > 1 ? " " : "") (words[i] ~ /^\[?[A-Z,.]+\]?$|options/ ? "\\fI" : "\\fB") text(words[i]) "\\fR"
	return out
}
function section(title, body) { if (body != "") printf ".SH %s\n%s", title, body }
BEGIN { FS = "\t" }
$1 == "U" { usage = usage (usage == "" ? "" : ".br\n") synopsis($2) "\n" }
$1 == "D" && $2 == "" { paragraph = description == "" ? "" : ".PP\n" }
$1 == "D" && $2 != "" { description = description paragraph text($2) "\n"; paragraph = "" }
$1 == "C" {
	name = page "-" $2
	at = index(" " pages " ", " " name " ") ? "See \\fB" text(name) "\\fR(1)." : ""
	commands = commands ".TP\n\\fB" text($2) "\\fR" ($3 == "" ? "" : " " synopsis($3)) "\n" text($4) ".\n" at "\n"
}
$1 == "O" {
	options = options ".TP\n" ($2 == "" ? "" : "\\fB\\-" $2 "\\fR, ") "\\fB\\-\\-" text($3) "\\fR" \
		($4 == "" ? "" : " \\fI" text($4) "\\fR") "\n" text($5) "\n"
}
$1 == "E" { examples = examples text($2) "\n" }
END {
	printf ".TH %s 1 \"\" \"quern %s\" \"quern\"\n.nh\n.ad l\n", toupper(page), version
	section("NAME", text(page) " \\- " text(about) "\n")
	section("SYNOPSIS", usage)
	section("DESCRIPTION", description)
	section("COMMANDS", commands)
	section("OPTIONS", options)
	section("EXAMPLES", examples == "" ? "" : ".nf\n" examples ".fi\n")
	section("EXIT STATUS", "0 for success, 1 for a failure, reported in one line on stderr, 2 for wrong usage.\n")
	section("SEE ALSO", see "\n")
}
