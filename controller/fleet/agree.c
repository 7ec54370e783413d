#include "controller/fleet/agree.h"

#include <stdio.h>
#include <string.h>

/* A mode that workers know; of any other word, the one that all devices have. */
static const char *known(const char *mode)
{
	static const char *const modes[] = {"bf16", "int16", "int8"};
	for (int i = 0; i < 3; i++)
		if (strcmp(mode, modes[i]) == 0)
			return modes[i];
	return "f32";
}

const char *agree_compute(struct agree *a, const char *wanted, const char *device, const char *own,
			  bool *first)
{
	*first = false;
	if (strcmp(wanted, "auto") != 0)
		return wanted;
	const int length = (int)strcspn(device, ":");
	char kind[sizeof a->kinds[0].kind];
	snprintf(kind, sizeof kind, "%.*s", length, device);
	for (int i = 0; i < a->n; i++)
		if (strcmp(a->kinds[i].kind, kind) == 0)
			return a->kinds[i].mode;
	if (a->n == AGREE_KINDS)
		return wanted;
	*first = true;
	memcpy(a->kinds[a->n].kind, kind, sizeof kind);
	snprintf(a->kinds[a->n].mode, sizeof a->kinds[a->n].mode, "%s", known(own));
	return a->kinds[a->n++].mode;
}
