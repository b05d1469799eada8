/* config: the settings of the daemon.
 *
 * config.def is the only list of settings, with their names, ranges, defaults and documentation. The fields of struct
 * config, CONFIG GET, the checks of CONFIG SET, `bloomeryd --help` and conf/bloomery.conf are generated from it.
 *
 * A struct config is a plain value. The server publishes an immutable one, which readers use without a lock. To change
 * settings it clones that one, changes the clone with config_set(), checks it as a whole with config_check() and
 * publishes it. No function here has another effect: none opens a file other than the configuration file, none logs.
 *
 * Lifetime: the caller's storage, config_init() or config_clone() to config_deinit(). Thread: any, on distinct objects;
 * any number of threads may read an object that does not change. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "errbuf.h"
#include "resp_parse.h"

/* Addresses as written, each with the '-' that makes it optional. */
struct config_list {
    char **items;
    size_t count;
};

/* Save after `seconds` with at least `changes` changes. */
struct config_rule {
    int64_t seconds;
    uint64_t changes;
};

struct config_rules {
    struct config_rule *items;
    size_t count;
};

enum enable_policy { ENABLE_NO, ENABLE_LOCAL, ENABLE_YES };
/* Limits of the pending reply bytes of a client, by class: a client with more than `hard`, or with more than `soft` for
 * `soft_seconds`, is disconnected. 0: no such limit. */
struct config_output_limit {
    uint64_t hard, soft;
    int64_t soft_seconds;
};

enum config_client_class { CONFIG_CLIENT_NORMAL, CONFIG_CLIENT_REPLICA, CONFIG_CLIENT_PUBSUB, CONFIG_CLIENT_CLASSES };

struct config_output_limits {
    struct config_output_limit classes[CONFIG_CLIENT_CLASSES];
};

/* cluster-preferred-endpoint-type */
enum endpoint_type { ENDPOINT_IP, ENDPOINT_HOSTNAME, ENDPOINT_UNKNOWN };

#define CONFIG_MAX_HOST 255 /* bytes of cluster-announce-hostname */

enum memory_policy { MEMORY_NOEVICTION, MEMORY_RELOAD, MEMORY_MAYBE };
enum quarantine_policy { QUARANTINE_ERROR, QUARANTINE_MAYBE };
enum pubsub_default { PUBSUB_DEFAULT_ALL, PUBSUB_DEFAULT_RESET };
enum bf_layout { BF_LAYOUT_NA, BF_LAYOUT_REDISBLOOM, BF_LAYOUT_VALKEY, BF_LAYOUT_BLOCKED };
enum bf_contract { BF_CONTRACT_REDISBLOOM, BF_CONTRACT_VALKEY };

#define CONFIG_FIELD_BOOL          bool
#define CONFIG_FIELD_INTEGER       int64_t
#define CONFIG_FIELD_BYTES         uint64_t
#define CONFIG_FIELD_RATE          double
#define CONFIG_FIELD_STRING        char *
#define CONFIG_FIELD_PASSWORD      struct slice
#define CONFIG_FIELD_ADDRESSES     struct config_list
#define CONFIG_FIELD_RULES         struct config_rules
#define CONFIG_FIELD_EVENTS        unsigned /* enum notify_flags, ored */
#define CONFIG_FIELD_OUTPUT_LIMITS struct config_output_limits
#define CONFIG_FIELD_USERS         char * /* lines, "name rule rule ...", words quoted as in a file */

/* The C type of a field is that of its setting's type. Strings are NUL-terminated and never NULL; a password is bytes,
 * of which any may be NUL, with a NUL after them. */
struct config {
#define PART(part) struct config_##part {
#define END(part) \
    }             \
    part;
#define SETTING(type, part, field, ...)        CONFIG_FIELD_##type field;
#define SETTING_NUMBER(type, part, field, ...) CONFIG_FIELD_##type field;
#define SETTING_WORD(part, field, ...)         int field; /* index into the setting's words */
#include "config.def"
};

/* ---- the table ---- */

enum config_type {
    CONFIG_BOOL,      /* yes or no */
    CONFIG_INTEGER,   /* min..max */
    CONFIG_BYTES,     /* min..max; "1024", "64kb", "1gb" (1k is 1000, 1kb is 1024); see CONFIG_OR_SHARE */
    CONFIG_RATE,      /* a number between min and max, both excluded */
    CONFIG_WORD,      /* one of `words` */
    CONFIG_STRING,    /* no NUL byte */
    CONFIG_PASSWORD,  /* at most CONFIG_MAX_SECRET bytes, of any kind */
    CONFIG_ADDRESSES, /* numeric IP addresses, "*" or "::*", separated by spaces, each with an optional '-' in front */
    CONFIG_RULES,     /* "<seconds> <changes> <seconds> <changes> ...", or nothing */
    CONFIG_EVENTS,    /* letters, as in notify_flags.h */
    CONFIG_OUTPUT_LIMITS, /* "<class> <hard bytes> <soft bytes> <soft seconds> ..."; classes not named stay as they are
                           */
    CONFIG_USERS,         /* several lines of a file, each of which adds to the value */
};

