#include "controller/request/checked.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FORMS_MAX = 256 };

struct known {
	struct form *form;
	uint64_t asked; /* value of checked.turn at the last use */
};

struct checked {
	pthread_mutex_t lock;
	size_t max_bytes, bytes; /* total bytes of the forms' texts */
	struct known forms[FORMS_MAX];
	int n_forms;
	uint64_t turn;
	char *key; /* key of the breakers; NULL: none yet */
	size_t key_n;
	int32_t *ids;
	uint32_t n_ids;
};

struct checked *checked_new(size_t form_bytes)
{
	struct checked *c = xcalloc(1, sizeof *c);
	pthread_mutex_init(&c->lock, NULL);
	c->max_bytes = form_bytes;
	return c;
}

void checked_free(struct checked *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n_forms; i++)
		form_free(c->forms[i].form);
	pthread_mutex_destroy(&c->lock);
	free(c->key);
	free(c->ids);
	free(c);
}

static struct known *find_form(struct checked *c, const struct form *f)
{
	for (int i = 0; i < c->n_forms; i++)
		if (form_same(c->forms[i].form, f))
			return &c->forms[i];
	return NULL;
}

struct form *checked_form(struct checked *c, const struct form *f)
{
	struct form *same = NULL;
	if (!c)
		return NULL;
	pthread_mutex_lock(&c->lock);
	struct known *k = find_form(c, f);
	if (k) {
		k->asked = ++c->turn;
		same = form_ref(k->form);
	}
	pthread_mutex_unlock(&c->lock);
	return same;
}

static void drop_oldest(struct checked *c)
{
	int oldest = 0;
	for (int i = 1; i < c->n_forms; i++)
		if (c->forms[i].asked < c->forms[oldest].asked)
			oldest = i;
	c->bytes -= c->forms[oldest].form->n;
	form_free(c->forms[oldest].form);
	c->forms[oldest] = c->forms[--c->n_forms];
}

void checked_keep_form(struct checked *c, struct form *f)
{
	if (!c || f->n > c->max_bytes)
		return;
	pthread_mutex_lock(&c->lock);
	if (!find_form(c, f)) {
		while (c->n_forms && (c->n_forms == FORMS_MAX || c->bytes + f->n > c->max_bytes))
			drop_oldest(c);
		c->forms[c->n_forms++] = (struct known){form_ref(f), ++c->turn};
		c->bytes += f->n;
	}
	pthread_mutex_unlock(&c->lock);
}

bool checked_breakers(struct checked *c, const void *key, size_t key_n, int32_t **ids, uint32_t *n)
{
	if (!c)
		return false;
	pthread_mutex_lock(&c->lock);
	const bool same = c->key && c->key_n == key_n && memcmp(c->key, key, key_n) == 0;
	if (same) {
		*n = c->n_ids;
		*ids = c->n_ids ? xmemdup(c->ids, c->n_ids * sizeof *c->ids) : NULL;
	}
	pthread_mutex_unlock(&c->lock);
	return same;
}

void checked_keep_breakers(struct checked *c, const void *key, size_t key_n, const int32_t *ids, uint32_t n)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	free(c->key);
	free(c->ids);
	c->key = xmemdup(key, key_n);
	c->key_n = key_n;
	c->ids = n ? xmemdup(ids, n * sizeof *ids) : NULL;
	c->n_ids = n;
	pthread_mutex_unlock(&c->lock);
}
