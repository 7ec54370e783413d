/* The plot of `bench kernels --plot`, and the measurement of a kernel. */
#include "bench/kernels_ops.h"
#include "bench/roofline.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the plot ---- */

struct label {
	double x, y, w;
};

/* Read the labels of points from the SVG, in its units. */
static int labels_of(const char *svg, struct label *out, int most)
{
	int n = 0;
	for (const char *p = svg; (p = strstr(p, "<text class=\"rows")) && n < most; p++) {
		char text[32];
		unsigned colour;
		cr_assert_eq(
			sscanf(p,
			       "<text class=\"rows c%u\" x=\"%lf\" y=\"%lf\" text-anchor=\"middle\">%31[^<]",
			       &colour, &out[n].x, &out[n].y, text),
			4, "%.80s", p);
		out[n++].w = 6 * (double)strlen(text);
	}
	return n;
}

static struct roofline crowd(struct roofline_point *points, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		points[i] = (struct roofline_point){.intensity = 1 + (double)(i % 7) * 0.1,
						    .gops = 20 + (double)(i / 7),
						    .colour = i % ROOFLINE_SERIES,
						    .shape = i % ROOFLINE_SHAPES};
		snprintf(points[i].label, sizeof points[i].label, "%zu", 1 + i * 17);
	}
	return (struct roofline){.title = "roofs <&>",
				 .subtitle = "a machine",
				 .read_gbs = 30,
				 .roofs = {{"FP32 FMA", 400}, {"INT8, AMX", 12000}},
				 .n_roofs = 2,
				 .colours = {"f32"},
				 .shapes = {"layers"},
				 .points = points,
				 .n_points = n};
}

Test(roofline, labels_do_not_touch_each_other_and_stay_within_the_frame)
{
	enum { N = 70 };
	struct roofline_point points[N];
	struct label l[N];
	struct buf out = {0};
	const struct roofline r = crowd(points, N);
	roofline_svg(&r, &out);
	const int n = labels_of(out.p, l, N);
	cr_expect(n > 3 && n < N, "%d labels: some have no room", n);
	for (int i = 0; i < n; i++) {
		cr_expect(l[i].x > 76 && l[i].x < 800 && l[i].y > 66 && l[i].y < 566);
		for (int j = 0; j < i; j++)
			cr_expect(fabs(l[i].x - l[j].x) >= (l[i].w + l[j].w) / 2 ||
					  fabs(l[i].y - l[j].y) >= 10,
				  "%g,%g and %g,%g", l[i].x, l[i].y, l[j].x, l[j].y);
	}
	buf_fini(&out);
}

Test(roofline, names_its_roofs_and_has_colours_for_light_and_dark)
{
	struct roofline_point points[2];
	struct buf out = {0};
	const struct roofline r = crowd(points, 2);
	roofline_svg(&r, &out);
	cr_expect(strstr(out.p, "roofs &lt;&amp;>"));
	cr_expect(strstr(out.p, "memory: 30 GB/s"));
	cr_expect(strstr(out.p, "FP32 FMA: 400 G/s"));
	cr_expect(strstr(out.p, "INT8, AMX: 12 T/s"));
	cr_expect(strstr(out.p, "prefers-color-scheme:dark"));
	buf_fini(&out);
}

Test(roofline, points_that_have_no_place_on_log_axes_are_left_out)
{
	const struct roofline_point points[] = {{.intensity = 0, .gops = 1, .label = "a"},
						{.intensity = 1, .gops = NAN, .label = "b"},
						{.intensity = INFINITY, .gops = 1, .label = "c"},
						{.intensity = 2, .gops = 3, .label = "d"}};
	struct label l[4];
	struct buf out = {0};
	roofline_svg(&(struct roofline){.title = "", .subtitle = "", .points = points, .n_points = 4}, &out);
	cr_expect_eq(labels_of(out.p, l, 4), 1);
	cr_expect_not(strstr(out.p, "nan") || strstr(out.p, "inf"), "%s", out.p);
	buf_fini(&out);
}

/* ---- a measurement ---- */

