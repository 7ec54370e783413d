# Records of help.awk, each behind its command, to the tables of completion/quern.bash.
function add(list, word, between) { return list (list == "" ? "" : between) word }
BEGIN { FS = "\t"; n = 0 }
$2 == "C" { rows[$1] = add(rows[$1], $3, " ") }
$2 == "U" && $3 ~ /MODEL/ { models = add(models, "\"" $1 "\"", "|") }
$2 == "O" {
	if (!($1 in options))
		order[++n] = $1
	options[$1] = add(options[$1], "--" $4 ($3 == "" ? "" : " -" $3), " ")
	if ($5 == "")
		next
	kind = $5 == "FILE" || $5 == "PATH" ? "file" : "text"
	keys[kind] = add(keys[kind], "\"" $1 " --" $4 "\"", "|\\\n\t")
	if ($3 != "")
		keys[kind] = add(keys[kind], "\"" $1 " -" $3 "\"", "|\\\n\t")
}
END {
	print "# Completion of quern for bash, made from its --help."
	print "# Commands of quern (\"\") or of one of its commands."
	printf "_quern_commands() {\n\tcase $1 in\n\t\"\") echo \"%s\" ;;\n\tbench) echo \"%s\" ;;\n\tesac\n}\n", rows[""], rows["bench"]
	print "# Options of a command.\n_quern_options() {\n\tcase $1 in"
	for (i = 1; i <= n; i++)
		printf "\t\"%s\") echo \"%s\" ;;\n", order[i], options[order[i]]
	print "\tesac\n}\n# The value of a command's option: file, text, or nothing for a flag.\n_quern_value() {\n\tcase $1 in"
	printf "\t%s) echo file ;;\n\t%s) echo text ;;\n\tesac\n}\n", keys["file"], keys["text"]
	print "# Does a command take a model's directory?"
	printf "_quern_takes_model() {\n\tcase $1 in\n\t%s) return 0 ;;\n\tesac\n\treturn 1\n}\n", models
}
