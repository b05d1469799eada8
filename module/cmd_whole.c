/* Commands on a filter as a whole: reports and emptying. */
#include <time.h>

#include "bf_info.h"
#include "effects.h"
#include "handlers.h"
#include "settings.h"

/* ---- reports ---- */

HANDLER(cmd_bf_info)
{
    struct bf_args args = call_args(call);
    struct bf_choice choice;
    struct errbuf error;
    bool understood = bf_read_info(&args, &choice, &error);
    if (call->argc > 3) { /* the number of words is checked before the filter, the word after it */
        (void)engine.WrongArity(call->ctx);
        return;
    }
    if (call_open_existing(call)) {
        struct bf_out out = call_out(call);
        if (!understood)
            call_error(call, "%s", error.text);
        else if (bf_reply_info(&out, value_filter(call->value), &call->value->usage, &choice) != 0)
            engine.ReplyWithError(call->ctx, "ERR out of memory");
    }
}

HANDLER(cmd_bf_card)
{
    if (call_open(call))
        engine.ReplyWithLongLong(call->ctx, call->value ? (long long)bloom_filter_items(value_filter(call->value)) : 0);
}

HANDLER(cmd_bf_debug)
{
    if (call_open_existing(call)) {
        struct bf_out out = call_out(call);
        bf_reply_debug(&out, value_filter(call->value));
    }
}

HANDLER(cmd_bf_plan)
{
    struct bf_args args = call_args(call);
    struct bf_defaults defaults = settings_defaults();
    struct bf_out out = call_out(call);
    struct bf_plan requested;
    struct errbuf error;
    if (bf_read_plan(&args, &defaults, &requested, &error))
        bf_reply_plan(&out, &requested);
    else
        call_error(call, "%s", error.text);
}

/* Counts belong to the process that has counted them: replicas have their own. */
HANDLER(cmd_bf_falsepositive)
{
    struct bf_args args = call_args(call);
    struct errbuf error;
    uint32_t count;
    if (!bf_read_false_positives(&args, &count, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    if (call_open_existing(call)) {
        call->value->usage.wrong += count;
        engine.ReplyWithLongLong(call->ctx, (long long)call->value->usage.wrong);
    }
}

/* ---- BF.CLEAR ---- */

static void clear_filter(struct call *call)
{
    struct errbuf err = {""};
    int status;
    struct value *empty = value_create(bloom_filter_class_of(value_filter(call->value)), false, &status, &err);
    if (!empty) {
        call_not_made(call, status, &err);
        return;
    }
    call_put(call, empty);
    effect_verbatim(call);
    effect_changed(call, "bloom.clear");
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

HANDLER(cmd_bf_clear)
{
    if (call_open_existing(call)) {
        if (value_is_blank(call->value)) {
            call->value->usage = (struct bf_usage){.since_s = (int64_t)time(NULL)}; /* of this process alone */
            engine.ReplyWithSimpleString(call->ctx, "OK");
        } else {
            clear_filter(call);
        }
    }
}
