/* bf_request: turns the arguments of a BF.* command into a request, or into the text of the error reply.
 *
 * Options and errors are RedisBloom's where it has them (some of its errors begin with no code; clients know the
 * texts), or, if a host asks for that, valkey-bloom's (bf_valkey.h). This library knows no filter by name: the host
 * looks filters up.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "slice.h"

/* The words of a command. Word 0 is its name; slices are borrowed for the call. */
struct bf_args {
    size_t argc;
    struct slice (*at)(const void *ctx, size_t i); /* i < argc */
    const void *ctx;
    const char *name; /* the command's name in errors about the number of arguments: "bf.insert" */
    bool valkey;      /* under valkey-bloom's contract */
};

static inline struct slice bf_arg(const struct bf_args *args, size_t i)
{
    return args->at(args->ctx, i);
}

/* Values for the options that a command leaves out. */
struct bf_defaults {
    struct bloom_params params; /* of a new filter; `key` is set if all new filters are KEYED and there is a key */
    int64_t now_ms;             /* Unix time, for a TTL */
    bool keyed;                 /* new filters are KEYED */
    uint64_t key;               /* for new KEYED filters; 0: none yet */
    double tightening;          /* for LAYOUT valkey */
    bool fixed_seed;            /* likewise: filters get valkey_fixed_seed */
    bool fresh_seed;            /* `params` lack a seed: bf_draw_seed() */
    uint64_t limit;             /* bytes of a filter; 0: none */
    bool obeys;                 /* a primary or a log says what happened there: VALIDATESCALETO refuses nothing */
};

/* Completes the defaults: new filters are in this layout, unless a command says otherwise. */
void bf_defaults_take(struct bf_defaults *defaults, enum bloom_variant layout);

/* The options that only valkey-bloom has. */
struct bf_valkey_words {
    bool given, seed;  /* one of them; SEED */
    uint64_t scale_to; /* VALIDATESCALETO; 0: not given */
};

/* Before a filter with these parameters is made: gives them a random seed if `fresh`. */
void bf_draw_seed(struct bloom_params *params, bool fresh);

/* The id of a key as text, which is in `out`. */
#define BF_KEY_TEXT 17
const char *bf_key_text(uint64_t key, char out[BF_KEY_TEXT]);

/* Set the whole text of an error reply, and return false. */
bool bf_refuse(struct errbuf *error, const char *text);
bool bf_wrong_arity(const struct bf_args *args, struct errbuf *error);

/* All functions below: true, and *out is filled; or false, and `error` has the whole text of the reply. */

/* BF.RESERVE key rate capacity [EXPANSION n] [NONSCALING] [LAYOUT na|redisbloom|valkey|blocked] [TTL seconds]
 * [WINDOW seconds|ITEMS n [PARTS n] [REFRESH]] [KEYED] */
struct bf_reserve {
    struct bloom_params params;
    bool keyed;          /* without a key in the params: one must be made first */
    bool fresh_seed;     /* bf_draw_seed() */
    int64_t expires_ms;  /* Unix time; 0: never */
    const char *refused; /* the error if there is no filter yet; NULL: it is created */
};
bool bf_read_reserve(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_reserve *out,
                     struct errbuf *error);

/* BF.PLAN rate capacity [EXPANSION n] [NONSCALING] [LAYOUT name] [WINDOW seconds|ITEMS n [PARTS n] [REFRESH]]
 * [ITEMS n] */
struct bf_plan {
    struct bloom_params params;
    uint64_t items; /* in a window; 0: those of the first layer */
};
bool bf_read_plan(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_plan *out,
                  struct errbuf *error);

/* BF.INSERT key [CAPACITY n] [ERROR rate] [EXPANSION n] [LAYOUT na|redisbloom|valkey|blocked] [NOCREATE] [NONSCALING]
 * [TTL seconds] [WINDOW seconds|ITEMS n [PARTS n] [REFRESH]] [KEYED] [OWNER id] [SEED seed]
 * [TIGHTENING ratio] [VALIDATESCALETO capacity] [ITEMS item ...]. Items may be left out under valkey-bloom's contract,
 * and with an option that only it has. */
struct bf_insert {
    struct bloom_params params; /* of a filter that the command creates */
    bool keyed, fresh_seed;     /* as in struct bf_reserve */
    int64_t expires_ms;         /* likewise; 0: never */
    const char *refused;        /* likewise */
    bool no_create;
    bool sized;        /* the command has CAPACITY, ERROR or WINDOW */
    size_t first_item; /* index of the first item among the arguments; their number: there is none */
};
bool bf_read_insert(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_insert *out,
                    struct errbuf *error);

/* The answer to queries of a filter that does not exist. */
enum bf_missing {
    BF_MISSING_DEFAULT = 0, /* the host's setting */
    BF_MISSING_ABSENT,      /* 0 for each item, as RedisBloom does */
    BF_MISSING_NULL,        /* a null for each item */
    BF_MISSING_ERROR,       /* "ERR not found", once */
};

/* BF.QUERY key [MISSING ERROR|NULL|ABSENT] ITEMS item ... */
struct bf_query {
    enum bf_missing missing;
    size_t first_item;
};
bool bf_read_query(const struct bf_args *args, struct bf_query *out, struct errbuf *error);

/* BF.FIND [COUNT] name|pattern [name|pattern ...] ITEMS item [item ...] | KEY key [key ...]. A COUNT in front is the
 * option; a filter with that name, or with the name ITEMS or KEY, is meant by a pattern: [C]OUNT. */
struct bf_find {
    bool count;               /* numbers of filters instead of their names */
    bool keys;                /* the items are texts of partition keys (cql_key.h) */
    size_t first_name, names; /* arguments: patterns as in KEYS, or names, which have none of its special characters */
    size_t first_item, items; /* arguments */
};
bool bf_read_find(const struct bf_args *args, struct bf_find *out, struct errbuf *error);

/* BF.IMPORT key file [VARIANT variant] [CAPACITY capacity] [ERROR rate] [REPLACE] */
struct bf_import {
    struct slice variant; /* "na", "me", "ka", or no bytes: the file's name has it */
    uint64_t capacity;    /* 0: derived from the bits */
    double error_rate;    /* 0: the rate at the capacity */
    bool replace;
};
bool bf_read_import(const struct bf_args *args, struct bf_import *out, struct errbuf *error);

/* BF.FALSEPOSITIVE key [count], 1..UINT32_MAX; 1 without one. */
bool bf_read_false_positives(const struct bf_args *args, uint32_t *count_out, struct errbuf *error);

/* The index of the first argument after the word ITEMS, for a command that has been read without an error. *owner_out:
 * the id after OWNER; no bytes: the command has no OWNER. */
size_t bf_first_item(const struct bf_args *args, struct slice *owner_out);

/* The hashes of bloom_filter_claim(); *mark_out gets the bytes of the owner's mark of the item (docs/FORMAT.md, section
 * 23), for free(). False: no memory. */
bool bf_claim_hashes(const struct bloom_filter *filter, struct slice owner, struct slice item,
                     struct bloom_hash hash_out[2], struct slice *mark_out);
