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
			  bool loaded, bool *first)
{
	*first = false;
	if (strcmp(wanted, "auto") != 0)
		return wanted;
	const int length = (int)strcspn(device, ":");
	char kind[sizeof a->kinds[0].kind];
	snprintf(kind, sizeof kind, "%.*s", length, device);
	int i = 0;
	while (i < a->n && strcmp(a->kinds[i].kind, kind) != 0)
		i++;
	if (i == AGREE_KINDS)
		return wanted;
	*first = i == a->n || (loaded && !a->kinds[i].loaded && strcmp(a->kinds[i].mode, known(own)) != 0);
	if (*first) {
		memcpy(a->kinds[i].kind, kind, sizeof kind);
		snprintf(a->kinds[i].mode, sizeof a->kinds[i].mode, "%s", known(own));
	}
	a->kinds[i].loaded |= loaded;
	a->n += i == a->n;
	return a->kinds[i].mode;
}
