/* fuzz_batch_lines.c - arbitrary bytes as a batch's input file that arrives in chunks: lines are within the
 * file.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_batch_lines CORPUS */
#include "formats/batch_lines.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct batch_scan s;
	if (n < 1)
		return 0;
	size_t part = data[0] + 1u;
	const char *p = (const char *)data + 1;
	n--;
	batch_scan_init(&s, "/v1/completions", 100, 1000);
	for (size_t i = 0; i < n; i += part)
		batch_scan_put(&s, p + i, n - i < part ? n - i : part);
	batch_scan_end(&s);
	assert(s.n_lines || json_array_size(s.errors));
	for (uint32_t i = 0; !json_array_size(s.errors) && i < s.n_lines; i++) {
		struct batch_line_request request;
		struct batch_line_problem problem;
		assert(s.lines[i].at >= 0 && (size_t)s.lines[i].at + s.lines[i].n <= n);
		int rc = batch_line_parse(p + s.lines[i].at, s.lines[i].n, "/v1/completions", &request,
					  &problem);
		assert(rc == 0 && request.custom_id[0] && json_is_object(request.body));
		json_decref(request.tree);
	}
	batch_scan_fini(&s);
	return 0;
}
