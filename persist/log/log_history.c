#include "log_history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "id_map.h"

/* Filters in the order of their first records. A walk over a million, or freeing them, is several times as fast in this
 * order as in that of the map. */
#define BLOCK_FILTERS 1024
struct filter_block {
    struct filter_block *next;
    size_t used;
    struct log_filter filters[BLOCK_FILTERS];
};

struct log_history {
    struct log_history_options options;
    bool broken;                        /* later records of this process are valid only with a later save */
    bool cleared;                       /* filters without a history of their own are gone */
    uint64_t *databases_cleared;        /* the number of the last record that has cleared each; NULL: none */
    uint16_t stands_for[DATABASES_MAX]; /* the internal number of a client's, plus one; 0: as in the save */
    struct id_map filters;              /* struct log_filter, in the blocks */
    struct filter_block *first, *last;
    uint64_t highest_id;
    uint64_t unjoined;
};

int log_history_create(struct log_history **history_out, const struct log_history_options *options)
{
    struct log_history *history = calloc(1, sizeof(*history));

    if (!history)
        return -ENOMEM;
    history->options = *options;
    *history_out = history;
    return 0;
}

static void drop_contents(struct log_filter *filter)
{
    free(filter->contents);
    filter->contents = NULL;
    filter->contents_len = 0;
}

void log_history_destroy(struct log_history *history)
{
    if (!history)
        return;
    for (struct filter_block *block = history->first, *next; block; block = next) {
        for (size_t i = 0; i < block->used; i++) {
            drop_contents(&block->filters[i]);
            free(block->filters[i].name);
            free(block->filters[i].grown);
        }
        next = block->next;
        free(block);
    }
    id_map_deinit(&history->filters);
    free(history->databases_cleared);
    free(history);
}

/* Zeroed; NULL: no memory. It is not used until it is counted. */
static struct log_filter *next_place(struct log_history *history)
{
    struct filter_block *block = history->last;

    if (!block || block->used == BLOCK_FILTERS) {
        block = calloc(1, sizeof(*block));
        if (!block)
            return NULL;
        *(history->last ? &history->last->next : &history->first) = block;
        history->last = block;
    }
    return &block->filters[block->used];
}

/* If all filters were cleared, a history that does not begin with a new filter belongs to a cleared one. */
static struct log_filter *filter_of(struct log_history *history, uint64_t id)
{
    struct log_filter *filter = id_map_get(&history->filters, id);

    if (filter)
        return filter;
    filter = next_place(history);
    if (!filter || id_map_set(&history->filters, id, filter) != 0)
        return NULL;
    history->last->used++;
    filter->id = id;
    filter->gone = history->cleared;
    return filter;
}

static int end_filter(struct log_history *history, uint64_t id)
{
    if (id == 0)
        return 0;
    struct log_filter *filter = filter_of(history, id);
    if (!filter)
        return -ENOMEM;
    filter->gone = true;
    drop_contents(filter);
    return 0;
}

static int set_name(struct log_filter *filter, const struct log_control *control)
{
    char *name = malloc(control->name_len ? control->name_len : 1);

    if (!name)
        return -ENOMEM;
    if (control->name_len)
        memcpy(name, control->name, control->name_len);
    free(filter->name);
    filter->name = name;
    filter->name_len = control->name_len;
    return 0;
}

static int note_created(struct log_filter *filter, const struct log_control *control)
{
    filter->gone = false;
    filter->created = true;
    filter->params = control->params;
    filter->shape = control->shape;
    filter->expires_ms = control->expires_ms;
    drop_contents(filter);
    return set_name(filter, control);
}

/* The contents are kept until the filter is deleted: they take no more memory than the filter itself will. */
static int note_filled(struct log_filter *filter, const struct log_control *control, struct errbuf *err)
{
    struct log_contents contents;
    TRY(note_created(filter, control));
    if (!log_contents_decode(control->record, control->record_len, &contents)) { /* log_payload_decode() has checked */
        return errbuf_fail(err, LOG_DAMAGED, "the contents of filter %" PRIu64 " are not valid", filter->id);
    }
    filter->shape = contents.layers[0].shape;
    filter->contents = malloc(control->record_len);
    if (!filter->contents)
        return -ENOMEM;
    memcpy(filter->contents, control->record, control->record_len);
    filter->contents_len = control->record_len;
    return 0;
}

