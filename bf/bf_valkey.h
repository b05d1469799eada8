/* bf_valkey: valkey-bloom's contract, where it differs from RedisBloom's for the same words: the options of a new
 * filter with their order and errors, and numbers of BF.INFO. Its own options (SEED, TIGHTENING, VALIDATESCALETO) are
 * known under both contracts (bf_request.h).
 *
 * Thread: any. */
#pragma once

#include "bf_request.h"

/* bf_read_reserve() and bf_read_insert() under valkey-bloom's contract, of words without options of ours. */
bool bf_valkey_reserve(const struct bf_args *args, struct bloom_params *params, bool *fixed_out, struct errbuf *error);
bool bf_valkey_insert(const struct bf_args *args, struct bf_insert *out, struct bf_valkey_words *words, bool *fixed_out,
                      struct errbuf *error);

/* Whether one of the words from `first` on, up to ITEMS, is an option of ours. */
bool bf_valkey_has_ours(const struct bf_args *args, size_t first);

/* Reads the option at argument *i, if it is one of valkey-bloom's own, and moves *i to its value. False with no error
 * set: it is not one. */
bool bf_valkey_option(const struct bf_args *args, size_t *i, struct bloom_params *params, struct bf_valkey_words *words,
                      struct errbuf *error);

/* After all options: those of the layout follow from the others. *fresh_out: the parameters lack a seed. */
bool bf_valkey_settle(struct bloom_params *params, const struct bf_defaults *defaults,
                      const struct bf_valkey_words *words, bool *fresh_out, struct errbuf *error);

/* Under valkey-bloom's contract, its reason not to make a filter with these parameters; NULL: there is none. */
const char *bf_valkey_refusal(const struct bf_args *args, const struct bloom_params *params,
                              const struct bf_defaults *defaults);

/* The reason why a filter in this layout cannot grow. */
const char *bf_valkey_no_growth(const struct bloom_filter *filter);

/* The memory that valkey-bloom states for such a filter. */
uint64_t bf_valkey_size(const struct bloom_filter *filter);

/* The items that a filter with these parameters can grow to. */
uint64_t bf_valkey_most(const struct bloom_params *params, uint64_t limit);
