#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "id_map.h"
#include "journal.h"
#include "log_contents.h"
#include "server.h"

/* What the log says of a filter, as far as it has been read. */
struct history {
    uint64_t id;
    enum store_fate fate;
    bool created;          /* by the log: `params` and `shape` are its own */
    bool renamed;
    bool expiry_changed;
    char *name;            /* malloc'ed; NULL unless created or renamed */
    size_t name_len;
    int64_t expires_ms;
    struct bloom_params params;
    struct bloom_shape shape;
    unsigned char *contents; /* malloc'ed (log_contents.h); NULL: created empty */
    size_t contents_len;
    struct bloom_shape *grown; /* BLOOM_MAX_LAYERS shapes, by index; nwords 0: not known. NULL: none */
};

/* A filter that adds can be brought back to. */
struct target {
    struct entry *entry;   /* NULL: in quarantine */
    uint64_t since;        /* ordinals of segments before it have all been counted, and may have been given anew since */
    unsigned nlayers;      /* that had been saved */
    uint64_t counted[];    /* in these */
};

struct replay {
    struct server *server;
    struct store *store;
    uint64_t control;
    bool accept_loss;
    bool broken;           /* what this process has recorded from here on holds with a later save only */
    bool cleared;          /* filters without a history of their own are gone */
    struct id_map histories;
    pthread_mutex_t lock;  /* of targets, while filters are loaded */
    struct id_map targets;
    struct id_map expired; /* no values; under the lock, too */
    struct replay_summary summary;
};

int replay_create(struct replay **replay_out, struct server *server, struct store *store, uint64_t control, bool accept_loss)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    if (!replay)
        return -ENOMEM;
    replay->server = server;
    replay->store = store;
    replay->control = control;
    replay->accept_loss = accept_loss;
    pthread_mutex_init(&replay->lock, NULL);
    *replay_out = replay;
    return 0;
}

static void drop_contents(struct history *h)
{
    free(h->contents);
    h->contents = NULL;
    h->contents_len = 0;
}

static void history_free(struct history *h)
{
    drop_contents(h);
    free(h->name);
    free(h->grown);
    free(h);
}

void replay_destroy(struct replay *replay)
{
    if (!replay)
        return;
    for (size_t i = 0; i < replay->histories.nslots; i++)
        if (replay->histories.slots[i].id)
            history_free(replay->histories.slots[i].value);
    for (size_t i = 0; i < replay->targets.nslots; i++)
        if (replay->targets.slots[i].id)
            free(replay->targets.slots[i].value);
    id_map_deinit(&replay->histories);
    id_map_deinit(&replay->targets);
    id_map_deinit(&replay->expired);
    pthread_mutex_destroy(&replay->lock);
    free(replay);
}

/* ---- control records ------------------------------------------------------------------------------------------------- */

/* The history of an id. One that begins after everything was cleared, and not with a filter that comes into being, is that
 * of a filter which was cleared. */
static struct history *history_of(struct replay *replay, uint64_t id)
{
    struct history *h = id_map_get(&replay->histories, id);
    if (h)
        return h;
    h = calloc(1, sizeof(*h));
    if (h && id_map_set(&replay->histories, id, h) != 0) {
        free(h);
        return NULL;
    }
    if (h) {
        h->id = id;
        h->fate = replay->cleared ? STORE_GONE : STORE_KEPT;
    }
    return h;
}

static int end_filter(struct replay *replay, uint64_t id, enum store_fate fate)
{
    if (id == 0)
        return 0;
    struct history *h = history_of(replay, id);
    if (!h)
        return -ENOMEM;
    if (h->fate != STORE_GIVEN_UP)
        h->fate = fate;
    drop_contents(h);
    return 0;
}

static int set_name(struct history *h, const struct log_control *control)
{
    char *name = malloc(control->name_len ? control->name_len : 1);
    if (!name)
        return -ENOMEM;
    if (control->name_len)
        memcpy(name, control->name, control->name_len);
    free(h->name);
    h->name = name;
    h->name_len = control->name_len;
    return 0;
}

