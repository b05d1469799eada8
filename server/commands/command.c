/* Shared by handlers and the dispatcher: reading arguments, finding rows.
 *
 * A row is found by a small open-addressing hash table of row numbers. The hash checks the length and three letters
 * only, for names of any length; the name is then compared whole. */
#include "command.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "clock.h"
#include "command_arg.h"
#include "handlers.h"

#define SLOTS 256 /* a power of two, several times the number of rows, so that most names are found at once */

static struct {
    uint8_t row; /* number of the row plus one; 0: empty */
    uint8_t len;
} slots[SLOTS];

#define CONTAINER_SIZE 32

/* The name of the container whose subcommand is running, in capitals. */
static void container_name(const struct command_ctx *ctx, char name_out[CONTAINER_SIZE])
{
    const char *name = ctx->command->full_name;
    size_t len;

    for (len = 0; name[len] != '|' && name[len] != '\0' && len < CONTAINER_SIZE - 1; len++)
        name_out[len] = (char)(name[len] - ('a' - 'A'));
    name_out[len] = '\0';
}

static void reply_help_heading(struct command_ctx *ctx)
{
    char container[CONTAINER_SIZE], heading[96];

    container_name(ctx, container);
    snprintf(heading, sizeof(heading), "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", container);
    reply_status(ctx->reply, heading);
}

void reply_help(struct command_ctx *ctx, const char *const *lines, size_t n)
{
    reply_array(ctx->reply, n + 3);
    reply_help_heading(ctx);
    for (size_t i = 0; i < n; i++)
        reply_status(ctx->reply, lines[i]);
    reply_status(ctx->reply, "HELP");
    reply_status(ctx->reply, "    Print this help.");
}

static void put(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text));
}

/* "[TYPE (NORMAL|PUBSUB)] [ID <client-id> ...]" */
static void put_syntax(struct buf *out, const struct command_arg *args, size_t n, const char *between)
{
    for (size_t i = 0; i < n; i++) {
        const struct command_arg *arg = &args[i];
        bool is_word = strcmp(arg->type, "pure-token") == 0, is_choice = strcmp(arg->type, "oneof") == 0;

        put(out, i > 0 ? between : "");
        put(out, arg->optional ? "[" : "");
        put(out, arg->token ? arg->token : "");
        put(out, arg->token && !is_word ? " " : "");
        put(out, is_choice ? "(" : arg->nargs == 0 && !is_word ? "<" : "");
        if (arg->nargs > 0)
            put_syntax(out, arg->args, arg->nargs, is_choice ? "|" : " ");
        else if (!is_word)
            put(out, arg->name);
        put(out, is_choice ? ")" : arg->nargs == 0 && !is_word ? ">" : "");
        put(out, arg->multiple ? " ..." : "");
        put(out, arg->optional ? "]" : "");
    }
}

static void reply_help_of(struct command_ctx *ctx, const struct command *row, struct buf *line)
{
    buf_truncate(line, 0);
    for (const char *at = row->name; *at; at++)
        buf_append(line, (const char[]){(char)toupper(*at)}, 1);
    put(line, row->nargs > 0 ? " " : "");
    put_syntax(line, row->args, row->nargs, " ");
    buf_append(line, "", 1);
    reply_status(ctx->reply, buf_failed(line) ? row->name : buf_head(line));
    buf_truncate(line, 0);
    put(line, "    ");
    put(line, row->summary);
    buf_append(line, "", 1);
    reply_status(ctx->reply, buf_failed(line) ? row->summary : buf_head(line));
}

void cmd_help(struct command_ctx *ctx)
{
    const char *name = ctx->command->full_name;
    const struct command *container = command_row((size_t)command_find((struct slice){name, strcspn(name, "|")}));
    struct buf line;

    buf_init(&line, SIZE_MAX);
    reply_array(ctx->reply, 2 * container->nsubcommands + 1);
    reply_help_heading(ctx);
    for (size_t i = 0; i < container->nsubcommands; i++)
        reply_help_of(ctx, &container->subcommands[i], &line);
    buf_deinit(&line);
}

