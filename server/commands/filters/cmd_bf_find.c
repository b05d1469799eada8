/* BF.FIND. Few filters and items are done on the loop, more in a thread of the pool, in turns of some milliseconds. */
#include <stdlib.h>

#include "bf_host.h"
#include "clock.h"
#include "command.h"
#include "content.h"
#include "find.h"
#include "glob_match.h"
#include "handlers.h"
#include "rcu.h"

#define INLINE_QUESTIONS 4096           /* layers times items on the loop: some 200 us */
#define INLINE_KEY_BYTES ((size_t)4096) /* the digits of long numbers take time by their square */
#define TURN_MS          5

/* ---- in the pool ---- */

struct find_job {
    struct job_args *args;
    struct find *find;
};

static void discard(void *data)
{
    struct find_job *job = data;
    find_destroy(job->find);
    free(job->args);
    free(job);
}

/* The first turn: job->data is the copied arguments. NULL after an error reply. */
static struct find_job *begin(struct command_job *job)
{
    struct find_job *data = calloc(1, sizeof(*data));
    struct bf_args words = bf_args_of_job(job->data, "bf.find");
    struct bf_find request;
    struct errbuf error;
    if (!data)
        return reply_error(&job->reply, "ERR out of memory"), NULL;
    data->args = job->data;
    job->data = data;
    job->discard = discard;
    (void)bf_read_find(&words, &request, &error); /* it was read without an error before */
    data->find = find_create(job->server, job->database, &words, &request, job->reply.buf->cap);
    if (!data->find)
        reply_error(&job->reply, "ERR out of memory");
    else if (!find_read_keys(data->find, &error))
        reply_error(&job->reply, error.text);
    else
        return data;
    return NULL;
}

static void run(struct command_job *job)
{
    struct find_job *data = job->discard ? job->data : begin(job);
    int64_t end = clock_ms() + TURN_MS;
    size_t layers;
    bool more;
    if (!data)
        return;
    do {
        if (find_has_unread(data->find)) {
            find_read(data->find);
            more = true;
        } else {
            more = find_choose(data->find, &layers);
        }
        find_ask(data->find);
        rcu_reader_offline();
        rcu_reader_online();
        more = more || find_has_unread(data->find);
    } while (more && clock_ms() < end);
    job->again = more;
    if (more)
        return;
    job->maybe_answers = find_maybe_answers(data->find);
    find_reply(data->find, &job->reply);
}

/* ---- on the loop ---- */

static bool patterns_fit(struct command_ctx *ctx, const struct bf_args *args, const struct bf_find *request)
{
    for (size_t i = 0; i < request->names; i++) {
        struct slice word = bf_arg(args, request->first_name + i);
        if (word.len <= GLOB_COMPILED_MAX || glob_is_literal(word))
            continue;
        return reply_errorf(ctx->reply, "ERR the pattern has %zu bytes; at most %d are allowed", word.len,
                            GLOB_COMPILED_MAX);
    }
    return true;
}

/* True: it was little work, and is done. */
static bool find_now(struct command_ctx *ctx, const struct bf_args *args, const struct bf_find *request)
{
    size_t layers;
    if (command_bytes(ctx->args) > (request->keys ? INLINE_KEY_BYTES : COMMAND_SLICE_BYTES))
        return false;
    struct find *find = find_create(ctx->server, ctx->database, args, request, ctx->reply->buf->cap);
    if (!find) {
        reply_error(ctx->reply, "ERR out of memory");
        return true;
    }
    struct errbuf error = {""};
    if (!find_read_keys(find, &error)) {
        reply_error(ctx->reply, error.text);
        find_destroy(find);
        return true;
    }
    bool small = !find_choose(find, &layers) && layers * request->items <= INLINE_QUESTIONS && !find_has_unread(find);
    if (small) {
        find_ask(find);
        stats_add(&ctx->stats->maybe_answers, find_maybe_answers(find));
        find_reply(find, ctx->reply);
    }
    find_destroy(find);
    return small;
}

void cmd_bf_find(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_find request;
    struct errbuf error;
    if (!bf_read_find(&args, &request, &error))
        reply_error(ctx->reply, error.text);
    else if (patterns_fit(ctx, &args, &request) && !find_now(ctx, &args, &request))
        command_defer_arguments(ctx, SIZE_MAX - 1, run);
}