static int note_created(struct history *h, const struct log_control *control)
{
    h->fate = STORE_KEPT;
    h->created = true;
    h->params = control->params;
    h->shape = control->shape;
    h->expires_ms = control->expires_ms;
    drop_contents(h);
    return set_name(h, control);
}

/* As long as it is not deleted they are kept here: no more than the filter itself will take. */
static int note_filled(struct history *h, const struct log_control *control, struct errbuf *err)
{
    struct log_contents contents;
    int status = note_created(h, control);
    if (status)
        return status;
    if (!log_contents_decode(control->record, control->record_len, &contents)) { /* log_payload_decode() has looked */
        errbuf_set(err, "the contents of filter %" PRIu64 " make no sense", h->id);
        return LOG_DAMAGED;
    }
    h->shape = contents.layers[0].shape;
    h->contents = malloc(control->record_len);
    if (!h->contents)
        return -ENOMEM;
    memcpy(h->contents, control->record, control->record_len);
    h->contents_len = control->record_len;
    return 0;
}

static int note_grown(struct history *h, const struct log_control *control)
{
    if (!h->grown)
        h->grown = calloc(BLOOM_MAX_LAYERS, sizeof(*h->grown));
    if (!h->grown)
        return -ENOMEM;
    h->grown[control->layer] = control->shape;
    return 0;
}

static void clear(struct replay *replay)
{
    replay->cleared = true;
    for (size_t i = 0; i < replay->histories.nslots; i++) {
        struct history *h = replay->histories.slots[i].value;
        if (!replay->histories.slots[i].id)
            continue;
        if (h->fate != STORE_GIVEN_UP)
            h->fate = STORE_GONE;
        drop_contents(h);
    }
}

static int note_change(struct replay *replay, struct history *h, const struct log_control *control, struct errbuf *err)
{
    int status;
    switch (control->kind) {
    case LOG_CREATE:
        return note_created(h, control);
    case LOG_FILLED:
        return note_filled(h, control, err);
    case LOG_LOADED:
        h->fate = STORE_KEPT;
        status = store_replay_written(replay->store, control->record, control->record_len, err);
        return status == STORE_DAMAGED ? LOG_DAMAGED : status;
    case LOG_RENAME:
        h->renamed = true;
        return set_name(h, control);
    case LOG_EXPIRY:
        h->expiry_changed = true;
        h->expires_ms = control->expires_ms;
        return 0;
    case LOG_GROW:
        return note_grown(h, control);
    case LOG_DELETE:
        return end_filter(replay, control->id, STORE_GONE);
    case LOG_FORGET:
        return end_filter(replay, control->id, STORE_GIVEN_UP);
    case LOG_CLEAR:
    case LOG_BREAK:
        break;
    }
    return 0;
}

static void note_id(struct replay_summary *summary, uint64_t id)
{
    if (id > summary->highest_id)
        summary->highest_id = id;
}

int replay_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct replay *replay = ctx;
    note_id(&replay->summary, control->id);
    /* A layer is noted before it can be seen: the save need not have it, though it has what was noted later. */
    if (number <= replay->control && control->kind != LOG_GROW)
        return 0;
    if (control->kind == LOG_BREAK) {
        replay->broken = true;
        return 0;
    }
    /* An add or a layer says of its filter what is true whatever else has happened. */
    if (replay->broken && control->kind != LOG_GROW) {
        replay->summary.unjoined++;
        return 0;
    }
    if (control->kind == LOG_CLEAR) {
        clear(replay);
        return 0;
    }
    struct history *h = history_of(replay, control->id);
    int status = h ? note_change(replay, h, control, err) : -ENOMEM;
    return status ? status : end_filter(replay, control->replaced_id, STORE_GONE);
}

/* It went on from what it had found, which is what has been read so far. */
void replay_process(void *ctx)
{
    ((struct replay *)ctx)->broken = false;
}

/* ---- filters --------------------------------------------------------------------------------------------------------- */

