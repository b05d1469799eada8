#include "persistence.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "notify.h"
#include "rcu.h"
#include "registry_key.h"
#include "registry_effect.h"
#include "saver.h"

/* ---- calls of the log thread ---- */

static void on_barrier(void *ctx)
{
    struct server *server = ctx;
    registry_barrier(server->registry);
}

static void on_announce(void *ctx, unsigned worker, uint64_t ticket)
{
    struct server *server = ctx;
    server->calls.log_synced(server, worker, ticket);
}

static void on_room(void *ctx, unsigned worker)
{
    struct server *server = ctx;
    server->calls.log_has_room(server, worker);
}

static void on_state(void *ctx, bool failed, const char *text)
{
    struct server *server = ctx;
    if (failed)
        log_warning(&server->log, "cannot write the log, so writes are refused: %s", text);
    else
        log_notice(&server->log, "the log can be written again; no record was lost");
}

static int on_still_ours(void *ctx)
{
    struct server *server = ctx;
    struct errbuf ignored;
    return store_still_ours(server->persistence->store, &ignored);
}

/* ---- start and stop ---- */

int persistence_start(struct server *server, const struct journal_start *from, struct errbuf *err)
{
    struct journal_start start = *from;
    struct journal *journal;

    start.barrier = on_barrier;
    start.announce = on_announce;
    start.has_room = on_room;
    start.state = on_state;
    start.still_ours = on_still_ours;
    start.ctx = server;
    start.nrings = server->threads.nworkers;
    if (getrandom(&start.salt, sizeof(start.salt), 0) != (ssize_t)sizeof(start.salt))
        start.salt = (uint64_t)clock_unix_ms() * UINT64_C(0x9e3779b97f4a7c15);
    TRY(journal_create(&journal, &start, err));
    rcu_reader_begin(); /* CONFIG SET replaces settings, and frees the old ones, while the log is made */
    enum journal_policy policy = (enum journal_policy)server_config(server)->log.appendfsync;
    bool records = server_config(server)->log.appendonly;
    rcu_reader_end();
    journal_set_policy(journal, policy);
    journal_record(journal, records);
    atomic_store_explicit(&server->journal, journal, memory_order_release);
    return 0;
}

void persistence_stop(struct server *server)
{
    journal_destroy(atomic_exchange(&server->journal, NULL));
}

void persistence_config_replace(struct server *server, struct config *now)
{
    struct journal *journal = server_journal(server);
    bool was = server_config(server)->log.appendonly;
    server_config_replace(server, now);
    if (!journal)
        return;
    journal_set_policy(journal, (enum journal_policy)now->log.appendfsync);
    if (was == now->log.appendonly)
        return;
    /* After it is switched on, the log is complete with the save that begins now. After it is switched off, its records
     * must not override later changes, so this save deletes it. */
    journal_switch(journal, now->log.appendonly); /* the save is tried again until it has succeeded */
    saver_start(server->persistence->saver, true);
    log_notice(&server->log,
               now->log.appendonly
                   ? "appendonly is switched on; the log is valid from the end of the save that begins now"
                   : "appendonly is switched off; the save that begins now replaces the log");
}

/* ---- effects: the log, and events ---- */

/* The record of a new filter. */
static struct log_control control_of(enum log_control_kind kind, const struct registry_effect *effect)
{
    return (struct log_control){
        .kind = kind,
        .id = effect->id,
        .replaced_id = effect->replaced_id,
        .name = effect->name.ptr,
        .name_len = effect->name.len,
        .expires_ms = effect->expires_ms,
        .params = *bloom_filter_params(entry_shape(effect->entry)),
    };
}

static void note_creation(struct journal *journal, const struct registry_effect *effect)
{
    struct log_control control = control_of(LOG_CREATE, effect);
    struct bloom_layer_view view;
    bloom_filter_layer(entry_shape(effect->entry), 0, &view);
    control.shape = view.shape;
    journal_note(journal, &control);
}

static void note_contents(struct journal *journal, const struct registry_effect *effect)
{
    const struct persistence_contents *contents = effect->payload;
    if (!contents) { /* the log was switched on after it was asked; the save that follows that may be over */
        journal_missed(journal);
        return;
    }
    struct log_control control = control_of(contents->in_files ? LOG_LOADED : LOG_FILLED, effect);
    control.record = contents->ptr;
    control.record_len = contents->len;
    journal_note(journal, &control);
    if (contents
            ->in_files) /* the record has the time that was asked for, not one that was kept from the filter before */
        journal_note(journal,
                     &(struct log_control){.kind = LOG_EXPIRY, .id = effect->id, .expires_ms = effect->expires_ms});
}

