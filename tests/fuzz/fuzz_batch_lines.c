/* A batch's input file of any bytes, in parts: never a crash, lines within the file.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_batch_lines CORPUS */
#include "controller/batch_lines.h"

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
		const char *custom_id, *code, *param;
		const json_t *body;
		json_t *tree;
		char why[200];
		assert(s.lines[i].at >= 0 && (size_t)s.lines[i].at + s.lines[i].n <= n);
		int rc = batch_line_parse(p + s.lines[i].at, s.lines[i].n, "/v1/completions", &tree,
					  &custom_id, &body, &code, &param, why, sizeof why);
		assert(rc == 0 && custom_id[0] && json_is_object(body));
		json_decref(tree);
	}
	batch_scan_fini(&s);
	return 0;
}
