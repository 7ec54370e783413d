/* test_options.c - command lines, INI files, sizes, devices. */
#include "base/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const struct opt table[] = {
	OPT("n", OPT_INT, "N", "outputs", .letter = 'n', .lo = 1, .hi = 64),
	OPT("temperature", OPT_NUMBER, "T", "heat"),
	OPT("kv-bytes", OPT_SIZE, "SIZE", "cache"),
	OPT("http", OPT_TEXT, "ADDR", "where"),
	OPT("stop", OPT_LIST, "TEXT", "end"),
	OPT("strict", OPT_FLAG, NULL, "refuse", .letter = 's'),
	OPT("config", OPT_TEXT, "FILE", "file"),
	OPT_NOT_BUILT("durable"),
};

static struct opts o;
static struct why why;

static void set_up(void)
{
	o = (struct opts){0};
	why.text[0] = '\0';
	opts_add(&o, table, sizeof table / sizeof *table);
}

static void tear_down(void)
{
	opts_fini(&o);
}

TestSuite(options, .init = set_up, .fini = tear_down, .timeout = 10);

#define PARSE(...)                                                                                           \
	opts_parse(&o, (int)(sizeof((char *[]){"quern", __VA_ARGS__}) / sizeof(char *)),                     \
		   (char *[]){"quern", __VA_ARGS__}, &why)

static int ini(const char *text)
{
	return opts_ini(&o, text, strlen(text), "serve", &why);
}

Test(options, long_and_short_forms_with_and_without_equals)
{
	cr_assert_eq(PARSE("--http=none", "-n4", "--temperature", "0.5", "-s", "--kv-bytes", "4G"), 0, "%s",
		     why.text);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "none");
	cr_expect_eq(opts_int_or(&o, "n", 1), 4);
	cr_expect_eq(opts_number_or(&o, "temperature", 1), 0.5);
	cr_expect_eq(opts_int_or(&o, "kv-bytes", 0), (int64_t)4 << 30);
	cr_expect(opts_flag(&o, "strict"));
}

Test(options, options_not_given_have_defaults)
{
	cr_assert_eq(PARSE("word"), 0);
	cr_expect_eq(opts_int_or(&o, "n", 7), 7);
	cr_expect_str_eq(opts_text_or(&o, "http", "here"), "here");
	cr_expect_not(opts_flag(&o, "strict"));
}

Test(options, a_row_with_a_default_gives_it_until_a_value_is_given)
{
	static const struct opt rows[] = {
		OPT("max-seqs", OPT_INT, "N", "run N", .lo = 1, .hi = 9, .def = "7"),
		OPT("pool", OPT_SIZE, "SIZE", "keep SIZE", .def = "2K", .unset = "on a GPU more"),
		OPT("rate", OPT_NUMBER, "X", "take X", .def = "0.5"),
		OPT("where", OPT_TEXT, "ADDR", "serve at ADDR", .unset = "here"),
	};
	char *text;
	size_t n;
	opts_add(&o, rows, 4);
	cr_expect_eq(opts_int(&o, "max-seqs"), 7);
	cr_expect_eq(opts_int(&o, "pool"), 2048);
	cr_expect_eq(opts_number(&o, "rate"), 0.5);
	cr_expect_null(opts_text(&o, "where"));
	cr_expect_eq(opts_int(&o, "n"), 0);
	cr_expect_not(opts_has(&o, "max-seqs"));
	cr_assert_eq(PARSE("--max-seqs", "2", "--rate=3"), 0, "%s", why.text);
	cr_expect_eq(opts_int(&o, "max-seqs"), 2);
	cr_expect_eq(opts_number(&o, "rate"), 3);
	FILE *f = open_memstream(&text, &n);
	opts_help(&o, f);
	fclose(f);
	cr_expect(strstr(text, "run N (default 7)\n"), "%s", text);
	cr_expect(strstr(text, "keep SIZE (default 2K, on a GPU more)\n"), "%s", text);
	cr_expect(strstr(text, "serve at ADDR (default here)\n"), "%s", text);
	free(text);
}

Test(options, a_second_default_is_a_bug, .signal = SIGABRT)
{
	static const struct opt row[] = {
		OPT("max-seqs", OPT_INT, "N", "run N", .lo = 1, .hi = 9, .def = "7")};
	cr_redirect_stderr();
	opts_add(&o, row, 1);
	opts_int_or(&o, "max-seqs", 8);
}