static void record_effect(struct server *server, struct journal *journal, const struct registry_effect *effect)
{
    struct log_control swap = {.kind = LOG_SWAP};
    switch (effect->kind) {
    case REGISTRY_CREATED:
        note_creation(journal, effect);
        break;
    case REGISTRY_LOADED:
        note_contents(journal, effect);
        break;
    case REGISTRY_DELETED:
    case REGISTRY_EXPIRED:
        journal_note(journal, &(struct log_control){.kind = LOG_DELETE, .id = effect->id});
        break;
    case REGISTRY_RENAMED:
        journal_note(journal, &(struct log_control){
                                  .kind = LOG_RENAME,
                                  .id = effect->id,
                                  .replaced_id = effect->replaced_id,
                                  .name = effect->to.ptr,
                                  .name_len = effect->to.len,
                              });
        break;
    case REGISTRY_EXPIRY:
        journal_note(journal,
                     &(struct log_control){.kind = LOG_EXPIRY, .id = effect->id, .expires_ms = effect->expires_ms});
        break;
    case REGISTRY_CLEARED:
        journal_note(journal, &(struct log_control){.kind = LOG_CLEAR});
        break;
    case REGISTRY_DATABASE_CLEARED:
        journal_note(journal, &(struct log_control){.kind = LOG_CLEAR_DATABASE, .database = effect->database});
        break;
    case REGISTRY_SWAPPED:
        for (int i = 0; i < 2; i++)
            swap.swap[i] =
                (struct log_database){effect->numbers[i], registry_database(server->registry, effect->numbers[i])};
        journal_note(journal, &swap);
        break;
    }
}

/* A filter has come under its name. Redis publishes "new" for each newly created key, even if it replaces another key.
 * Changes to the contents of an existing filter have their own events. */
static void published(struct notify *notify, const struct registry_effect *effect)
{
    const char *event = effect->event;
    bool in_place =
        event && effect->replaced_id && (strcmp(event, "bloom.merge") == 0 || strcmp(event, "bloom.clear") == 0);

    if (!event)
        event = effect->kind == REGISTRY_CREATED ? "bloom.reserve" : "bloom.load";
    if (!in_place)
        notify_event(notify, NOTIFY_NEW, "new", effect->name);
    notify_event(notify, strncmp(event, "bloom.", 6) == 0 ? NOTIFY_MODULE : NOTIFY_GENERIC, event, effect->name);
    if (!effect->event && effect->expires_ms)
        notify_event(notify, NOTIFY_GENERIC, "expire", effect->name); /* BF.RESERVE with a TTL */
}

/* The events of an effect, in Redis's order and words where Redis has them: docs/EVENTS.md. */
static void notify_effect(struct notify *notify, const struct registry_effect *effect)
{
    bool moves;
    switch (effect->kind) {
    case REGISTRY_CREATED:
    case REGISTRY_LOADED:
        published(notify, effect);
        break;
    case REGISTRY_DELETED:
        notify_event(notify, NOTIFY_GENERIC, "del", effect->name);
        break;
    case REGISTRY_EXPIRED:
        notify_event(notify, NOTIFY_EXPIRED, "expired", effect->name);
        break;
    case REGISTRY_RENAMED:
        moves = key_database(effect->name) != key_database(effect->to);
        notify_event(notify, NOTIFY_NEW, "new", effect->to);
        notify_event(notify, NOTIFY_GENERIC, moves ? "move_from" : "rename_from", effect->name);
        notify_event(notify, NOTIFY_GENERIC, moves ? "move_to" : "rename_to", effect->to);
        break;
    case REGISTRY_EXPIRY:
        notify_event(notify, NOTIFY_GENERIC, effect->expires_ms ? "expire" : "persist", effect->name);
        break;
    case REGISTRY_CLEARED: /* as in Redis: FLUSHALL has no event for each key, and SWAPDB none at all */
    case REGISTRY_DATABASE_CLEARED:
    case REGISTRY_SWAPPED:
        break;
    }
}

static void on_effect(void *ctx, const struct registry_effect *effect)
{
    struct server *server = ctx;
    struct stats *stats = counters_effects(server->stats.counters); /* under the mutex this is their only writer */
    bool many = effect->kind == REGISTRY_CLEARED || effect->kind == REGISTRY_DATABASE_CLEARED;
    stats_add(&stats->changes, many ? effect->count : 1);
    stats_add(&stats->expired, effect->kind == REGISTRY_EXPIRED);
    struct journal *journal = server_journal(server);
    if (journal && journal_records(journal))
        record_effect(server, journal, effect);
    if (notify_wants(server->notify, ~0u))
        notify_effect(server->notify, effect);
}

void effects_attach(struct server *server)
{
    registry_on_effect(server->registry, on_effect, server);
}

void effects_pace(void *ctx)
{
    struct server *server = ctx;
    notify_let_catch_up(server->notify);
}

/* ---- refusing writes ---- */

/* Without a log, filters would be lost when saves fail. */
static bool save_refuses(struct server *server)
{
    const struct config *config = server_config(server);
    return config->data.stop_writes_on_bgsave_error && !config->log.appendonly && config->data.save.count &&
           saver_has_failed(server->persistence->saver);
}

bool persistence_refuses(struct server *server)
{
    const struct journal *journal = server_journal(server);
    return (journal && journal_refuses(journal)) || save_refuses(server);
}

bool persistence_refusal(struct server *server, char *text, size_t size)
{
    struct journal *journal = server_journal(server);
    if (journal && journal_refuses(journal)) {
        struct errbuf reason = {""};
        journal_reason(journal, &reason);
        snprintf(text, size, "MISCONF Errors writing to the AOF file: %s", reason.text);
        return true;
    }
    if (save_refuses(server)) {
        struct saver_info info;
        saver_info(server->persistence->saver, &info);
        snprintf(text, size,
                 "MISCONF The last save failed and appendonly is off, so writes are refused "
                 "(stop-writes-on-bgsave-error): %s",
                 info.last_error);
        return true;
    }
    return false;
}
