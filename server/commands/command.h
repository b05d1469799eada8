/* command: the table of commands, and the context of a handler.
 *
 * One row is one command: its name, arity, flags, keys, documentation and handler. The dispatcher's checks, COMMAND,
 * COMMAND DOCS, COMMAND INFO and the per-command counters all come from it (command_row.h; commands.def, one row per
 * command).
 *
 * Handlers see arguments, session, registry and reply writer, never a connection or a loop. A handler runs on a
 * worker's loop thread inside an RCU read section: filters that it looks up stay alive until it returns. Work that is
 * not O(small) is deferred to a thread of the pool with command_defer(). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command_row.h"
#include "reply.h"
#include "resp_parse.h"
#include "session.h"

struct journal_ring;
struct server;
struct stats;

/* ---- commands with very many arguments ---- */

/* A command with more arguments than COMMAND_SLICE runs in slices, and other clients are served in between. A call of
 * its handler does at most ctx->slice_items items from number `done` on, and sets ctx->later unless it has finished.
 * The reply is kept apart until then. Without a slice (NULL) the handler does all items at once.
 *
 * A slice should take some hundred microseconds. The number of items in that time differs: the first touch of a page of
 * a new large filter takes microseconds, and an item touches up to seven pages. So the worker measures
 * (command_slice_items()), between COMMAND_SLICE and COMMAND_SLICE_MIN items, and slices commands with more arguments
 * than the result. The next filter may be slower: a command with more than COMMAND_SLICE_TIMED arguments may also end
 * its slice when its time is over (command_slice_end()). */
#define COMMAND_SLICE       2048
#define COMMAND_SLICE_TIMED 64 /* of these each may be looked for in 1,024 layers */
#define COMMAND_SLICE_MIN   32
#define COMMAND_SLICE_BYTES                                                                  \
    ((size_t)64 * 1024) /* with more bytes of arguments a command is sliced, too (CMD_LARGE) \
                         */
#define COMMAND_SLICE_NS UINT64_C(200000)

struct command_slice {
    size_t done;   /* items done so far; 0 in the first call */
    size_t token;  /* for the handler: of reply_array_begin() */
    int64_t count; /* for the handler: its result so far */
    uint64_t id;   /* for the handler: its filter */
};

#define COMMAND_OOM "OOM command not allowed when used memory > 'maxmemory'."

/* The number of items, of n, to do in this call, from item *first_out on; sets ctx->later unless these are the last. */
struct command_ctx;
size_t command_slice(struct command_ctx *ctx, size_t n, size_t *first_out);

/* For a handler that has done the items before number `done`: whether the slice ends here, because it has taken too
 * long. Sets ctx->later in that case. */
bool command_slice_end(struct command_ctx *ctx, size_t done);

/* The number of items of the next slices, when `items` of a command took `took_ns` and slices had `now` items. */
size_t command_slice_items(size_t now, size_t items, uint64_t took_ns);

/* ---- how large a command may be ---- */

/* Most commands process all of their arguments at once. So without CMD_LARGE a command has at most this number of
 * arguments, its name included, and this number of bytes in them. */
#define COMMAND_MAX_WORDS 1024
#define COMMAND_MAX_BYTES ((size_t)8 << 20)

/* Bytes from the first to the last argument. */
static inline size_t command_bytes(const struct resp_command *args)
{
    const struct resp_span *last = &args->spans[args->argc - 1];
    return (size_t)last->off + last->len;
}

/* ---- the context of one call ---- */

