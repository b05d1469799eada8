/* command: the table of commands and what a handler is given.
 *
 * One row is one command: its name, arity, flags, keys, documentation and handler. The dispatcher's checks, COMMAND,
 * COMMAND DOCS, COMMAND INFO and the per-command counters all come from it (commands_*.def, one row per command).
 *
 * Handlers see arguments, session, registry and reply writer, never a connection or a loop. A handler runs on a worker's
 * loop thread inside an RCU read section: filters that it looks up stay alive until it returns. Whatever is not O(small)
 * is deferred to a thread of the pool with command_defer(). */
#ifndef BLOOMERY_COMMAND_H
#define BLOOMERY_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reply.h"
#include "resp_parse.h"
#include "session.h"

struct journal_ring;
struct server;
struct worker;
struct stats;
struct command;

/* ---- commands with very many arguments ------------------------------------------------------------------------------- */

/* A command with more arguments than COMMAND_SLICE is run in slices, between which other clients are served: its handler does
 * at most ctx->slice_items per call, beginning with number `done`, and sets ctx->later until it is through. What it writes is
 * kept apart until then. NULL instead of a slice: do all at once.
 *
 * A slice is to be some hundred microseconds of work, and how many items that is differs: each first touch of a page of a
 * new large filter costs microseconds, seven of them per item. So the worker measures (command_slice_items()): from
 * COMMAND_SLICE items down to COMMAND_SLICE_MIN, and commands are sliced from so many arguments on. What has been measured
 * need not hold for the next filter: a command with more than COMMAND_SLICE_TIMED arguments may also end its slice when it
 * sees that its time is over (command_slice_end()). */
#define COMMAND_SLICE       2048
#define COMMAND_SLICE_TIMED 128
#define COMMAND_SLICE_MIN   32
#define COMMAND_SLICE_NS    UINT64_C(200000)

struct command_slice {
    size_t done;   /* items done so far; 0 in the first call */
    size_t token;  /* for the handler: of reply_array_begin() */
    int64_t count; /* for the handler: what it counts */
    uint64_t id;   /* for the handler: the filter that it works on */
};

/* How many of n items are to be done in this call, from item number *first_out on; ctx->later is set unless these are the
 * last. */
struct command_ctx;
size_t command_slice(struct command_ctx *ctx, size_t n, size_t *first_out);

/* For a handler that has done the items before number `done` and could go on with it: whether the slice ends here, since it
 * has taken too long. ctx->later is set then. */
bool command_slice_end(struct command_ctx *ctx, size_t done);

/* How many items the next slices have, when `items` of a command took `took_ns` and the slices had `now` so far. */
size_t command_slice_items(size_t now, size_t items, uint64_t took_ns);

/* ---- the context of one call ---------------------------------------------------------------------------------------- */

struct command_ctx {
    struct server *server;
    struct worker *worker;
    struct session *session;
    struct stats *stats;               /* counters of this thread */
    const struct command *command;     /* the row, of the subcommand where there is one */
    const struct resp_command *args;   /* argument 0 is the command's name */
    struct reply *reply;
    struct journal_ring *ring;         /* where adds are noted; NULL: nowhere (journal.h) */
    struct command_slice *slice;       /* NULL: all at once */
    size_t slice_items;                /* of each slice, at most */
    uint64_t slice_end_ns;             /* timing_now_ns() from which on command_slice_end() ends it */
    bool later;                        /* set by a handler that has replied nothing and made its connection wait: it is
                                          called again with the same arguments */
};

static inline size_t command_argc(const struct command_ctx *ctx)
{
    return ctx->args->argc;
}

static inline struct slice command_arg(const struct command_ctx *ctx, size_t i)
{
    return resp_arg(ctx->args, i);
}

/* Compares an argument with a word, ASCII case ignored. */
bool slice_is(struct slice arg, const char *word);

/* Replies to the HELP of a container of subcommands: a heading, the lines, and those of HELP itself. */
void reply_help(struct command_ctx *ctx, const char *const *lines, size_t n);

/* Replies that the number of arguments is wrong: for what the arity in the table cannot say. */
void reply_wrong_arity(struct command_ctx *ctx);

/* The same for a subcommand that may have so many words, but not these. */
void reply_wrong_subcommand(struct command_ctx *ctx);

/* Reads the number of a database. False: an error has been replied, `not_a_number` for what is none; NULL: Redis's usual
 * ones. Whether there is such a database is the caller's question. */
bool read_database(struct reply *reply, struct slice arg, const char *not_a_number, int64_t *db_out);

/* NULL, or the error that DEBUG is answered with as the settings do not allow it; in a transaction, too. */
const char *debug_refusal(const struct server *server, const struct session *session);

/* Whether an argument is a password: of AUTH, HELLO and CONFIG SET. What shows commands to others leaves it out. */
bool command_arg_is_secret(const struct command *row, const struct resp_command *args, size_t i);

/* Sets a text of the session. False: an error has been replied, with `what` as its subject. */
bool session_set_text(struct command_ctx *ctx, enum session_text which, struct slice value, const char *what);

/* Strict decimal integer as Redis reads one ("-?[1-9][0-9]*" or "0", no spaces, no plus): false when it is not. */
bool slice_to_int64(struct slice arg, int64_t *value_out);

