/* For a chat with reasoning, stop strings and stop tokens count after the reasoning. */
#include "base/alloc.h"
#include "controller/jobs/output.h"
#include "controller/jobs/record.h"
#include "tests/demo_service.h"

#include <stdlib.h>

static struct demo demo;

static void begin(void)
{
	demo_open(&demo);
}

static void end_all(void)
{
	demo_close(&demo);
}

TestSuite(thought_stops, .init = begin, .fini = end_all, .timeout = 60);

struct about {
	bool open;
	const struct reasoning_marks *marks; /* NULL: stops count from the beginning of the output */
	uint32_t late;                       /* a stop token; 0: none */
};

/* Return the text of an output with the tokens of `says`, ended by the model. */
static char *text_of(const char *says, char *stop, const struct about *a, enum finish *finish)
{
	struct token_ids ids = {0};
	struct why why;
	cr_assert_eq(tokenizer_encode(demo.tokenizer, says, strlen(says), 0, NULL, 0, &ids, &why), 0, "%s",
		     why.text);
	struct output_rules r = {.tokenizer = demo.tokenizer,
				 .stop = &stop,
				 .stops = stop ? stops_new(&stop, 1) : NULL,
				 .reasoning = a->marks,
				 .reasoning_open = a->open,
				 .late_stop_ids = &a->late,
				 .n_late_stop_ids = a->late != 0};
	struct output o;
	struct buf shown = {0};
	output_init(&o, 0, &r);
	for (size_t i = 0; i < ids.n && o.finish == FINISH_NONE; i++) {
		output_push(&o, &r, &(struct engine_token){.token = ids.ids[i]}, NULL, NULL);
		/* Shown text is never withdrawn. */
		cr_assert_geq(o.shown, shown.len, "%s: token %zu", says, i);
		cr_assert_eq(memcmp(shown.p ? shown.p : "", o.text.p, shown.len), 0);
		buf_put(&shown, o.text.p + shown.len, o.shown - shown.len);
	}
	output_end(&o, &r, FINISH_LENGTH, -1);
	*finish = o.finish;
	char *text = strndup(o.text.p ? o.text.p : "", o.text.len);
	output_fini(&o);
	stops_free((struct stops *)r.stops);
	token_ids_fini(&ids);
	buf_fini(&shown);
	return text;
}

static void check(const char *says, const char *stop, const struct about *a, const char *text, bool stopped)
{
	enum finish finish;
	char *copy = stop ? strdup(stop) : NULL, *got = text_of(says, copy, a, &finish);
	cr_expect_str_eq(got, text, "\"%s\" with stop \"%s\": \"%s\"", says, stop ? stop : "", got);
	cr_expect_eq(finish, stopped ? FINISH_STOP : FINISH_LENGTH, "\"%s\": finish %d", says, (int)finish);
	free(got);
	free(copy);
}

static const struct about may = {.marks = &reasoning_usual},
			  open_ = {.open = true, .marks = &reasoning_usual}, plain = {0};

Test(thought_stops, a_stop_within_the_thought_does_not_count)
{
	check("<think>\nA dog END.\n</think>\n\nYes END no", "END", &may,
	      "<think>\nA dog END.\n</think>\n\nYes ", true);
	check("A dog END.\n</think>\n\nYes END no", "END", &open_, "A dog END.\n</think>\n\nYes ", true);
	check("<think>\nA dog END.\n</think>\n\nYes.", "END", &may, "<think>\nA dog END.\n</think>\n\nYes.",
	      false);
	check("<think>\nA dog END and on", "END", &may, "<think>\nA dog END and on", false);
	check("<think>\nA dog END.\n</think>\n\nYes END no", "END", &plain, "<think>\nA dog ", true);
}

Test(thought_stops, an_answer_without_a_thought_is_cut_from_its_first_byte)
{
	check("END at once", "END", &may, "", true);
	check("Yes END no", "END", &may, "Yes ", true);
	check("<thin END", "<thin", &may, "", true);
	check("  <think", "<think", &may, "  ", true);
	check("<thi", "<thi", &may, "", true);
}

Test(thought_stops, a_stop_does_not_reach_over_the_end_of_the_thought)
{
	check("a END.\n</think>\n\nYes", "END.\n</think>", &open_, "a END.\n</think>\n\nYes", false);
	check("a EN\n</think>\n\nD then END.", "END", &open_, "a EN\n</think>\n\nD then ", true);
	check("a </think> </think> b", "</think>", &open_, "a </think> ", true);
}

Test(thought_stops, messages_of_channels)
{
	const struct about harmony = {.marks = reasoning_marks_named("harmony")};
	cr_assert(harmony.marks && harmony.marks->channels);
	check("<|channel|>analysis<|message|>Hm END.<|end|><|start|>assistant<|channel|>final<|message|>Yes "
	      "END no",
	      "END", &harmony,
	      "<|channel|>analysis<|message|>Hm END.<|end|><|start|>assistant<|channel|>final<|message|>Yes ",
	      true);
}

Test(thought_stops, stop_tokens_count_from_the_end_of_the_thought)
{
	struct token_ids ids = {0};
	struct why why;
	struct about a = {.open = true, .marks = &reasoning_usual};
	cr_assert_eq(tokenizer_encode(demo.tokenizer, " dog", 4, 0, NULL, 0, &ids, &why), 0);
	cr_assert_eq(ids.n, 1, "the test needs a word of one token");
	a.late = ids.ids[0];
	token_ids_fini(&ids);
	check("a dog ran.\n</think>\n\nThe dog ran", NULL, &a, "a dog ran.\n</think>\n\nThe", true);
	check("a dog ran.", NULL, &a, "a dog ran.", false);
}

Test(thought_stops, a_journal_keeps_them)
{
	struct submit s = {.reasoning = SUBMIT_REASONING_OPEN,
			   .late_stop_ids = (uint32_t[]){7, 9},
			   .n_late_stop_ids = 2};
	struct submit *got = NULL;
	struct buf b = {0};
	struct cursor c;
	struct why why = {""};
	params_init(&s.params);
	s.tokens = (uint32_t[]){1};
	s.n_tokens = 1;
	s.params.max_tokens = 3;
	record_put_request(&b, &s, 1, 1);
	cursor_init(&c, b.p, b.len);
	cr_assert_eq(record_get_request(&c, 100, 1, 1, &got, &why), 0, "%s", why.text);
	cr_expect_eq(got->reasoning, SUBMIT_REASONING_OPEN);
	cr_expect(got->n_late_stop_ids == 2 && got->late_stop_ids[1] == 9);
	submit_free(got);
	buf_fini(&b);
}
