/* make_weights.c - writes a model of real shape with random weights, as fast as memory allows.
 *
 *     gpu_make_weights OUT qwen3-8b|qwen3-0.6b|small awq|f16|bf16
 *
 * It writes what tests/tools/make_model.py writes in minutes with numpy: the directory of a Qwen3 checkout,
 * with values of the same spread and a tokenizer of bytes.  All cores write at once; the name appears when
 * everything is written. */
#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUP = 128, TENSORS_MAX = 2048, THREADS_MAX = 64, TABLE = 1 << 16 };
enum { PIECE = 8 << 20 }; /* bytes that a thread fills at a time */
enum { SPECIAL = 3 };

enum kind { VALUES, WORDS, ZEROS };

struct content {
	enum kind kind;
	double std, mean; /* of VALUES */
};

struct tensor {
	char name[96];
	const char *dtype;
	size_t rows, columns; /* columns 0: a tensor of one dimension */
	size_t at, bytes;
	struct content content;
};

struct shape {
	const char *name;
	int hidden, inter, layers, heads, kv_heads, dim, vocab;
	bool tied;
};

static const struct shape shapes[] = {
	{"qwen3-8b", 4096, 12288, 36, 32, 8, 128, 151936, false},
	{"qwen3-0.6b", 1024, 3072, 28, 16, 8, 128, 151936, true},
	{"small", 128, 256, 2, 4, 2, 64, 640, false},
};

struct model {
	const struct shape *z;
	bool awq, bf16;
	struct tensor tensors[TENSORS_MAX];
	int n;
	size_t bytes;
	char *data; /* the mapped file, after its header */
	atomic_size_t next;
};