Test(kernels, the_peak_is_that_of_the_instruction_that_the_mode_runs_on)
{
	cr_expect_eq(kernels_peak_of("f32"), PROBE_F32);
	cr_expect_eq(kernels_peak_of("int8 by amx"), PROBE_INT8_AMX);
	cr_expect_eq(kernels_peak_of("int16 by avx512vnni head-int8"), PROBE_INT8_VNNI);
	cr_expect_eq(kernels_peak_of("int8 by avxvnni"), PROBE_INT8_AVXVNNI);
	cr_expect_eq(kernels_peak_of("int8 by avx2"), PROBE_INT8_AVX2);
	cr_expect_eq(kernels_peak_of("bf16 by amx"), PROBE_BF16_AMX);
	cr_expect_eq(kernels_peak_of("int8 by plain"), PROBE_KINDS);
}

Test(kernels, attention_is_held_against_the_instruction_of_its_mode_and_type)
{
	double part;
	cr_expect_eq(kernels_attention_peak("avx512", KERN_KV_F32, false, &part), PROBE_F32);
	cr_expect_eq(part, 1);
	cr_expect_eq(kernels_attention_peak("plain", KERN_KV_INT8, false, &part), PROBE_KINDS);
	cr_expect_eq(part, 0.5);
	cr_expect_eq(kernels_attention_peak("avx512", KERN_KV_BF16, false, &part), PROBE_F32);
	cr_expect_eq(kernels_attention_peak("avx512", KERN_KV_BF16, true, &part),
		     probe_can(PROBE_BF16_AMX) ? PROBE_BF16_AMX : PROBE_F32);
	cr_expect_eq(kernels_attention_peak("avx512", KERN_KV_F32, true, &part), PROBE_F32);
	cr_expect_eq(part, 1);
	const enum probe_kind k = kernels_attention_peak("avx2", KERN_KV_INT16, false, &part);
	cr_expect(k == PROBE_INT8_AVXVNNI || k == PROBE_INT8_AVX2 || !probe_can(PROBE_INT8_AVX2));
	cr_expect_float_eq(part, 1.0 / 3, 1e-9);
}

static int n_calls, n_syncs;

static int sync_counted(struct kern_stream *s)
{
	(void)s;
	n_syncs++;
	return 0;
}

static void count_call(void *arg, int i)
{
	cr_assert_geq(i, *(int *)arg, "copies are taken in turn");
	*(int *)arg = i;
	for (volatile int k = 0; k < 20000; k++)
		;
	n_calls++;
}

Test(kernels, a_measurement_has_three_pairs_at_least_and_needs_no_probe)
{
	const struct kern_ops ops = {.stream_sync = sync_counted};
	struct kernels_meter m = {.ops = &ops, .seconds = 0};
	struct kernels_point p;
	int last = 0;
	const struct kernels_case c = {.op = "work",
				       .rows = 7,
				       .bytes = 1000,
				       .ops = 4000,
				       .memory = PROBE_READ,
				       .peak = PROBE_F32,
				       .peak_part = 1,
				       .call = count_call,
				       .arg = &last};
	kernels_meter_begin(&m);
	kernels_measure(&m, &c, &p);
	cr_expect_eq(p.pairs, 3);
	cr_expect_eq(p.rows, 7);
	cr_expect_eq(p.intensity, 4);
	cr_expect_eq(p.share, 0);
	cr_expect(p.us > 0 && fabs(p.gops / p.gbs - 4) < 1e-9);
	cr_expect(n_calls > 3 && n_syncs > 3);
	kernels_meter_fini(&m);
}

Test(kernels, beside_a_probe_it_has_a_share_of_its_roof)
{
	const struct kern_ops ops = {.stream_sync = sync_counted};
	struct kernels_meter m = {.ops = &ops, .n_threads = 1};
	struct kernels_point p;
	struct why why;
	int last = 0;
	struct kernels_case c = {.op = "work",
				 .rows = 1,
				 .bytes = 1e3,
				 .memory = PROBE_READ_L2,
				 .peak = PROBE_KINDS,
				 .call = count_call,
				 .arg = &last};
	cr_assert_eq(probe_new(&m.probe, 1, 1 << 20, &why), 0);
	kernels_meter_begin(&m);
	kernels_measure(&m, &c, &p);
	cr_expect(p.share > 0 && p.roof_gbs > 0);
	probe_free(m.probe);
	kernels_meter_fini(&m);
}
