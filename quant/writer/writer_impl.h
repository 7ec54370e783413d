/* writer_impl.h - declarations shared by the writer's files. */
#ifndef QUERN_QUANT_WRITER_WRITER_IMPL_H
#define QUERN_QUANT_WRITER_WRITER_IMPL_H

#include "base/buf.h"
#include "base/err.h"
#include "quant/writer/writer.h"

struct writer_slot {
	char *name;       /* owned */
	const char *type; /* from the format's table */
	uint32_t code;    /* GGUF: enum gguf_type */
	int n_dims;
	int64_t shape[WRITER_DIMS_MAX];
	int64_t n_rows;
	size_t row_bytes;
	int file;     /* index in outs, set by writer_backend.lay_out */
	uint64_t at;  /* offset in that file */
	int64_t done; /* rows written */
};

struct writer_out {
	char *name; /* owned; file name in the temporary directory */
	int fd;
	uint64_t bytes;
	struct buf head; /* first bytes of the file, written last */
};

struct writer {
	const struct writer_backend *backend;
	char *dst, *temp; /* owned */
	int dir_fd;       /* temp, locked; -1: none */
	struct writer_slot *slots;
	size_t n_slots, cap_slots;
	struct writer_out *outs;
	size_t n_outs, cap_outs;
	int64_t shard_bytes;
	struct buf meta; /* GGUF: keys; ak48: the header */
	uint64_t n_meta;
	bool begun;
};

/* An output format. */
struct writer_backend {
	const char *name;
	bool single; /* DST is the file itself, not a directory */
	/* Find a type's code, and the values and bytes of its block.  False: the format lacks the type. */
	bool (*type)(const char *name, const char **own, uint32_t *code, int *values, int *bytes);
	/* Give every slot its file and offset; make the files with their headers. */
	int (*lay_out)(struct writer *w, struct why *why);
};
extern const struct writer_backend writer_safetensors, writer_gguf, writer_ak48;

/* Add a file to the result, empty so far.  Return its index. */
int writer_out_new(struct writer *w, const char *name);

#endif