/* Bytes of a password. An unauthenticated client may send arguments of proto-max-bulk-len-unauthenticated bytes, which
 * is never less: a longer password would lock all clients out. */
#define CONFIG_MAX_SECRET 1024

enum {
    CONFIG_START_ONLY = 1 << 0, /* fixed once the daemon runs: config_set() refuses it with CONFIG_RUNTIME */
    CONFIG_SECRET = 1 << 1,     /* no message repeats its value; at most CONFIG_MAX_SECRET bytes */
    CONFIG_OCTAL = 1 << 2,      /* an integer written in base 8 */
    CONFIG_OR_MINUS_1 = 1 << 3, /* an integer that may also be -1, below its range: "none" */
    CONFIG_TLS = 1 << 4,        /* certificates, rules of TLS or keys are made from it: a change reads files */
    CONFIG_HIDDEN = 1 << 5,     /* unknown to CONFIG GET and CONFIG SET */
    CONFIG_OR_SHARE = 1 << 6,   /* bytes, "20%", or "auto": config_share() */
};

struct config_row {
    const char *name; /* "tcp-backlog" */
    enum config_type type;
    unsigned flags;
    size_t offset, size;      /* of the field in struct config */
    const char *default_text; /* as in a file, without quotes */
    uint64_t min, max;        /* CONFIG_INTEGER, CONFIG_BYTES */
    const char *const *words; /* CONFIG_WORD: NULL-terminated */
    const char *unit;         /* unit of the number, or "" */
    const char *doc;          /* whole sentences */
};

#define CONFIG_MAX_SETTINGS 256 /* more than there are */

/* All rows, in the order of the file; their number. */
const struct config_row *config_table(size_t *n_out);

/* The row of that name, ASCII case ignored; NULL if there is none. */
const struct config_row *config_find(struct slice name);

/* ---- values ---- */

/* The defaults. 0 or -ENOMEM; after an error there is nothing to undo. */
int config_init(struct config *cfg) __attribute__((warn_unused_result));

/* A copy that shares nothing with the original. 0 or -ENOMEM; after an error there is nothing to undo. */
int config_clone(const struct config *cfg, struct config *copy_out) __attribute__((warn_unused_result));

void config_deinit(struct config *cfg); /* idempotent */

/* The source of a value. It decides the wording of a refusal, and whether CONFIG_START_ONLY settings may change. */
enum config_source {
    CONFIG_FILE,     /* "'threads' must be an integer from 0 to 1024, not 'x'" */
    CONFIG_ARGUMENT, /* the same */
    CONFIG_RUNTIME,  /* as Redis words it, without "ERR ": "CONFIG SET failed (possibly related to argument ..." */
};

enum config_status {
    CONFIG_OK = 0,
    CONFIG_UNKNOWN = 1, /* unknown setting; the errbuf names it */
    CONFIG_REFUSED = 2, /* the errbuf has the reason */
};

/* Sets one setting. CONFIG_OK; or CONFIG_UNKNOWN, CONFIG_REFUSED or -ENOMEM with the reason in `err` and `cfg`
 * unchanged. `err` may be NULL. */
int config_set(struct config *cfg, struct slice name, struct slice value, enum config_source source, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Checks, after a set of changes, the rules that concern several settings. CONFIG_OK or CONFIG_REFUSED. */
int config_check(const struct config *cfg, enum config_source source, struct errbuf *err)
    __attribute__((warn_unused_result));

/* The bytes that a setting with CONFIG_OR_SHARE represents, a percentage of `whole`. Not for CONFIG_AUTO. */
#define CONFIG_SHARE (UINT64_C(1) << 63) /* ored to a percentage, 1..100, in place of bytes */
#define CONFIG_AUTO  CONFIG_SHARE        /* "auto" */
uint64_t config_share(uint64_t value, uint64_t whole);

/* Cuts the setting metrics-filters into its patterns, slices of the text. Returns their number, or -1 if they are more
 * than CONFIG_MAX_PATTERNS or one is longer than CONFIG_MAX_PATTERN bytes. */
#define CONFIG_MAX_PATTERNS 16
#define CONFIG_MAX_PATTERN  256
int config_patterns(const char *text, struct slice patterns_out[CONFIG_MAX_PATTERNS]);

/* Cuts the next word off the front of the text; false when there is none. */
bool config_next_word(struct slice *text, struct slice *word_out);

/* Cuts a line of a file, without its end, into words, and frees them. */
struct config_line {
    struct slice *words; /* into text */
    size_t nwords;       /* 0: empty, or a comment */
    char *text;
};

/* CONFIG_OK, CONFIG_REFUSED or -ENOMEM; config_line_deinit() in any case. */
int config_line_split(struct slice in, struct config_line *line_out, struct errbuf *err);
void config_line_deinit(struct config_line *line);

/* Appends a word as such a line has it, quoted where it must be. */
void config_print_word(struct slice word, struct buf *out);

/* Appends the value as CONFIG GET shows it: bytes in full, lists and rules separated by spaces, secrets in clear. */
void config_get(const struct config *cfg, const struct config_row *row, struct buf *out);
