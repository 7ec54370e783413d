# Records of help.awk, each behind its command, to a completion for zsh.
function quoted(s) {
	gsub(/'/, "'\\''", s)
	gsub(/\[/, "\\[", s)
	gsub(/\]/, "\\]", s)
	gsub(/:/, "\\:", s)
	return s
}
# The case of one command: its options and its model.
function command_case(command, name,   i) {
	printf "\t%s)\n\t\t_arguments -s", name
	for (i = 1; i <= n_specs[command]; i++)
		printf " \\\n\t\t\t%s", specs[command, i]
	printf " \\\n\t\t\t'--help[show the options]'"
	if (command == "inspect")
		printf " \\\n\t\t\t'1:MODEL:_quern_inspected'"
	else if (usage[command] ~ /MODEL/)
		printf " \\\n\t\t\t'1:MODEL:_files -/'"
	print "\n\t\t;;"
}
# A function that completes the name of a command, then what belongs to it.
function dispatcher(name, parent,   i) {
	printf "%s() {\n\tlocal -a commands=(%s\n\t)\n", name, rows[parent]
	print "\tif ((CURRENT == 2)); then\n\t\t_describe command commands\n\t\treturn\n\tfi"
	print "\tshift words\n\t((CURRENT--))\n\tcase $words[1] in"
	for (i = 1; i <= n_commands[parent]; i++)
		if (parent == "" && commands[parent, i] == "bench")
			print "\tbench) _quern_bench ;;"
		else
			command_case(parent (parent == "" ? "" : " ") commands[parent, i], commands[parent, i])
	print "\tesac\n}"
}
BEGIN { FS = "\t" }
$2 == "C" { rows[$1] = rows[$1] "\n\t\t'" $3 ":" quoted($5) "'"; commands[$1, ++n_commands[$1]] = $3 }
$2 == "U" { usage[$1] = $3 }
$2 == "O" {
	value = $5 == "" ? "" : ":" quoted($5) ":" ($5 == "FILE" || $5 == "PATH" ? "_files" : "")
	specs[$1, ++n_specs[$1]] = "'*" ($3 == "" ? "--" $4 : "'{-" $3 ",--" $4 "}'") "[" quoted($6) "]" value "'"
}
END {
	print "#compdef quern\n# Completion of quern for zsh, made from its --help."
	print "_quern_inspected() { _alternative 'devices:device:(cpu gpu)' 'models:model:_files -/' }"
	dispatcher("_quern_bench", "bench")
	dispatcher("_quern", "")
	print "_quern \"$@\""
}
