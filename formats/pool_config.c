#include "formats/pool_config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, MODULES_MAX = 16 };

static void other(struct model_config *c, const char *what)
{
	c->pool = CONFIG_POOL_OTHER;
	snprintf(c->pool_why, sizeof c->pool_why, "%s", what);
}

/* Read the mode.  Exactly one key may be true; several would concatenate vectors. */
static int read_modes(const json_t *o, struct model_config *c, struct why *why)
{
	static const struct {
		const char *key;
		enum config_pool pool;
	} modes[] = {{"pooling_mode_lasttoken", CONFIG_POOL_LAST},
		     {"pooling_mode_mean_tokens", CONFIG_POOL_MEAN},
		     {"pooling_mode_cls_token", CONFIG_POOL_OTHER},
		     {"pooling_mode_max_tokens", CONFIG_POOL_OTHER},
		     {"pooling_mode_mean_sqrt_len_tokens", CONFIG_POOL_OTHER},
		     {"pooling_mode_weightedmean_tokens", CONFIG_POOL_OTHER}};
	const char *mode = NULL;
	int n = 0, rc;
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		bool on = false;
		if ((rc = json_get_bool(o, modes[i].key, &on, why)))
			return rc;
		if (!on)
			continue;
		n++;
		c->pool = modes[i].pool;
		if (modes[i].pool == CONFIG_POOL_OTHER)
			other(c, modes[i].key);
	}
	/* Newer files have the mode by name. */
	if ((rc = json_get_str(o, "pooling_mode", &mode, why)))
		return rc;
	if (mode && n++ == 0) {
		c->pool = strcmp(mode, "lasttoken") == 0 ? CONFIG_POOL_LAST
			  : strcmp(mode, "mean") == 0    ? CONFIG_POOL_MEAN
							 : CONFIG_POOL_OTHER;
		if (c->pool == CONFIG_POOL_OTHER)
			snprintf(c->pool_why, sizeof c->pool_why, "pooling_mode %.60s", mode);
	}
	if (n > 1)
		other(c, "several ways at once");
	return 0;
}

static bool plain_name(const char *path)
{
	return path[0] && path[0] != '.' && !strchr(path, '/');
}

static int read_pooling(const char *dir, const char *sub, struct model_config *c, struct why *why)
{
	json_t *o = NULL;
	if (!plain_name(sub))
		return err_why(why, -EINVAL, "%s/modules.json: \"%.60s\" is not a folder's name", dir, sub);
	char *folder = file_join(dir, sub), *path = file_join(folder, "config.json");
	int rc = json_read(path, FILE_MAX, &o, why);
	if (!rc && (rc = json_is_object(o) ? read_modes(o, c, why) : err_why(why, -EINVAL, "not an object")))
		err_prefix(why, rc, "%s", path);
	json_decref(o);
	free(path);
	free(folder);
	return rc;
}

/* Read a module; its kind is the last component of a type such as "sentence_transformers.models.Pooling". */
static int read_module(const char *dir, const json_t *m, struct model_config *c, bool *normalizes,
		       struct why *why)
{
	const char *type = NULL, *path = "";
	int rc = json_is_object(m) ? 0 : err_why(why, -EINVAL, "not a list of objects");
	if (rc || (rc = json_get_str(m, "type", &type, why)) || (rc = json_get_str(m, "path", &path, why)))
		return err_prefix(why, rc, "%s/modules.json", dir);
	const char *last = type ? strrchr(type, '.') : NULL, *name = last ? last + 1 : type ? type : "";
	if (strcmp(name, "Transformer") == 0)
		return 0;
	if (strcmp(name, "Pooling") == 0)
		return read_pooling(dir, path ? path : "", c, why);
	if (strcmp(name, "Normalize") == 0)
		*normalizes = true;
	else
		snprintf(c->pool_why, sizeof c->pool_why, "a module %.60s", name);
	return 0;
}

int pool_config_read(const char *dir, struct model_config *c, struct why *why)
{
	char *path = file_join(dir, "modules.json");
	json_t *all = NULL;
	bool normalizes = false;
	int rc = 0;
	if (!file_exists(path))
		goto done;
	if ((rc = json_read(path, FILE_MAX, &all, why)))
		goto done;
	if (!json_is_array(all) || json_array_size(all) > MODULES_MAX)
		rc = err_why(why, -EINVAL, "%s: not a list of at most %d modules", path, MODULES_MAX);
	for (size_t i = 0; !rc && i < json_array_size(all); i++)
		rc = read_module(dir, json_array_get(all, i), c, &normalizes, why);
	c->embeds = c->embeds || c->pool != CONFIG_POOL_NONE;
	c->pool_plain = c->embeds && !normalizes;
	if (c->pool_why[0])
		c->pool = CONFIG_POOL_OTHER;
done:
	json_decref(all);
	free(path);
	return rc;
}

void pool_config_gguf(struct model_config *c, int64_t type)
{
	if (type == GGUF_POOL_NONE)
		return;
	c->embeds = type != GGUF_POOL_RANK;
	c->pool = type == GGUF_POOL_MEAN   ? CONFIG_POOL_MEAN
		  : type == GGUF_POOL_LAST ? CONFIG_POOL_LAST
					   : CONFIG_POOL_OTHER;
	if (c->pool == CONFIG_POOL_OTHER)
		snprintf(c->pool_why, sizeof c->pool_why, "pooling_type %lld", (long long)type);
}