void reply_text(struct reply *reply, struct buf *text)
{
    if (buf_failed(text))
        reply_error(reply, "ERR out of memory");
    else
        reply_verbatim(reply, "txt", buf_head(text), buf_len(text));
    buf_deinit(text);
}

void reply_pair(struct reply *reply, const char *name, const char *value)
{
    reply_bulk_str(reply, name);
    reply_bulk_str(reply, value);
}

void reply_number_pair(struct reply *reply, const char *name, int64_t value)
{
    reply_bulk_str(reply, name);
    reply_integer(reply, value);
}

void reply_wrong_arity(struct command_ctx *ctx)
{
    reply_errorf(ctx->reply, "ERR wrong number of arguments for '%s' command", ctx->command->full_name);
}

void reply_wrong_subcommand(struct command_ctx *ctx)
{
    struct slice word = command_arg(ctx, 1);
    char container[CONTAINER_SIZE];

    container_name(ctx, container);
    reply_errorf(ctx->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
                 slice_shown(word), word.len > 0 ? word.ptr : "", container);
}

bool read_database(struct reply *reply, struct slice arg, const char *not_a_number, int64_t *db_out)
{
    bool is_number = slice_to_int64(arg, db_out);

    if (is_number && *db_out >= INT32_MIN && *db_out <= INT32_MAX)
        return true;
    if (not_a_number)
        reply_error(reply, not_a_number);
    else if (is_number)
        reply_errorf(reply, "ERR value is out of range, value must between %ld and %ld", (long)INT32_MIN,
                     (long)INT32_MAX);
    else
        reply_error(reply, "ERR value is not an integer or out of range");
    return false;
}

void command_defer_copy(struct command_ctx *ctx, void (*run)(struct command_job *job), const void *data, size_t size)
{
    void *copy = malloc(size);
    if (copy)
        command_defer(ctx, run, memcpy(copy, data, size));
    else
        reply_error(ctx->reply, "ERR out of memory");
}

/* Arguments of more bytes are kept where they are: a megabyte takes a quarter of a millisecond to copy. */
#define COPIED_BYTES (64u << 10)

static struct slice cut(struct slice arg, size_t longest)
{
    return (struct slice){arg.ptr, arg.len > longest ? longest + 1 : arg.len};
}

void command_defer_arguments(struct command_ctx *ctx, size_t longest, void (*run)(struct command_job *job))
{
    size_t argc = command_argc(ctx), bytes = 0;
    bool keep = command_bytes(ctx->args) > COPIED_BYTES && command_keep_arguments(ctx);
    for (size_t i = 0; i < argc && !keep; i++)
        bytes += cut(command_arg(ctx, i), longest).len;
    struct job_args *args = malloc(sizeof(*args) + argc * sizeof(args->argv[0]) + bytes);
    if (!args) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    char *at = (char *)&args->argv[argc];
    args->argc = argc;
    for (size_t i = 0; i < argc; i++) {
        struct slice arg = cut(command_arg(ctx, i), longest);
        args->argv[i] = keep ? arg : (struct slice){at, arg.len};
        if (arg.len && !keep)
            memcpy(at, arg.ptr, arg.len);
        at += arg.len;
    }
    command_defer(ctx, run, args);
}

/* ---- finding ---- */

static unsigned name_slot(const char *name, size_t len)
{
    uint32_t key = slice_lower(name[len - 1]) | (uint32_t)slice_lower(name[len / 2]) << 8 |
                   (uint32_t)slice_lower(name[0]) << 16 | (uint32_t)len << 24;

    return (key * UINT32_C(0x9e3779b1)) >> 24 & (SLOTS - 1);
}

/* Before main(), so that the table is constant for all threads and look-ups need no check. */
__attribute__((constructor)) static void fill_slots(void)
{
    size_t n;
    const struct command *rows = command_table(&n);

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].name);
        unsigned slot = name_slot(rows[i].name, len);

        while (slots[slot].row != 0)
            slot = (slot + 1) % SLOTS;
        slots[slot].row = (uint8_t)(i + 1);
        slots[slot].len = (uint8_t)len;
    }
}

