/* family_impl.h - the rows of the table of families, for family.c, and what rows of both files share. */
#ifndef QUERN_FORMATS_FAMILY_IMPL_H
#define QUERN_FORMATS_FAMILY_IMPL_H

#include "formats/family.h"

/* Families of dense models (family_dense.c), of those that add positions to the rows or scores in place of
 * rotating (family_positions.c), and of mixtures of experts (family_mixtures.c). */
extern const struct family family_dense[], family_positions[], family_mixtures[];
extern const struct family_gguf family_gguf_llama;
extern const size_t family_n_dense, family_n_positions, family_n_mixtures;

#define PRE_NORMS                                                                                            \
	{                                                                                                    \
		[NORM_ATTN] = "input_layernorm", [NORM_FFN] = "post_attention_layernorm"                     \
	}

#define GGUF_PRE                                                                                             \
	{                                                                                                    \
		[NORM_ATTN] = "attn_norm", [NORM_FFN] = "ffn_norm"                                           \
	}
#define POST_NORMS                                                                                           \
	{                                                                                                    \
		[NORM_ATTN_POST] = "post_attention_layernorm", [NORM_FFN_POST] =                             \
								       "post_feedforward_layernorm"          \
	}
#define GRANITE_KEY_LIST                                                                                     \
	{"#embed_scale", "embedding_multiplier"}, {"#residual_scale", "residual_multiplier"},                \
		{"#attn_scale", "attention_multiplier"},                                                     \
	{                                                                                                    \
		"#logit_scale", "logits_scaling", KEY_INVERSE                                                \
	}
#define GRANITE_KEYS                                                                                         \
	{                                                                                                    \
		GRANITE_KEY_LIST                                                                             \
	}
#define HUNYUAN_NAMES                                                                                        \
	{                                                                                                    \
		{PART_Q_NORM, "self_attn.query_layernorm"}, {PART_K_NORM, "self_attn.key_layernorm"},        \
	}
/* The norm before the feed-forward layer has the name of one after attention. */
#define GGUF_NEXT                                                                                            \
	{                                                                                                    \
		[NORM_ATTN] = "attn_norm", [NORM_FFN] = "post_attention_norm"                                \
	}

#endif
