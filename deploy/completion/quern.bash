
# Values of the options that have a fixed set of them.
_quern_choices() {
	case $1 in
	--device) echo "cpu cuda:0" ;;
	--isa) echo "avx512 avx2 plain" ;;
	--log-level) echo "debug info warn error" ;;
	--preempt) echo "swap recompute auto" ;;
	--prefill) echo "mixed separate" ;;
	--reasoning-parser) echo "auto none qwen3 deepseek_r1" ;;
	--tool-parser)
		echo "auto none hermes llama3 pythonic lfm2 qwen3_coder seed_oss minimax_m2 glm45 deepseek_v3" \
			"deepseek_v31 deepseek_v32 kimi_k2 mistral granite phi4 cohere gemma4 apertus" \
			"apriel command_r functionary_v31 firefunction harmony"
		;;
	esac
}

_quern() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]} words=
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		words="$(_quern_commands "") --help --version"
	elif ((COMP_CWORD == 2)) && [[ $command == bench ]]; then
		words="$(_quern_commands bench) --help"
	else
		[[ $command != bench ]] || command="bench ${COMP_WORDS[2]}"
		case $(_quern_value "$command $prev") in
		file)
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
			;;
		text)
			mapfile -t COMPREPLY < <(compgen -W "$(_quern_choices "$prev")" -- "$cur")
			return
			;;
		esac
		if [[ $cur == -* ]]; then
			words="$(_quern_options "$command") --help"
		else
			[[ $command != inspect ]] || words="cpu gpu"
			if _quern_takes_model "$command"; then
				compopt -o filenames 2>/dev/null
				mapfile -t COMPREPLY < <(compgen -d -- "$cur")
			fi
		fi
	fi
	local matching
	mapfile -t matching < <(compgen -W "$words" -- "$cur")
	COMPREPLY+=("${matching[@]}")
}
complete -F _quern quern