struct command_ctx {
    struct server *server;
    struct session *session;
    struct stats *stats;             /* counters of this thread */
    const struct command *command;   /* the row, of the subcommand where there is one */
    const struct resp_command *args; /* argument 0 is the command's name; names of filters are keys (registry_key.h) */
    const struct resp_command *original; /* the same as the client has sent them */
    unsigned database;                   /* the internal number of the client's database (registry_key.h) */
    struct reply *reply;
    struct reply *pushes; /* for push messages: `reply`, but in slices the client's own, as messages may follow them */
    struct journal_ring *ring;   /* the log's ring for adds; NULL: no log (journal.h) */
    struct command_slice *slice; /* NULL: all at once */
    size_t slice_items;          /* of each slice, at most */
    uint64_t slice_end_ns;       /* clock_ns() from which on command_slice_end() ends it */
    bool keeps_arguments;        /* see command_keep_arguments() */
    bool later;                  /* set by a handler that has replied nothing and made its connection wait: it is
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

/* Replies to the HELP of a container of subcommands: a heading, the lines, and the lines about HELP. */
void reply_help(struct command_ctx *ctx, const char *const *lines, size_t n);

/* Replies with the text, or that there is no memory for it if the buffer has failed. Deinitialises the buffer. */
void reply_text(struct reply *reply, struct buf *text);

/* A field of a map. */
void reply_pair(struct reply *reply, const char *name, const char *value);
void reply_number_pair(struct reply *reply, const char *name, int64_t value);

/* Replies that the number of arguments is wrong, for rules beyond the arity in the table. */
void reply_wrong_arity(struct command_ctx *ctx);

/* The same for a subcommand with a valid number of wrong words. */
void reply_wrong_subcommand(struct command_ctx *ctx);

/* Reads the number of a database. False after an error reply: `not_a_number` if it is no number (NULL: Redis's usual
 * text). The caller asks database_exists(). */
bool read_database(struct reply *reply, struct slice arg, const char *not_a_number, int64_t *db_out);

/* Whether there is a database of this number; if not, that is replied. */
bool database_exists(const struct server *server, struct reply *reply, int64_t number);

/* NULL, or the error for a DEBUG that the settings do not allow; in a transaction, too. */
const char *debug_refusal(const struct server *server, const struct session *session);

/* Sets a text of the session. False after an error reply with `what` as its subject. */
bool session_set_text(struct command_ctx *ctx, enum session_text which, struct slice value, const char *what);

/* ---- work off the loop ---- */

/* A call that runs in a thread of the pool. The client's further commands wait; other clients do not. The thread is an
 * RCU reader while `run` executes. */
struct command_job {
    struct server *server;
    struct reply reply; /* where `run` writes the whole reply */
    unsigned database;  /* the internal number of the client's */
    void *data;      /* owned by the job: freed afterwards, by `discard` if `run` has set that, otherwise by free() */
    void *arguments; /* likewise: the memory of the arguments, after command_keep_arguments() */
    void (*discard)(void *data);
    bool again; /* set by a `run` that is not done: it is called again after other jobs, unless the client is
                 * gone. For work that would occupy a thread too long */
    uint64_t maybe_answers; /* for struct stats, when `run` is done */
    bool slow_down;         /* the client's later commands wait until its messages are delivered (push.h) */
    void (*run)(struct command_job *job);
};

/* Starts the call in the pool. The handler must not reply, and must copy the arguments that the job needs into `data`
 * (malloc'ed or NULL; ownership passes in any case). Replies with an error without memory, and in a transaction, where
 * all clients would wait for the job; commands that always defer have CMD_DEFERS and are refused there before. */
void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* command_defer() with a copy of the data, which is freed like other data. */
void command_defer_copy(struct command_ctx *ctx, void (*run)(struct command_job *job), const void *data, size_t size);

/* A command's arguments: copied, or where they are if they are large. */
struct job_args {
    size_t argc;
    struct slice argv[];
};

/* command_defer() with the arguments; job->data is the struct job_args. An argument longer than `longest` is cut to one
 * byte more, so that a mistaken half gigabyte is not copied on the loop. */
void command_defer_arguments(struct command_ctx *ctx, size_t longest, void (*run)(struct command_job *job));

/* Before command_defer(): whether the arguments lie in memory of the connection's own, as large ones do. That then
 * passes to the job: they stay valid where they are until it has ended, and need not be copied. */
bool command_keep_arguments(struct command_ctx *ctx);

/* ---- the table ---- */

/* All commands; their number. Row indexes are stable for the life of the process. */
const struct command *command_table(size_t *n_out);
extern const struct command command_top_rows[]; /* the same */
extern const size_t command_ntop;

/* The index of a top-level row, -1 if there is no such command. ASCII case is ignored. */
int command_find(struct slice name);

/* The row of a subcommand, NULL if the command has none of that name. */
const struct command *command_find_sub(const struct command *command, struct slice name);

/* The row that the words from `first` on would call: the subcommand's row if the command has subcommands and more than
 * one word is given. NULL: none. */
const struct command *command_find_called(const struct resp_command *words, size_t first);

/* Whether the row may be called with this number of words, its own name included. */
static inline bool command_arity_fits(const struct command *row, size_t nwords)
{
    return row->arity >= 0 ? nwords == (size_t)row->arity : nwords >= (size_t)-row->arity;
}

/* The places of the names of filters among `argc` words: for (i = keys.first; i < keys.end; i += keys.step). Channels,
 * which the rows of some commands have as keys for clients that route by them, are none. */
struct command_keys {
    size_t first, end, step;
};

static inline struct command_keys command_keys(const struct command *row, size_t argc)
{
    if (row->first_key == 0 || row->flags & CMD_PUBSUB)
        return (struct command_keys){0, 0, 1};
    size_t first = (size_t)row->first_key;
    size_t last = row->last_key < 0 ? argc - (size_t)-row->last_key : (size_t)row->last_key;
    size_t end = last < argc ? last + 1 : argc;
    return (struct command_keys){first, end < first ? first : end, (size_t)row->key_step};
}

/* The row for "name" or "name|subname", or NULL. */
const struct command *command_find_full(struct slice name);

size_t command_index_of_subcommand(const struct command *row); /* internal */

/* Every row has a number for its counters (struct stats), below STATS_MAX_COMMANDS: a top-level row its index, the rows
 * of subcommands the following numbers. command_row() is the reverse and returns NULL past the last row. */
static inline size_t command_index(const struct command *row)
{
    size_t index = ((uintptr_t)row - (uintptr_t)command_top_rows) / sizeof(*row);
    return index < command_ntop ? index : command_index_of_subcommand(row);
}
const struct command *command_row(size_t index);