Test(options, a_row_names_the_options_of_other_programs)
{
	static const struct opt rows[] = {
		OPT("max-seqs", OPT_INT, "N", "run N", .lo = 1, .hi = 9, .same = "--max-num-seqs -m",
		    .near = "-np --parallel", .note = " N, sequences of a step"),
	};
	opts_add(&o, rows, 1);
	opts_alias(&o, NULL, 0);
	cr_assert_eq(PARSE("--max-num-seqs", "3"), 0, "%s", why.text);
	cr_expect_eq(opts_int(&o, "max-seqs"), 3);
	cr_assert_eq(PARSE("-m", "4"), 0, "%s", why.text);
	cr_expect_eq(opts_int(&o, "max-seqs"), 4);
	cr_expect_eq(PARSE("--parallel", "4"), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option --parallel: quern has --max-seqs N, sequences of a step");
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_PARALLEL=4", NULL}, &why), -EINVAL);
	cr_expect(strstr(why.text, "X_PARALLEL: quern has --max-seqs N"), "%s", why.text);
}

Test(options, arguments_keep_their_order_and_a_lone_dash_is_one)
{
	cr_assert_eq(PARSE("model", "--n", "2", "-", "--", "--http"), 0, "%s", why.text);
	cr_assert_eq(o.n_words, 3);
	cr_expect_str_eq(o.words[0], "model");
	cr_expect_str_eq(o.words[1], "-");
	cr_expect_str_eq(o.words[2], "--http");
}

Test(options, values_may_begin_with_a_dash)
{
	cr_assert_eq(PARSE("--temperature", "-1.5", "--http", "--strict"), 0, "%s", why.text);
	cr_expect_eq(opts_number_or(&o, "temperature", 0), -1.5);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "--strict");
}

Test(options, the_last_of_several_counts_and_lists_grow)
{
	cr_assert_eq(PARSE("-n", "2", "-n", "3", "--stop", "a", "--stop", ""), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 0), 3);
	cr_assert_eq(opts_value(&o, "stop")->n_texts, 2);
	cr_expect_str_eq(opts_value(&o, "stop")->texts[1], "");
}

Test(options, help_has_a_result_of_its_own)
{
	cr_expect_eq(PARSE("--help"), OPTS_HELP);
	cr_expect_eq(PARSE("-h"), OPTS_HELP);
	cr_expect_eq(PARSE("--", "--help"), 0);
}

Test(options, an_option_that_is_not_built_is_named)
{
	cr_expect_eq(PARSE("--durable"), -ENOSYS);
	cr_expect(strstr(why.text, "--durable is not built yet"), "%s", why.text);
}

Test(options, an_unknown_option_gets_the_nearest_name)
{
	cr_expect_eq(PARSE("--temprature", "1"), -EINVAL);
	cr_expect(strstr(why.text, "--temperature"), "%s", why.text);
	cr_expect_eq(PARSE("--nothing-like-it"), -EINVAL);
	cr_expect_not(strstr(why.text, "did you mean"), "%s", why.text);
	cr_expect_eq(PARSE("-x"), -EINVAL);
}

Test(options, bad_values_are_refused_with_the_name)
{
	cr_expect_eq(PARSE("--n", "65"), -EINVAL);
	cr_expect(strstr(why.text, "--n") && strstr(why.text, "64"), "%s", why.text);
	cr_expect_eq(PARSE("--n", "3x"), -EINVAL);
	cr_expect_eq(PARSE("--n", ""), -EINVAL);
	cr_expect_eq(PARSE("--n", "99999999999999999999"), -EINVAL);
	cr_expect_eq(PARSE("--temperature", "nan"), -EINVAL);
	cr_expect_eq(PARSE("--temperature", "hot"), -EINVAL);
	cr_expect_eq(PARSE("--http"), -EINVAL);
	cr_expect_eq(PARSE("--strict=maybe"), -EINVAL);
	cr_expect_eq(PARSE("-sx"), -EINVAL);
	cr_expect_eq(PARSE("-n"), -EINVAL);
}

