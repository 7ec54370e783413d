#include "tests/gpu/references.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "quern references 1\n";

int references_begin(FILE *f, bool write)
{
	char line[sizeof first_line] = "";
	if (write)
		return fputs(first_line, f) < 0 ? -EIO : 0;
	return fgets(line, sizeof line, f) && !strcmp(line, first_line) ? 0 : -EINVAL;
}

/* Round to the nearest value whose lowest byte is 0; infinities and NaN stay. */
static uint32_t rounded(uint32_t bits)
{
	return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x80) & ~(uint32_t)0xff;
}

int references_write(FILE *f, const char *name, const float *values, size_t n, bool whole)
{
	const uint32_t count = (uint32_t)n;
	const unsigned char width = whole ? 4 : 3;
	unsigned char *plane = xmalloc(n + 1);
	fwrite(name, 1, strlen(name) + 1, f);
	fwrite(&count, sizeof count, 1, f);
	fwrite(&width, 1, 1, f);
	for (int byte = 3; byte >= 4 - width; byte--) {
		for (size_t i = 0; i < n; i++) {
			uint32_t bits;
			memcpy(&bits, &values[i], sizeof bits);
			plane[i] = (unsigned char)((whole ? bits : rounded(bits)) >> 8 * byte);
		}
		fwrite(plane, 1, n, f);
	}
	free(plane);
	return ferror(f) ? -EIO : 0;
}

int references_read(FILE *f, const char *name, float *values, size_t n, bool whole)
{
	uint32_t count = 0, *bits = xcalloc(n + 1, sizeof *bits);
	unsigned char width = 0, *plane = xmalloc(n + 1);
	int rc = 0;
	for (const char *p = name; !rc && p <= name + strlen(name); p++) {
		const int c = getc(f);
		rc = c == EOF ? -EIO : c != (unsigned char)*p ? -EINVAL : 0;
	}
	if (!rc && (fread(&count, sizeof count, 1, f) != 1 || fread(&width, 1, 1, f) != 1))
		rc = -EIO;
	if (!rc && (count != n || width != (whole ? 4 : 3)))
		rc = -EINVAL;
	for (int byte = 3; !rc && byte >= 4 - width; byte--) {
		if (fread(plane, 1, n, f) != n)
			rc = -EIO;
		for (size_t i = 0; i < n && !rc; i++)
			bits[i] |= (uint32_t)plane[i] << 8 * byte;
	}
	if (!rc)
		memcpy(values, bits, n * sizeof *bits);
	free(bits);
	free(plane);
	return rc;
}
