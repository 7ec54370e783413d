#include "worker/inspect/stored.h"

#include "formats/weights.h"

#include <stdio.h>
#include <string.h>

/* Find the tensor of the files that holds the byte at p. */
static bool tensor_of(const struct weights *w, const void *p, struct weights_tensor *t)
{
	const struct weights_files *f = &w->files;
	const char *at = p;
	for (int i = 0; at && i < f->n_tensors; i++) {
		f->tensor(f->at, i, t);
		const char *data = t->data;
		if (at >= data && at < data + t->bytes)
			return true;
	}
	return false;
}

/* Add where weights are stored: the tensor's name, and the row of it with which they begin. */
void stored_add(const struct weights *w, json_t *weight, const char *key, const void *p)
{
	struct weights_tensor t;
	if (!tensor_of(w, p, &t))
		return;
	int64_t n_rows = 1;
	for (int i = 0; i + 1 < t.n_dims; i++)
		n_rows *= t.shape[i];
	const int64_t row =
		((const char *)p - (const char *)t.data) / ((int64_t)t.bytes / (n_rows ? n_rows : 1));
	json_object_set_new(weight, key, json_string(t.name));
	if (row)
		json_object_set_new(weight, "row", json_integer(row));
}

/* Return the type of the codes' tensor in the file, if it says more than the bits: a GGUF type, which also
 * gives the groups, or FP8. */
static void codes_type(const struct weights *w, const struct codes *c, const char *name, char *out, size_t n)
{
	const struct weights_files *f = &w->files;
	const size_t len = strlen(name);
	snprintf(out, n, "%d-bit", c->bits);
	if (c->type)
		snprintf(out, n, "%s", c->type);
	for (int i = 0; !c->type && i < f->n_tensors; i++) {
		struct weights_tensor t;
		f->tensor(f->at, i, &t);
		const char *p = t.data, *at = codes_whole(c)->from[0];
		if (at >= p && at < p + t.bytes) {
			snprintf(out, n, "%s", t.type);
			return;
		}
		if (strncmp(t.name, name, len) == 0 && strcmp(t.name + len, ".weight") == 0 &&
		    strncmp(t.type, "F8_", 3) == 0)
			snprintf(out, n, "%s", t.type);
	}
	if (c->group < c->k)
		snprintf(out + strlen(out), n - strlen(out), " g%d", c->group);
}

static void part_type(const struct weights *w, const struct kern_linear_src *src,
		      const struct kern_linear_part *p, char *out, size_t n)
{
	if (p->dtype == KERN_CODES)
		codes_type(w, p->w, p->name ? p->name : src->name, out, n);
	else if (p->dtype == KERN_AWQ4)
		snprintf(out, n, "AWQ g%d", src->group);
	else
		snprintf(out, n, "%s", p->dtype == KERN_F32 ? "F32" : p->dtype == KERN_F16 ? "F16" : "BF16");
}

int64_t stored_bytes(const struct kern_linear_src *src, const struct kern_linear_part *p)
{
	const int64_t values = (int64_t)p->n * src->k, bias = p->bias_dtype == KERN_F32 ? 4 : 2;
	const int64_t groups = src->group ? (src->k + src->group - 1) / src->group : 0;
	return (p->dtype == KERN_AWQ4 ? values / 2 + groups * p->n / 2 + groups * p->n * 2 : p->bytes) +
	       (p->bias ? bias * p->n : 0);
}

/* Return the name of part i if the file stores it in one tensor with others (Phi-3, gpt-oss); NULL: the
 * tensor's own name is enough. */
static const char *part_of_tensor(const struct kern_linear_src *src, int i)
{
	static const char *const qkv_parts[] = {"q", "k", "v"}, *const gateup_parts[] = {"gate", "up"};
	const char *name = src->parts[i].name, *other = src->parts[i ? 0 : 1].name;
	if (src->n_parts < 2 || !name || !other || strcmp(name, other) != 0)
		return NULL;
	return src->n_parts == 3 ? qkv_parts[i] : gateup_parts[i];
}

json_t *stored_part(const struct weights *w, const struct kern_linear_src *src, int i)
{
	const struct kern_linear_part *p = &src->parts[i];
	char type[64];
	part_type(w, src, p, type, sizeof type);
	json_t *o = json_pack("{s:s, s:s*, s:[i,i], s:s, s:I}", "name", p->name ? p->name : src->name, "part",
			      part_of_tensor(src, i), "shape", p->n, src->k, "type", type, "bytes",
			      (json_int_t)stored_bytes(src, p));
	stored_add(w, o, "tensor", p->dtype == KERN_CODES ? codes_whole(p->w)->from[0] : p->w);
	stored_add(w, o, "bias", p->bias);
	return o;
}

/* Make the name of all experts from the first expert's: replace its number, which is between dots or at the
 * end. */
void stored_all(json_t *weight)
{
	char name[128];
	snprintf(name, sizeof name, "%s", json_string_value(json_object_get(weight, "name")));
	const size_t n = strlen(name);
	char *at = strstr(name, ".experts.0.");
	if (at)
		at[strlen(".experts.")] = '*';
	else if (n > 2 && strcmp(name + n - 2, ".0") == 0)
		name[n - 1] = '*';
	json_object_set_new(weight, "name", json_string(name));
	const char *tensor = json_string_value(json_object_get(weight, "tensor"));
	snprintf(name, sizeof name, "%s", tensor ? tensor : "");
	if ((at = strstr(name, ".experts.0."))) {
		at[strlen(".experts.")] = '*';
		json_object_set_new(weight, "tensor", json_string(name));
	}
}

/* If the second expert is in the tensor of the first, note how many rows lie between them. */
void stored_stack(json_t *first, json_t *second)
{
	const json_t *tensor = json_object_get(first, "tensor");
	const json_int_t step = json_integer_value(json_object_get(second, "row")) -
				json_integer_value(json_object_get(first, "row"));
	if (tensor && json_equal(tensor, json_object_get(second, "tensor")))
		json_object_set_new(first, "row_step", json_integer(step));
	json_decref(second);
}