Test(options, a_file_sets_options_that_the_command_line_does_not)
{
	cr_assert_eq(PARSE("--n", "2"), 0);
	cr_assert_eq(ini("# comment\n; comment\n\n[serve]\r\n n = 8 \nhttp = \"a b \"\nstrict=yes\n"
			 "kv-bytes = 1.5M\nstop = x\nstop = y"),
		     0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 0), 2);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "a b ");
	cr_expect(opts_flag(&o, "strict"));
	cr_expect_eq(opts_int_or(&o, "kv-bytes", 0), 3 << 19);
	cr_expect_eq(opts_value(&o, "stop")->n_texts, 2);
}

Test(options, a_flag_can_be_switched_off_in_a_file)
{
	cr_assert_eq(ini("strict = false\n"), 0, "%s", why.text);
	cr_expect_not(opts_flag(&o, "strict"));
}

Test(options, mistakes_in_a_file_are_named_with_the_line)
{
	cr_expect_eq(ini("n = 1\n\nhtpt = x\n"), -EINVAL);
	cr_expect(strstr(why.text, "line 3") && strstr(why.text, "htpt") && strstr(why.text, "http"), "%s",
		  why.text);
	cr_expect_eq(ini("n 1\n"), -EINVAL);
	cr_expect(strstr(why.text, "line 1"), "%s", why.text);
	cr_expect_eq(ini("temperature = cold\n"), -EINVAL);
	cr_expect(strstr(why.text, "temperature") && !strstr(why.text, "--"), "%s", why.text);
	cr_expect_eq(ini("[other]\n"), -EINVAL);
	cr_expect_eq(ini("[serve\n"), -EINVAL);
	cr_expect_eq(ini("config = more.ini\n"), -EINVAL);
	cr_expect_eq(ini("durable = true\n"), -ENOSYS);
	cr_expect_eq(opts_ini(&o, "n = 1\0\n", 7, "serve", &why), -EINVAL);
}

Test(options, a_missing_file_is_named)
{
	cr_expect_eq(opts_ini_file(&o, "/nowhere/quern.ini", "serve", &why), -ENOENT);
	cr_expect(strstr(why.text, "/nowhere/quern.ini"), "%s", why.text);
}

static int64_t size_of(const char *text)
{
	int64_t n;
	return size_parse(text, &n, &why) ? -1 : n;
}

Test(options, sizes_take_units_of_1024)
{
	cr_expect_eq(size_of("0"), 0);
	cr_expect_eq(size_of("4096"), 4096);
	cr_expect_eq(size_of("512M"), 512 << 20);
	cr_expect_eq(size_of("4g"), (int64_t)4 << 30);
	cr_expect_eq(size_of("2GiB"), (int64_t)2 << 30);
	cr_expect_eq(size_of("2GB"), (int64_t)2 << 30);
	cr_expect_eq(size_of("1.5K"), 1536);
	cr_expect_eq(size_of("100B"), 100);
	cr_expect_eq(size_of("1T"), (int64_t)1 << 40);
}