int command_find(struct slice name)
{
    const struct command *rows = command_table(NULL);

    if (name.len == 0)
        return -1;
    for (unsigned slot = name_slot(name.ptr, name.len); slots[slot].row != 0; slot = (slot + 1) % SLOTS) {
        int row = slots[slot].row - 1;

        if (slots[slot].len == name.len && strncasecmp(name.ptr, rows[row].name, name.len) == 0)
            return row;
    }
    return -1;
}

const struct command *command_find_sub(const struct command *command, struct slice name)
{
    for (size_t i = 0; i < command->nsubcommands; i++)
        if (slice_is(name, command->subcommands[i].name))
            return &command->subcommands[i];
    return NULL;
}

const struct command *command_find_called(const struct resp_command *words, size_t first)
{
    int index = command_find(resp_arg(words, first));
    const struct command *row = index < 0 ? NULL : command_row((size_t)index);
    if (row && row->nsubcommands > 0 && words->argc > first + 1)
        row = command_find_sub(row, resp_arg(words, first + 1));
    return row;
}

const struct command *command_find_full(struct slice name)
{
    const char *bar = name.len == 0 ? NULL : memchr(name.ptr, '|', name.len);
    size_t len = bar == NULL ? name.len : (size_t)(bar - name.ptr);
    int index = command_find((struct slice){name.ptr, len});

    if (index < 0)
        return NULL;
    if (bar == NULL)
        return command_row((size_t)index);
    return command_find_sub(command_row((size_t)index), (struct slice){bar + 1, name.len - len - 1});
}

size_t command_index_of_subcommand(const struct command *row)
{
    size_t base = command_ntop;

    for (size_t i = 0; i < command_ntop; i++) {
        /* Addresses of different arrays: compared as numbers, since < on such pointers means nothing. */
        uintptr_t first = (uintptr_t)command_top_rows[i].subcommands;
        uintptr_t end = first + command_top_rows[i].nsubcommands * sizeof(*row);

        if ((uintptr_t)row >= first && (uintptr_t)row < end)
            return base + (size_t)(row - command_top_rows[i].subcommands);
        base += command_top_rows[i].nsubcommands;
    }
    return base; /* not reached with a row of the table */
}

const struct command *command_row(size_t index)
{
    size_t n;
    const struct command *rows = command_table(&n);

    if (index < n)
        return &rows[index];
    index -= n;
    for (size_t i = 0; i < n; i++) {
        if (index < rows[i].nsubcommands)
            return &rows[i].subcommands[index];
        index -= rows[i].nsubcommands;
    }
    return NULL;
}

size_t command_slice(struct command_ctx *ctx, size_t n, size_t *first_out)
{
    size_t first = ctx->slice ? ctx->slice->done : 0, items = n - first;
    *first_out = first;
    if (ctx->slice && items > ctx->slice_items) {
        items = ctx->slice_items;
        ctx->slice->done = first + items;
        ctx->later = true;
    }
    return items;
}

bool command_slice_end(struct command_ctx *ctx, size_t done)
{
    if (!ctx->slice || clock_ns() < ctx->slice_end_ns)
        return false;
    ctx->slice->done = done;
    ctx->later = true;
    return true;
}

/* Shrinks at once, grows by doubling: a filter with untouched pages stays slow for a while. */
size_t command_slice_items(size_t now, size_t items, uint64_t took_ns)
{
    if (items < COMMAND_SLICE_MIN)
        return now;
    uint64_t right = COMMAND_SLICE_NS * items / (took_ns + 1);
    if (right > 2 * now)
        right = 2 * now;
    return right < COMMAND_SLICE_MIN ? COMMAND_SLICE_MIN : right < COMMAND_SLICE ? (size_t)right : COMMAND_SLICE;
}
