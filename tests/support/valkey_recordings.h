/* valkey_recordings: the filters of valkey-bloom in tests/golden/valkeybloom, each a folder, and values that no reader
 * may take. */
#pragma once

#include "golden.h"

#define VALKEY_GOLDEN BLOOMERY_GOLDEN_DIR "/valkeybloom"

static const char *const VALKEY_FILTERS[] = {
    "01_tiny_cap1",       "02_default_add",   "03_empty_filter",       "04_half_nonscaling", "06_exp1",
    "08_nonscaling_full", "09_tightening085", "10_fixed_seed_config",  "12_seed_is_fixed",   "13_binary_items",
    "15_only_empty_item", "17_100k",          "19_exp1_cap1_40layers", "20_seed_zero_k1",
};
#define VALKEY_NFILTERS (sizeof(VALKEY_FILTERS) / sizeof(*VALKEY_FILTERS))

/* A hostile value, and a word of the reason for which it is refused; NULL: it is a filter. Those below `LOADS` are
 * results of DUMP, the others payloads of BF.LOAD. */
struct valkey_hostile {
    const char *file, *reason;
    bool refused_as_filter; /* its fields may be what they say, but no filter of valkey-bloom has such layers */
};

static const struct valkey_hostile VALKEY_HOSTILE[] = {
    {"01_restore_valid", NULL},
    {"02_restore_no_layers", "number of layers: 0"},
    {"03_restore_layers_2pow40", "number of layers: 1099511627776"},
    {"04_restore_layers_one_less", "layer 0: the number of items: opcode 5"},
    {"05_restore_expansion_2pow32", "expansion: 4294967298"},
    {"06_restore_rate_nan", "error rate nan"},
    {"07_restore_rate_2", "error rate 2"},
    {"08_restore_tightening_2", "tightening ratio 2"},
    {"09_restore_tightening_nan", "tightening ratio nan"},
    {"10_restore_blob_short", "layer 0: bits"},
    {"11_restore_blob_len_lies", "layer 0: length of the bits"},
    {"12_restore_blob_version_2", "layer 0: version of the bits: 2"},
    {"13_restore_k_zero", "layer 0: number of hashes: 0"},
    {"14_restore_k_max_ones", "layer 0: number of hashes: 4294967295"},
    {"15_restore_bits_none", "layer 0: bits"},
    {"16_restore_capacity_zero", "layer 0: capacity: 0"},
    {"17_restore_capacity_negative", "layer 0: capacity: 18446744073709551615"},
    {"18_restore_items_over_capacity", "layer 0: number of items: 100"},
    {"19_restore_items_2pow63", "layer 0: number of items: 9223372036854775808"},
    {"20_restore_seeds_differ", "layer 1: seed"},
    {"21_restore_fixed_flag_other_seed", "layer 0: seed"},
    {"22_restore_capacity_no_match", NULL, true},
    {"23_restore_encver_2", "encoding version 2"},
    {"24_restore_no_end", "the end of the value"},
    {"25_restore_items_missing", "layer 0: the number of items"},
    {"26_restore_capacity_chain", "layer 1: capacity"},
    {"27_load_valid", NULL},
    {"28_load_no_layers", "number of layers: 0"},
    {"29_load_layers_2pow61", "number of layers: 2305843009213693952"},
    {"30_load_blob_len_2pow62", "layer 0: bits: a string"},
    {"31_load_bool_2", "random seed: 2"},
    {"32_load_k_max_ones", "layer 0: number of hashes: 4294967295"},
    {"33_load_bits_none", "layer 0: bits"},
    {"34_load_capacity_negative", "layer 0: capacity"},
    {"35_load_items_negative", "layer 0: number of items"},
    {"36_load_sum_overflow", "layer 1: capacity"},
    {"37_load_fixed_flag_other_seed", "layer 0: seed"},
    {"38_load_expansion1_tight", NULL},
};
#define VALKEY_NHOSTILE     (sizeof(VALKEY_HOSTILE) / sizeof(*VALKEY_HOSTILE))
#define VALKEY_HOSTILE_LOAD 26 /* from here on they are payloads of BF.LOAD */

static inline unsigned char *valkey_hostile_file(const struct valkey_hostile *hostile, size_t *len_out)
{
    return golden_file(len_out, "%s/hostile/%s.bin", VALKEY_GOLDEN, hostile->file);
}