static void die(const char *what)
{
	fprintf(stderr, "gpu_make_weights: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the tensors ---- */

static void add(struct model *m, const char *prefix, const char *name, const char *dtype, size_t rows,
		size_t columns, struct content content)
{
	struct tensor *t = &m->tensors[m->n++];
	*t = (struct tensor){.dtype = dtype,
			     .rows = rows,
			     .columns = columns,
			     .at = m->bytes,
			     .bytes = rows * (columns ? columns : 1) * (content.kind == VALUES ? 2 : 4),
			     .content = content};
	snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
	m->bytes += t->bytes;
}

static struct content values(double std, double mean)
{
	return (struct content){VALUES, std, mean};
}

static const char *plain(const struct model *m)
{
	return m->bf16 ? "BF16" : "F16";
}

static void add_linear(struct model *m, const char *prefix, const char *name, int n_out, int n_in,
		       double gain)
{
	char part[64];
	const size_t n = (size_t)n_out, k = (size_t)n_in;
	const double std = gain / sqrt(n_in);
	if (!m->awq) {
		snprintf(part, sizeof part, "%s.weight", name);
		add(m, prefix, part, plain(m), n, k, values(std, 0));
		return;
	}
	snprintf(part, sizeof part, "%s.qweight", name);
	add(m, prefix, part, "I32", k, n / 8, (struct content){.kind = WORDS});
	snprintf(part, sizeof part, "%s.qzeros", name);
	add(m, prefix, part, "I32", k / GROUP, n / 8, (struct content){.kind = ZEROS});
	snprintf(part, sizeof part, "%s.scales", name);
	add(m, prefix, part, "F16", k / GROUP, n, values(0.12 * std / 4.65, std / 4.65));
}

static void add_all(struct model *m)
{
	const struct shape *z = m->z;
	const char *t = plain(m);
	const size_t hidden = (size_t)z->hidden, vocab = (size_t)z->vocab, dim = (size_t)z->dim;
	add(m, "model.", "embed_tokens.weight", t, vocab, hidden, values(z->tied ? 0.35 : 1, 0));
	for (int i = 0; i < z->layers; i++) {
		char p[48];
		snprintf(p, sizeof p, "model.layers.%d.", i);
		add(m, p, "input_layernorm.weight", t, hidden, 0, values(0.1, 1));
		add(m, p, "post_attention_layernorm.weight", t, hidden, 0, values(0.1, 1));
		add(m, p, "self_attn.q_norm.weight", t, dim, 0, values(0.2, 1.5));
		add(m, p, "self_attn.k_norm.weight", t, dim, 0, values(0.2, 1.5));
		add_linear(m, p, "self_attn.q_proj", z->heads * z->dim, z->hidden, 1.5);
		add_linear(m, p, "self_attn.k_proj", z->kv_heads * z->dim, z->hidden, 1.5);
		add_linear(m, p, "self_attn.v_proj", z->kv_heads * z->dim, z->hidden, 1);
		add_linear(m, p, "self_attn.o_proj", z->hidden, z->heads * z->dim, 1);
		add_linear(m, p, "mlp.gate_proj", z->inter, z->hidden, 1);
		add_linear(m, p, "mlp.up_proj", z->inter, z->hidden, 1);
		add_linear(m, p, "mlp.down_proj", z->hidden, z->inter, 1);
	}
	add(m, "model.", "norm.weight", t, hidden, 0, values(0.1, 1));
	if (!z->tied)
		add(m, "", "lm_head.weight", t, vocab, hidden, values(4 / sqrt(z->hidden), 0));
}

/* ---- values ---- */

static uint64_t random64(uint64_t seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

/* Round to a half; values too small for F16 become 0. */
static uint16_t to_half(float f, bool bf16)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if (bf16)
		return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	const int exp = (int)(u >> 23 & 255) - 112;
	const uint32_t sign = u >> 16 & 0x8000;
	return (uint16_t)(exp < 1 ? sign
				  : sign | (((uint32_t)exp << 10 | (u >> 13 & 0x3ff)) + (u >> 12 & 1)));
}

/* Fill bytes [from, to) of the tensor. */
static void fill(const struct model *m, const struct tensor *t, size_t from, size_t to, uint16_t *table)
{
	uint64_t *out = (uint64_t *)(void *)(m->data + t->at);
	const uint64_t seed = (uint64_t)(t - m->tensors) + 1;
	const bool bf16 = !strcmp(t->dtype, "BF16");
	if (t->content.kind == VALUES)
		for (int i = 0; i < TABLE; i++)
			table[i] = to_half((float)(t->content.mean +
						   t->content.std * sqrt(3) * ((i + 0.5) * 2 / TABLE - 1)),
					   bf16);
	for (size_t i = from / 8; i < to / 8; i++) {
		const uint64_t r = random64(seed, i);
		if (t->content.kind == WORDS)
			out[i] = r;
		else if (t->content.kind == ZEROS)
			out[i] = (r & 0x3333333333333333u) + 0x6666666666666666u;
		else
			out[i] = (uint64_t)table[r & 0xffff] | (uint64_t)table[r >> 16 & 0xffff] << 16 |
				 (uint64_t)table[r >> 32 & 0xffff] << 32 | (uint64_t)table[r >> 48] << 48;
	}
}

static void *fill_pieces(void *arg)
{
	struct model *m = arg;
	uint16_t *table = xmalloc(TABLE * sizeof *table);
	size_t pieces = 0;
	int t = 0;
	for (size_t mine = atomic_fetch_add(&m->next, 1);; mine = atomic_fetch_add(&m->next, 1)) {
		for (size_t n; t < m->n && mine >= pieces + (n = (m->tensors[t].bytes + PIECE - 1) / PIECE);
		     t++)
			pieces += n;
		if (t == m->n)
			break;
		const size_t from = (mine - pieces) * PIECE, left = m->tensors[t].bytes - from;
		fill(m, &m->tensors[t], from, from + (left < PIECE ? left : PIECE), table);
	}
	free(table);
	return NULL;
}

static void fill_all(struct model *m)
{
	pthread_t threads[THREADS_MAX];
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int n = 0;
	while (n < THREADS_MAX && n < cores - 1 && !pthread_create(&threads[n], NULL, fill_pieces, m))
		n++;
	fill_pieces(m);
	while (n)
		pthread_join(threads[--n], NULL);
}

/* ---- files ---- */

static FILE *create(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "w");
	if (!f)
		die(path);
	free(path);
	return f;
}

static void finish(FILE *f, const char *what)
{
	if (ferror(f) | fclose(f))
		die(what);
}

static void write_config(const struct model *m, const char *dir)
{
	const struct shape *z = m->z;
	FILE *f = create(dir, "config.json");
	fprintf(f,
		"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": %d, "
		"\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
		"\"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": %d, "
		"\"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, "
		"\"hidden_act\": \"silu\", \"use_sliding_window\": false, \"tie_word_embeddings\": %s, "
		"\"eos_token_id\": %d, \"torch_dtype\": \"%s\"",
		z->hidden, z->inter, z->layers, z->heads, z->kv_heads, z->dim, z->vocab,
		z->tied ? "true" : "false", z->vocab - SPECIAL, m->bf16 ? "bfloat16" : "float16");
	if (m->awq)
		fprintf(f, ", \"quantization_config\": {\"quant_method\": \"awq\", \"version\": \"gemm\", "
			   "\"bits\": 4, "
			   "\"group_size\": 128, \"zero_point\": true, \"modules_to_not_convert\": null}");
	fprintf(f, "}\n");
	finish(f, "config.json");
	f = create(dir, "generation_config.json");
	fprintf(f, "{\"eos_token_id\": %d}\n", z->vocab - SPECIAL);
	finish(f, "generation_config.json");
}

/* Return the letter of a byte in byte-level vocabularies: printable bytes stand for themselves, the others
 * begin at U+0100. */
static unsigned letter(int byte, unsigned *other)
{
	const bool itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
	return itself ? (unsigned)byte : 256 + (*other)++;
}

static void write_tokenizer(const struct model *m, const char *dir)
{
	static const char *const special[SPECIAL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
	static const char level[] =
		"{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
		"\"use_regex\": true}";
	const int first = m->z->vocab - SPECIAL;
	unsigned other = 0;
	FILE *f = create(dir, "tokenizer.json");
	fprintf(f, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
	for (int i = 0; i < SPECIAL; i++)
		fprintf(f,
			"%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
			"\"rstrip\": false, \"normalized\": false, \"special\": true}",
			i ? ", " : "", first + i, special[i]);
	fprintf(f,
		"], \"normalizer\": null, \"pre_tokenizer\": %s, \"post_processor\": null, \"decoder\": %s, "
		"\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
		"\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
		"\"byte_fallback\": false, \"merges\": [], \"vocab\": {",
		level, level);
	for (int b = 0; b < 256; b++)
		fprintf(f, "%s\"\\u%04x\": %d", b ? ", " : "", letter(b, &other), b);
	for (int i = 256; i < first; i++)
		fprintf(f, ", \"\\u0120w%d\": %d", i, i);
	fprintf(f, "}}}\n");
	finish(f, "tokenizer.json");
	f = create(dir, "tokenizer_config.json");
	fprintf(f,
		"{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"%s\", \"bos_token\": "
		"null, "
		"\"add_bos_token\": false, \"clean_up_tokenization_spaces\": false}\n",
		special[0]);
	finish(f, "tokenizer_config.json");
}

static void write_weights(struct model *m, const char *dir)
{
	char *path = file_join(dir, "model.safetensors"), *header;
	size_t n;
	FILE *text = open_memstream(&header, &n);
	fprintf(text, "{\"__metadata__\": {\"format\": \"pt\"}");
	for (int i = 0; i < m->n; i++) {
		const struct tensor *t = &m->tensors[i];
		fprintf(text, ", \"%s\": {\"dtype\": \"%s\", \"shape\": [%zu", t->name, t->dtype, t->rows);
		if (t->columns)
			fprintf(text, ", %zu", t->columns);
		fprintf(text, "], \"data_offsets\": [%zu, %zu]}", t->at, t->at + t->bytes);
	}
	fprintf(text, "}");
	for (long at = ftell(text); (at + 8) % 64; at++)
		fputc(' ', text);
	fclose(text);
	const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	const size_t all = 8 + n + m->bytes;
	const int full = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)all);
	if (full) {
		errno = full;
		die(path);
	}
	char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die(path);
	const uint64_t header_n = n;
	memcpy(map, &header_n, 8);
	memcpy(map + 8, header, n);
	m->data = map + 8 + n;
	fill_all(m);
	munmap(map, all);
	close(fd);
	free(header);
	free(path);
}

int main(int argc, char **argv)
{
	static struct model m;
	char part[4096];
	for (size_t i = 0; argc == 4 && i < sizeof shapes / sizeof *shapes; i++)
		if (!strcmp(argv[2], shapes[i].name))
			m.z = &shapes[i];
	m.awq = argc == 4 && !strcmp(argv[3], "awq");
	m.bf16 = argc == 4 && !strcmp(argv[3], "bf16");
	if (!m.z || !(m.awq || m.bf16 || !strcmp(argv[3], "f16"))) {
		fprintf(stderr, "usage: gpu_make_weights OUT qwen3-8b|qwen3-0.6b|small awq|f16|bf16\n");
		return 2;
	}
	if (snprintf(part, sizeof part, "%s.part", argv[1]) >= (int)sizeof part || mkdir(part, 0755))
		die(part);
	add_all(&m);
	write_config(&m, part);
	write_tokenizer(&m, part);
	write_weights(&m, part);
	if (rename(part, argv[1]))
		die(argv[1]);
	printf("%s: %.1f MB of weights\n", argv[1], (double)m.bytes / 1e6);
	return 0;
}