enum store_fate replay_resolve(struct replay *replay, struct store_filter *info)
{
    const struct history *h = id_map_get(&replay->histories, info->id);
    if (!h)
        return replay->cleared ? STORE_GONE : STORE_KEPT;
    if (h->renamed) {
        info->name = h->name;
        info->name_len = h->name_len;
    }
    if (h->expiry_changed)
        info->expires_ms = h->expires_ms;
    return h->fate;
}

int replay_expired(struct replay *replay, uint64_t id)
{
    pthread_mutex_lock(&replay->lock);
    int status = id_map_set(&replay->expired, id, NULL);
    pthread_mutex_unlock(&replay->lock);
    return status;
}

void replay_note_expired(const struct replay *replay, struct journal *journal)
{
    for (size_t i = 0; i < replay->expired.nslots; i++)
        if (replay->expired.slots[i].id)
            journal_note(journal, &(struct log_control){.kind = LOG_DELETE, .id = replay->expired.slots[i].id});
}

int replay_loaded(struct replay *replay, uint64_t id, struct entry *entry, uint64_t since)
{
    const struct bloom_filter *filter = entry ? entry_filter(entry) : NULL;
    unsigned nlayers = filter ? bloom_filter_nlayers(filter) : 0;
    struct target *target = malloc(sizeof(*target) + nlayers * sizeof(target->counted[0]));
    if (!target)
        return -ENOMEM;
    target->entry = entry;
    target->since = since;
    target->nlayers = nlayers;
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        target->counted[i] = view.items;
    }
    pthread_mutex_lock(&replay->lock);
    int status = id_map_set(&replay->targets, id, target);
    pthread_mutex_unlock(&replay->lock);
    if (status)
        free(target);
    return status;
}

/* What it was made with. Then nothing of that is needed any more. */
static int fill(struct history *h, struct entry *entry, struct errbuf *err)
{
    struct log_contents contents;
    if (!h->contents)
        return 0;
    CHECK(log_contents_decode(h->contents, h->contents_len, &contents)); /* as it did when it was noted */
    int status = log_contents_fill(&contents, entry_filter(entry), err);
    drop_contents(h);
    return status;
}

static int create(struct replay *replay, struct history *h, struct errbuf *err)
{
    struct slice name = {h->name, h->name_len};
    struct bloom_class *class;
    struct entry *entry;
    if (h->expires_ms && h->expires_ms <= server_unix_ms()) {
        atomic_fetch_add_explicit(&replay->server->load_expired, 1, memory_order_relaxed);
        return replay_expired(replay, h->id);
    }
    int status = bloom_class_get(replay->server->pool, &h->params, &h->shape, &class, err);
    if (status == 0) {
        status = registry_create_filter(replay->server->registry, name, h->id, class, &entry, err);
        bloom_class_release(class);
    }
    if (status == REGISTRY_EXISTS) {
        /* Not from what we have written: something of the log or of the save is missing. */
        errbuf_set(err, "there is another one with its name; the daemon can be started without it with --aof-load-damaged yes");
        if (replay->accept_loss) {
            log_warning(&replay->server->log, "filter %" PRIu64 " of the log is left out: there is another one with its name", h->id);
            replay->summary.left_out++;
            return 0;
        }
    }
    if (status == 0)
        status = fill(h, entry, err);
    if (status == 0 && h->expires_ms)
        status = registry_expire(replay->server->registry, name, h->expires_ms, 0);
    if (status == 0)
        status = replay_loaded(replay, h->id, entry, 0);
    if (status == 0)
        replay->summary.created++;
    else
        errbuf_prefix(err, "filter %" PRIu64 " of the log cannot be made", h->id);
    return status > 0 ? -EINVAL : status;
}

static int grow(const struct history *h, struct entry *entry, struct errbuf *err)
{
    struct bloom_filter *filter = entry_filter(entry);
    unsigned index;
    int status = 0;
    while (status == 0 && (index = bloom_filter_nlayers(filter)) < BLOOM_MAX_LAYERS && h->grown[index].nwords) {
        status = bloom_filter_append_layer(filter, &h->grown[index], err);
        entry_mark_dirty(entry);
    }
    if (status)
        errbuf_prefix(err, "filter %" PRIu64 " cannot grow as the log says", h->id);
    return status > 0 ? -EINVAL : status;
}