static int note_growth(struct log_filter *filter, uint64_t number, const struct log_control *control)
{
    if (control->layer >= filter->ngrown) {
        unsigned n = filter->ngrown ? filter->ngrown : 4;

        while (n <= control->layer)
            n *= 2;
        struct log_grown *grown = realloc(filter->grown, n * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        memset(grown + filter->ngrown, 0, (n - filter->ngrown) * sizeof(*grown));
        filter->grown = grown;
        filter->ngrown = n;
    }
    filter->grown[control->layer].shape = control->shape;
    filter->grown_number = number;
    return 0;
}

/* Of the turns of a layer the last one counts: records of an older process may come again. */
static int note_turn(struct log_filter *filter, uint64_t number, const struct log_control *control)
{
    if (control->layer < filter->ngrown && filter->grown[control->layer].turn.number >= control->turn.number)
        return 0;
    TRY(note_growth(filter, number, control));
    filter->grown[control->layer].turn = control->turn;
    filter->turns = true;
    return 0;
}

static void clear(struct log_history *history)
{
    history->cleared = true;
    for (struct filter_block *block = history->first; block; block = block->next) {
        for (size_t i = 0; i < block->used; i++) {
            struct log_filter *filter = &block->filters[i];
            filter->gone = true;
            drop_contents(filter);
        }
    }
}

/* Those whose names are not in the log have the name of the save or of their record: resolving tells their database. */
static int clear_database(struct log_history *history, uint64_t number, unsigned database)
{
    if (!history->databases_cleared)
        history->databases_cleared = calloc(DATABASES_MAX, sizeof(*history->databases_cleared));
    if (!history->databases_cleared)
        return -ENOMEM;
    history->databases_cleared[database] = number;
    for (struct filter_block *block = history->first; block; block = block->next) {
        for (size_t i = 0; i < block->used; i++) {
            struct log_filter *filter = &block->filters[i];
            if (!filter->name || database_of_key(filter->name, filter->name_len) != database)
                continue;
            filter->gone = true;
            drop_contents(filter);
        }
    }
    return 0;
}

/* Whether a filter with this present key was deleted when its database was cleared. `filter` NULL: the log has nothing
 * else about it. */
static bool went_with_database(const struct log_history *history, const struct log_filter *filter, const char *key,
                               size_t len)
{
    if (!history->databases_cleared || (filter && filter->name)) /* noted by clear_database() */
        return false;
    return (filter ? filter->loaded : 0) < history->databases_cleared[database_of_key(key, len)];
}

static int note_change(struct log_history *history, struct log_filter *filter, uint64_t number,
                       const struct log_control *control, struct errbuf *err)
{
    switch (control->kind) {
    case LOG_CREATE:
        return note_created(filter, control);
    case LOG_FILLED:
        return note_filled(filter, control, err);
    case LOG_LOADED:
        filter->gone = false;
        filter->loaded = number;
        return history->options.on_written(history->options.ctx, control, err);
    case LOG_RENAME:
        filter->renamed = true;
        return set_name(filter, control);
    case LOG_EXPIRY:
        filter->expiry_changed = true;
        filter->expires_ms = control->expires_ms;
        return 0;
    case LOG_GROW:
        return note_growth(filter, number, control);
    case LOG_TURN:
        return note_turn(filter, number, control);
    case LOG_DELETE:
    case LOG_FORGET:
        return end_filter(history, control->id);
    case LOG_CLEAR:
    case LOG_BREAK:
    case LOG_CLEAR_DATABASE:
    case LOG_SWAP:
        break;
    }
    return 0;
}

int log_history_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct log_history *history = ctx;

    if (control->id > history->highest_id)
        history->highest_id = control->id;
    /* A layer is noted before it can be seen: the save may lack it, though it has later notes. */
    bool layer = control->kind == LOG_GROW || control->kind == LOG_TURN;
    if (number <= history->options.control && !layer)
        return 0;
    if (control->kind == LOG_BREAK) {
        history->broken = true;
        return 0;
    }
    /* An add or a layer stays true of its filter, with any other changes. */
    if (history->broken && !layer) {
        history->unjoined++;
        return 0;
    }
    if (control->kind == LOG_CLEAR) {
        clear(history);
        return 0;
    }
    if (control->kind == LOG_SWAP) {
        for (int i = 0; i < 2; i++)
            history->stands_for[control->swap[i].number] = (uint16_t)(control->swap[i].database + 1);
        return 0;
    }
    if (control->kind == LOG_CLEAR_DATABASE) {
        int status = clear_database(history, number, control->database);
        if (status == -ENOMEM)
            errbuf_set(err, "out of memory");
        return status;
    }
    struct log_filter *filter = filter_of(history, control->id);
    int rc = filter ? note_change(history, filter, number, control, err) : -ENOMEM;
    STEP(rc, end_filter(history, control->replaced_id));
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    return rc;
}

/* The next process continued after the records that have been read so far. */
void log_history_process(void *ctx)
{
    ((struct log_history *)ctx)->broken = false;
}

bool log_history_resolve(const struct log_history *history, struct store_filter *info)
{
    const struct log_filter *filter = log_history_get(history, info->id);

    if (went_with_database(history, filter, info->name, info->name_len))
        return false;
    if (!filter)
        return !history->cleared;
    if (filter->renamed) {
        info->name = filter->name;
        info->name_len = filter->name_len;
    }
    if (filter->expiry_changed)
        info->expires_ms = filter->expires_ms;
    return !filter->gone;
}

void log_history_databases(const struct log_history *history, struct databases *databases)
{
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        if (history->stands_for[i])
            databases_set(databases, i, history->stands_for[i] - 1u);
}

const struct log_filter *log_history_get(const struct log_history *history, uint64_t id)
{
    return id_map_get(&history->filters, id);
}

bool log_history_growth_is_settled(const struct log_history *history, const struct log_filter *filter)
{
    return history->options.accepted && filter->grown_number <= history->options.control;
}

void log_history_drop_contents(struct log_history *history, uint64_t id)
{
    struct log_filter *filter = id_map_get(&history->filters, id);

    if (filter)
        drop_contents(filter);
}

const struct log_filter *log_history_next(const struct log_history *history, struct log_history_place *at)
{
    const struct filter_block *block = at->block ? at->block : history->first;

    if (block && at->index == block->used && block->next) { /* the last one may be empty */
        block = block->next;
        at->index = 0;
    }
    at->block = block;
    return block && at->index < block->used ? &block->filters[at->index++] : NULL;
}

uint64_t log_history_highest_id(const struct log_history *history)
{
    return history->highest_id;
}

uint64_t log_history_unjoined(const struct log_history *history)
{
    return history->unjoined;
}