Test(options, bad_sizes_are_refused)
{
	static const char *const bad[] = {"",     "-1",   "+1",  "M",   "1X",        "1 M", "1MM",
					  "0x10", "1e9",  "inf", "nan", "1..2",      "1M5", "1iB",
					  " 1",   "1Mi2", ".",   "-M",  "99999999T", "1P"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_eq(size_of(bad[i]), -1, "\"%s\"", bad[i]);
}

Test(options, devices_are_named_and_numbered)
{
	struct device_name d[DEVICES_MAX];
	size_t n;
	cr_assert_eq(devices_parse("cpu,cpu:1,cuda,cuda:3", d, &n, &why), 0, "%s", why.text);
	cr_assert_eq(n, 4);
	cr_expect_str_eq(d[0].name, "cpu");
	cr_expect_str_eq(d[1].name, "cpu:1");
	cr_expect_str_eq(d[2].name, "cuda:0");
	cr_expect_str_eq(d[3].name, "cuda:3");
}

Test(options, bad_devices_are_refused)
{
	static const char *const bad[] = {"",
					  "gpu",
					  "cpu:",
					  "cpu:-1",
					  "cpu: 1",
					  "cuda:x",
					  "cpux",
					  "cpu,",
					  ",cpu",
					  "cuda:99999",
					  "cpu:18446744073709551616"};
	struct device_name d[DEVICES_MAX];
	size_t n;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_eq(devices_parse(bad[i], d, &n, &why), -EINVAL, "\"%s\"", bad[i]);
}

Test(options, more_devices_than_any_machine_has_are_refused)
{
	struct device_name d[DEVICES_MAX];
	char list[8 * DEVICES_MAX + 8] = "cpu";
	size_t n;
	for (int i = 0; i < DEVICES_MAX; i++)
		strcat(list, ",cpu");
	cr_expect_eq(devices_parse(list, d, &n, &why), -EINVAL);
}

Test(options, lists_of_integers)
{
	int64_t x[3];
	size_t n;
	cr_assert_eq(ints_parse("1,16,4", 1, 16, x, 3, &n, &why), 0, "%s", why.text);
	cr_assert_eq(n, 3);
	cr_expect_eq(x[1], 16);
	cr_expect_eq(ints_parse("1,17", 1, 16, x, 3, &n, &why), -EINVAL);
	cr_expect_eq(ints_parse("1,2,3,4", 1, 16, x, 3, &n, &why), -EINVAL);
	cr_expect_eq(ints_parse("", 1, 16, x, 3, &n, &why), -EINVAL);
}

Test(options, typos_get_the_nearest_name)
{
	static const char *const names[] = {"serve", "status", "submit"};
	cr_expect_str_eq(nearest_name("serv", names, 3), "serve");
	cr_expect_str_eq(nearest_name("statsu", names, 3), "status");
	cr_expect_str_eq(nearest_name("sbmit", names, 3), "submit");
	cr_expect_null(nearest_name("frobnicate", names, 3));
	cr_expect_null(nearest_name("", names, 3));
}

Test(options, one_option_is_set_and_unset_by_name)
{
	cr_assert_eq(opts_set(&o, "temperature", "0.5", &why), 0, "%s", why.text);
	cr_assert_eq(opts_set(&o, "strict", NULL, &why), 0, "%s", why.text);
	cr_expect_eq(opts_number_or(&o, "temperature", 1), 0.5);
	cr_expect(opts_flag(&o, "strict"));
	cr_expect_eq(opts_set(&o, "temperature", "warm", &why), -EINVAL);
	cr_expect_eq(opts_set(&o, "temperature", NULL, &why), -EINVAL);
	cr_expect(strstr(why.text, "needs a value"), "%s", why.text);
	cr_expect_eq(opts_set(&o, "temprature", "1", &why), -EINVAL);
	cr_expect_eq(opts_number_or(&o, "temperature", 1), 0.5);
	opts_unset(&o, "temperature");
	cr_expect_eq(opts_number_or(&o, "temperature", 1), 1);
}

static const struct opt_alias aliases[] = {
	{.others = "--outputs -no", .name = "n"},
	{.others = "-x", .name = "http"},
	{.others = "-O", .hint = "nothing is compiled"},
	{.others = "--eager", .name = "strict"},
	{.others = "--port", .hint = "here it is --http HOST:PORT"},
	{.others = "--far", .name = "in-no-table"},
};

Test(options, options_of_other_programs_are_aliases_or_answered_with_ours)
{
	opts_alias(&o, aliases, sizeof aliases / sizeof *aliases);
	cr_assert_eq(PARSE("--outputs", "3", "-x", "here", "--eager"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 3);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "here");
	cr_expect(opts_flag(&o, "strict"));
	cr_assert_eq(PARSE("--outputs=4"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 4);
	cr_assert_eq(PARSE("-no", "5"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 5);
	/* Quern's own one-letter option wins over an alias. */
	cr_assert_eq(PARSE("-n6"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 6);
	cr_expect_eq(PARSE("--outputs", "99"), -EINVAL);
	cr_expect(strstr(why.text, "--outputs is \"99\""), "%s", why.text);
	cr_expect_eq(PARSE("--outputs"), -EINVAL);
	cr_expect_eq(PARSE("--port=80"), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option --port: here it is --http HOST:PORT");
	cr_expect_eq(PARSE("-O3"), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option -O: nothing is compiled");
	cr_assert_eq(PARSE("-xthere"), 0, "%s", why.text);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "there");
	cr_expect_eq(PARSE("--far", "1"), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option --far");
	/* A file takes no aliases, but the error suggests the right option. */
	cr_expect_eq(ini("outputs = 3"), -EINVAL);
	cr_expect(strstr(why.text, "did you mean n?"), "%s", why.text);
	cr_expect_eq(ini("port = 3"), -EINVAL);
	cr_expect(strstr(why.text, "--http HOST:PORT"), "%s", why.text);
}

Test(options, the_environment_sets_what_the_command_line_does_not)
{
	char *env[] = {"HOME=/root", "X_N=5", "X_KV_BYTES=1K", "X_STRICT=true", "X_HTTP=",
		       "X_OTHER=1",  "XN=7",  "X_n=8",         "X_NN=9",        NULL};
	cr_assert_eq(PARSE("--kv-bytes", "2K"), 0, "%s", why.text);
	cr_assert_eq(opts_env(&o, "X_", env, &why), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 5);
	cr_expect_eq(opts_int_or(&o, "kv-bytes", 0), 2048);
	cr_expect(opts_flag(&o, "strict"));
	cr_expect_not(opts_has(&o, "http"));
	/* A file has the lowest priority. */
	cr_assert_eq(ini("n = 6\nhttp = there\n"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 1), 5);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "there");
}

Test(options, a_variable_of_another_program_s_option_is_answered_with_ours)
{
	opts_alias(&o, aliases, sizeof aliases / sizeof *aliases);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_PORT=80", NULL}, &why), -EINVAL);
	cr_expect(strstr(why.text, "unknown option X_PORT: ") && strstr(why.text, "--http HOST:PORT"), "%s",
		  why.text);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_OUTPUTS=3", NULL}, &why), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option X_OUTPUTS; did you mean X_N?");
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_EAGER=1", NULL}, &why), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option X_EAGER; did you mean X_STRICT?");
	/* Ignored: empty variables, aliases of absent options, and variables that Kubernetes sets for a
	 * service. */
	cr_expect_eq(opts_env(&o, "X_",
			      (char *[]){"X_PORT=", "X_FAR=1", "X_PORT=tcp://10.0.0.1:80",
					 "X_PORT_80_TCP=tcp://10.0.0.1:80", "X_SERVICE_HOST=10.0.0.1", NULL},
			      &why),
		     0, "%s", why.text);
}

Test(options, a_wrong_variable_is_named)
{
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_N=many", NULL}, &why), -EINVAL);
	cr_expect(strstr(why.text, "X_N is \"many\""), "%s", why.text);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_KV_BYTES=lots", NULL}, &why), -EINVAL);
	cr_expect(strstr(why.text, "X_KV_BYTES"), "%s", why.text);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_STRICT=perhaps", NULL}, &why), -EINVAL);
	cr_expect(strstr(why.text, "X_STRICT"), "%s", why.text);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_DURABLE=1", NULL}, &why), -ENOSYS);
}

static const struct opt_alias taken[] = {
	{.others = "--trust", .values = "", .unless = "strict", .hint = "not needed"},
	{.others = "--mode", .values = "auto hf", .hint = "there is one"},
	{.others = "--any", .values = "*", .hint = "nothing to do"},
	{.others = "-fa", .values = "? on 1", .hint = "always on"},
	{.others = "--amount", .name = "n", .values = "one=1 two=2 half", .hint = "here it is -n"},
	{.others = "--port", .hint = "here it is --http HOST:PORT"},
};

Test(options, what_is_done_anyway_is_taken_and_named)
{
	opts_alias(&o, taken, sizeof taken / sizeof *taken);
	cr_assert_eq(
		PARSE("--trust", "--mode=hf", "--any", "-3", "-fa", "on", "-fa", "word", "--amount", "half"),
		0, "%s", why.text);
	static const char *const want[] = {"--trust: not needed",     "--mode hf: there is one",
					   "--any -3: nothing to do", "-fa on: always on",
					   "-fa: always on",          "--amount half: here it is -n"};
	cr_assert_eq(o.n_taken, 6);
	for (size_t i = 0; i < 6; i++)
		cr_expect_str_eq(o.taken[i].text, want[i]);
	cr_expect(o.n_words == 1 && !strcmp(o.words[0], "word") && !opts_has(&o, "n"));
	cr_assert_eq(PARSE("--amount", "two"), 0, "%s", why.text);
	cr_expect_eq(opts_int_or(&o, "n", 0), 2);
	cr_expect_eq(o.n_taken, 6);
}

Test(options, what_would_not_be_kept_is_refused)
{
	opts_alias(&o, taken, sizeof taken / sizeof *taken);
	cr_expect_eq(PARSE("--mode", "other"), -EINVAL);
	cr_expect_str_eq(why.text, "--mode is \"other\": there is one");
	cr_expect_eq(PARSE("--amount", "three"), -EINVAL);
	cr_expect_str_eq(why.text, "--amount is \"three\": here it is -n");
	cr_expect_eq(PARSE("--amount", "one=1"), -EINVAL);
	cr_expect_eq(PARSE("-fa", "off"), -EINVAL);
	cr_expect_str_eq(why.text, "-fa is \"off\": always on");
	cr_expect_eq(PARSE("--mode="), -EINVAL);
	cr_expect_eq(PARSE("--mode"), -EINVAL);
	cr_expect_str_eq(why.text, "--mode needs a value");
	cr_expect_eq(PARSE("--trust=yes"), -EINVAL);
	cr_expect_str_eq(why.text, "--trust takes no value");
	cr_expect_eq(o.n_taken, 0);
	/* It is refused together with the opposite option, from whatever source. */
	cr_assert_eq(PARSE("--trust"), 0, "%s", why.text);
	cr_expect_eq(opts_check_taken(&o, &why), 0);
	cr_assert_eq(ini("strict = true"), 0, "%s", why.text);
	cr_expect_eq(opts_check_taken(&o, &why), -EINVAL);
	cr_expect_str_eq(why.text, "--trust and --strict: give one of them");
	/* They are refused in a file and in the environment. */
	cr_expect_eq(ini("trust = true"), -EINVAL);
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_AMOUNT=half", NULL}, &why), -EINVAL);
	cr_expect_str_eq(why.text, "unknown option X_AMOUNT: here it is -n");
}

Test(options, all_errors_of_a_command_line_are_reported)
{
	opts_alias(&o, taken, sizeof taken / sizeof *taken);
	cr_expect_eq(
		PARSE("--port", "80", "-n", "99", "--nonsense=3", "-Q", "-5", "--trust", "--kv-bytes", "2K"),
		-EINVAL);
	static const char *const want[] = {"unknown option --port: ", "--n is \"99\"",
					   "unknown option --nonsense", "unknown option -Q"};
	cr_assert_eq(o.n_refused, 4, "%s", why.text);
	for (size_t i = 0; i < 4; i++) {
		cr_expect(!strncmp(o.refused[i], want[i], strlen(want[i])), "%s", o.refused[i]);
		cr_expect(strstr(why.text, o.refused[i]), "%s", why.text);
	}
	/* Valid options still apply. */
	cr_expect_eq(opts_int_or(&o, "kv-bytes", 0), 2048);
	/* The next command line starts without errors; --help wins over errors. */
	cr_expect_eq(PARSE("--nonsense", "--help"), OPTS_HELP);
	cr_expect_eq(PARSE("-n", "3"), 0);
	cr_expect_eq(o.n_refused, 0);
	/* An option not built yet has its own error only if there is no other error. */
	cr_expect_eq(PARSE("--durable"), -ENOSYS);
	cr_expect_eq(PARSE("--durable", "--nonsense"), -EINVAL);
}

Test(options, all_errors_of_the_environment_and_of_a_file_are_reported)
{
	char *env[] = {"X_N=many", "X_KV_BYTES=1K", "X_STRICT=perhaps", "X_N_PORT=1", NULL};
	cr_expect_eq(opts_env(&o, "X_", env, &why), -EINVAL);
	cr_expect(o.n_refused == 2 && strstr(why.text, "X_N is \"many\"") && strstr(why.text, "X_STRICT"),
		  "%s", why.text);
	cr_expect_eq(ini("n = few\nhttp = here\nnonsense = 1\n"), -EINVAL);
	cr_expect(o.n_refused == 2 && strstr(why.text, "line 1: n is") &&
			  strstr(why.text, "; line 3: unknown option"),
		  "%s", why.text);
	cr_expect_str_eq(opts_text_or(&o, "http", ""), "here");
}

/* Kubernetes sets NAME_PORT for a service called NAME. */
Test(options, an_address_is_no_number_of_the_environment)
{
	cr_expect_eq(opts_env(&o, "X_", (char *[]){"X_N=tcp://10.0.0.1:80", NULL}, &why), 0, "%s", why.text);
	cr_expect_not(opts_has(&o, "n"));
}
