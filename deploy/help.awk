# The --help of a program as records, one per line, fields apart by tabs:
#   N  title                    "quern 0.1.0: ...", the line before the usage
#   U  usage                    without "usage: "
#   D  line of the description  empty between paragraphs
#   C  command  words  about    a row of a table of commands
#   O  letter  name  value  text   an option; letter and value may be empty, name is without dashes
#   E  line of an example
function flush() {
	if (option != "")
		print option
	option = ""
}
# "LEFT  RIGHT" to left and right.
function halve(line) {
	sub(/^ +/, "", line)
	i = index(line, "  ")
	left = i ? substr(line, 1, i - 1) : line
	right = i ? substr(line, i) : ""
	sub(/^ +/, "", right)
}
BEGIN { OFS = "\t"; state = "title" }
/^usage: / { sub(/^usage: /, ""); print "U", $0; state = "about"; next }
/^(commands|measures):$/ { state = "commands"; next }
/^options:$/ { next }
/^ +(-[a-zA-Z0-9], )?--[a-z]/ {
	flush()
	state = "options"
	halve($0)
	letter = ""
	if (left ~ /^-[a-zA-Z0-9], /) {
		letter = substr(left, 2, 1)
		left = substr(left, 5)
	}
	sub(/^--/, "", left)
	i = index(left, " ")
	option = "O" OFS letter OFS (i ? substr(left, 1, i - 1) : left) OFS (i ? substr(left, i + 1) : "") OFS right
	next
}
state == "options" && /^            +[^ ]/ { sub(/^ +/, ""); option = option " " $0; next }
state == "commands" && /^  [a-z]/ {
	halve($0)
	i = index(left, " ")
	print "C", (i ? substr(left, 1, i - 1) : left), (i ? substr(left, i + 1) : ""), right
	next
}
state == "commands" { state = "about" }
state == "title" { if ($0 != "") print "N", $0; next }
/^  [a-z]/ { sub(/^ +/, ""); print "E", $0; next }
{ flush(); print "D", $0 }
END { flush() }