int replay_filters(struct replay *replay, struct errbuf *err)
{
    int status = 0;
    for (size_t i = 0; i < replay->histories.nslots && status == 0; i++) {
        struct history *h = replay->histories.slots[i].value;
        if (replay->histories.slots[i].id == 0 || h->fate != STORE_KEPT)
            continue;
        struct target *target = id_map_get(&replay->targets, h->id);
        if (!target && h->created) {
            status = create(replay, h, err);
            target = id_map_get(&replay->targets, h->id);
        }
        if (status == 0 && target && target->entry && h->grown)
            status = grow(h, target->entry, err);
        if (target && target->entry && (h->renamed || h->expiry_changed))
            entry_mark_dirty(target->entry);
    }
    return status;
}

/* ---- adds ------------------------------------------------------------------------------------------------------------ */

struct adder {
    struct replay *replay;
    struct log_reader *reader;
    _Atomic size_t *next;
    uint64_t segment;
    struct replay_summary summary;
    int status;
    struct errbuf err;
    pthread_t thread;
    uint64_t last_id; /* adds of one filter come in runs */
    struct target *last;
};

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct adder *adder = ctx;
    if (id != adder->last_id) {
        adder->last_id = id;
        note_id(&adder->summary, id);
        adder->last = id_map_get(&adder->replay->targets, id);
    }
    const struct target *target = adder->last;
    if (!target) {
        adder->summary.ignored += n;
        return 0;
    }
    if (!target->entry) {
        adder->summary.quarantined += n;
        return 0;
    }
    struct bloom_filter *filter = entry_filter(target->entry);
    if (layer >= bloom_filter_nlayers(filter)) { /* its growth would be in the log before it */
        adder->summary.ignored += n;
        return 0;
    }
    uint64_t counted = layer < target->nlayers ? target->counted[layer] : 0;
    if (adder->segment < target->since)
        counted = UINT64_MAX;
    adder->summary.counted += bloom_filter_replay(filter, layer, counted, items, n);
    adder->summary.adds += n;
    entry_mark_dirty(target->entry);
    return 0;
}

static void *adder_main(void *arg)
{
    struct adder *adder = arg;
    size_t i;
    while (adder->status == 0 && (i = atomic_fetch_add(adder->next, 1)) < log_reader_segments(adder->reader)) {
        adder->segment = log_reader_number(adder->reader, i);
        adder->status = log_reader_adds(adder->reader, i, on_adds, adder, &adder->err);
    }
    return NULL;
}

static void add_summary(struct replay_summary *sum, const struct replay_summary *part)
{
    note_id(sum, part->highest_id);
    sum->adds += part->adds;
    sum->counted += part->counted;
    sum->ignored += part->ignored;
    sum->quarantined += part->quarantined;
}

int replay_adds(struct replay *replay, struct log_reader *reader, unsigned nthreads, struct replay_summary *summary_out,
                struct errbuf *err)
{
    _Atomic size_t next = 0;
    if (nthreads > log_reader_segments(reader))
        nthreads = (unsigned)log_reader_segments(reader);
    struct adder *adders = calloc(nthreads + 1u, sizeof(*adders));
    unsigned started = 1;
    int status = 0;
    if (!adders)
        return -ENOMEM;
    for (unsigned i = 0; i <= nthreads; i++)
        adders[i] = (struct adder){.replay = replay, .reader = reader, .next = &next};
    for (; started < nthreads; started++)
        if (pthread_create(&adders[started].thread, NULL, adder_main, &adders[started]) != 0)
            break; /* the others do its work */
    adder_main(&adders[0]);
    for (unsigned i = 0; i < started; i++) {
        if (i > 0)
            pthread_join(adders[i].thread, NULL);
        add_summary(&replay->summary, &adders[i].summary);
        if (adders[i].status && !status) {
            status = adders[i].status;
            *err = adders[i].err;
        }
    }
    free(adders);
    *summary_out = replay->summary;
    return status;
}