/* ---- work off the loop ------------------------------------------------------------------------------------------------ */

/* A call that goes on in a thread of the pool. The client's further commands wait; other clients do not. The thread is
 * an RCU reader while `run` executes. */
struct command_job {
    struct server *server;
    struct reply reply;      /* where `run` writes the whole reply */
    void *data;              /* owned by the job: freed with free() afterwards */
    bool again;              /* set by `run`: it has not finished and is to be called again, after others have had their
                              * turn; not if the client is gone. For what would occupy a thread too long */
    bool alone;              /* runs inside a transaction, on its loop, while all others stand still: must not wait for them */
    bool slow_down;          /* the client's later commands are to wait until messages have been delivered (push.h) */
    void (*run)(struct command_job *job);
};

/* Hands the call over; the handler must not write a reply and must copy from the arguments what the job needs into
 * `data` (malloc'ed or NULL; ownership passes in any case). When there is no memory an error is replied. */
void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

enum {
    CMD_WRITE = 1 << 0,      /* changes filters; counted as such, refused where writes are */
    CMD_READONLY = 1 << 1,
    CMD_DENYOOM = 1 << 2,    /* refused over maxmemory */
    CMD_MODULE = 1 << 3,     /* reported as a command of module "bf", as RedisBloom's are */
    CMD_ADMIN = 1 << 4,
    CMD_PUBSUB = 1 << 5,
    CMD_NOSCRIPT = 1 << 6,
    CMD_LOADING = 1 << 7,    /* allowed while filters are being loaded */
    CMD_STALE = 1 << 8,
    CMD_SKIP_MONITOR = 1 << 9,
    CMD_SKIP_SLOWLOG = 1 << 10,
    CMD_FAST = 1 << 11,
    CMD_NOAUTH = 1 << 12,    /* allowed before AUTH */
    CMD_NO_ASYNC_LOADING = 1 << 13,
    CMD_NO_MULTI = 1 << 14,
    CMD_ALLOW_BUSY = 1 << 15,
    CMD_SUBSCRIBED = 1 << 16, /* allowed for a RESP2 client that has subscriptions */
};

/* An argument, for COMMAND DOCS. */
struct command_arg {
    const char *name;
    const char *type;                /* "key", "string", "integer", "double", "pure-token", "oneof", "block", "pattern" */
    const char *token;               /* NULL or the word in front of it, or the word itself for "pure-token" */
    bool optional;
    bool multiple;
    const char *since;               /* NULL, or the version of Redis that added it to the command */
    const struct command_arg *args;  /* of "oneof" and "block" */
    size_t nargs;
};

/* What COMMAND says follows from the row alone, so a row holds even what only clients look at. Where our own commands have
 * a namesake in Redis or RedisBloom, flags, categories and key specifications are what those report. */
struct command {
    const char *name;         /* lower case; a subcommand has its own name only: "getname" */
    const char *full_name;    /* "client|getname" for a subcommand, otherwise the name */
    void (*handler)(struct command_ctx *ctx); /* NULL when only its subcommands can be called */
    int arity;                /* words, the command's own name included; negative: at least that many */
    uint32_t flags;
    int first_key, last_key, key_step; /* 0 0 0: takes no keys; last_key -1: all the rest */
    const char *key_flags;    /* space separated, as in a key specification: "RW access update". One set holds for all keys;
                                 where each key has its own (RENAME) the sets are separated by '|' */
    const char *categories;   /* ACL categories, all of them, in the order reported: "@write @bloom" */
    const char *tips;         /* NULL, or space separated: "request_policy:all_shards" */
    const char *summary, *since, *group, *complexity;
    const struct command_arg *args;
    size_t nargs;
    const struct command *subcommands; /* NULL or nsubcommands rows */
    size_t nsubcommands;
};

/* All commands; their number. Row indexes are stable for the life of the process. */
const struct command *command_table(size_t *n_out);

/* The index of a top-level row, -1 if there is no such command. ASCII case is ignored. */
int command_find(struct slice name);

/* The row of a subcommand, NULL if the command has none of that name. */
const struct command *command_find_sub(const struct command *command, struct slice name);

/* The row that the words from number `first` on would call, which is the subcommand's where the command has some and
 * more than one word is given; NULL: there is none. */
const struct command *command_find_called(const struct resp_command *words, size_t first);

/* Whether the row may be called with so many words, its own name included. */
static inline bool command_arity_fits(const struct command *row, size_t nwords)
{
    return row->arity >= 0 ? nwords == (size_t)row->arity : nwords >= (size_t)-row->arity;
}

/* The row for "name" or "name|subname", NULL if there is none. */
const struct command *command_find_full(struct slice name);

/* Whether the row is in the ACL category, given without '@'; ASCII case is ignored. */
bool command_has_category(const struct command *row, struct slice category);

/* Every row has a number for its counters (struct stats), below STATS_MAX_COMMANDS: a top-level row its index, the rows of
 * subcommands the numbers behind those. And the reverse; command_row() returns NULL past the last row. */
size_t command_index(const struct command *row);
const struct command *command_row(size_t index);

#endif
