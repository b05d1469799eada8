#include "datadir_make.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "check.h"
#include "log_payload.h"
#include "log_payload_internal.h"
#include "log_append.h"
#include "log_writer.h"
#include "store_loader.h"

#define STEPS            24
#define FILTERS          12
#define FILTER_BYTES_MAX (256 << 10)
#define GONE_MS          1
#define LATER_MS         INT64_C(95617584000000)

struct filter {
    uint64_t id;
    unsigned name;
    int64_t expires_ms;
    struct bloom_filter *filter; /* NULL: none */
    bool dirty;
};

struct maker {
    struct recipe *recipe;
    const char *dir;
    struct bloom_pool *pool;
    struct store *store;
    struct log_writer *writer;
    struct filter filters[FILTERS];
    uint64_t next_id, next_control, next_segment;
    uint64_t items;           /* number of different added items */
    struct log_bytes records; /* of the next frame */
    struct log_bytes adds;
    uint64_t nrecords;
    size_t walked; /* by the save under way */
    uint64_t segment;
    uint64_t pack_limit;
    bool wild;
};

#define NAMES 12
static char long_names[2][300];
static const struct {
    const char *ptr;
    size_t len;
} names[NAMES] = {
    {"a", 1},    {"b", 1},        {"urls", 4},          {"", 0},
    {".", 1},    {"..", 2},       {"a/b", 3},           {"%~1", 3},
    {"x%41", 4}, {"\0\xff\n", 3}, {long_names[0], 100}, {long_names[1], 300},
};

static const struct bloom_params params[] = {
    {20, 0.01, 2}, {100, 0.001, 0}, {10, 0.3, 1}, {500, 0.01, 4}, {20000, 0.01, 0}, {7, 0.0000001, 1},
};

uint64_t datadir_digest(uint64_t id, const char *name, size_t name_len, int64_t expires_ms,
                        const struct bloom_filter *filter)
{
    uint64_t numbers[8] = {id, (uint64_t)expires_ms, filter != NULL};
    uint64_t sum = XXH3_64bits_withSeed(name, name_len, 1);

    if (filter) {
        const struct bloom_params *p = bloom_filter_params(filter);
        numbers[3] = p->capacity;
        numbers[4] = p->expansion;
        memcpy(&numbers[5], &p->error_rate, 8);
        numbers[6] = bloom_filter_nlayers(filter);
    }
    sum = XXH3_64bits_withSeed(numbers, sizeof(numbers), sum);
    for (unsigned i = 0; filter && i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        uint64_t layer[4] = {view.shape.nwords, view.shape.k, view.shape.variant, view.items};
        uint64_t looked_at =
            view.shape.nwords < 65536 ? view.shape.nwords : 64; /* a log can state filters of gigabytes */
        sum = XXH3_64bits_withSeed(layer, sizeof(layer), sum);
        sum = XXH3_64bits_withSeed((const void *)view.words, (size_t)looked_at * 8, sum);
    }
    return sum;
}

/* ---- the log ---- */

static void open_writer(struct maker *m, uint64_t next_sequence)
{
    const struct log_writer_options options = {
        .dir = m->dir,
        .next_segment = m->next_segment,
        .next_sequence = next_sequence,
        .salt = 42 + m->next_segment,
        .generation = store_number(m->store),
    };

    CHECK(log_writer_create(&options, &m->writer) == 0);
}

static void note(struct maker *m, const struct log_control *control)
{
    CHECK(log_control_encode(&m->records, control) == 0);
    m->nrecords++;
}

static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct maker *m = ctx;
    struct bloom_replay_item item = {hash, ordinal};

    CHECK(log_payload_adds(&m->adds, id, layer, &item, 1) == 0);
}

static int on_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    (void)err;
    note(ctx, &(struct log_control){.kind = LOG_GROW, .id = id, .layer = layer, .shape = *shape});
    return 0;
}

static void end_frame(struct maker *m)
{
    const size_t head = sizeof(struct log_payload_head);

    if (m->nrecords == 0 && m->adds.len == 0)
        return;
    if (m->nrecords) { /* the adds follow, without a head of their own */
        struct log_bytes payload = {0};
        CHECK(log_payload_controls(&payload, m->next_control, &m->records) == 0);
        if (m->adds.len)
            CHECK(log_bytes_append(&payload, m->adds.ptr + head, m->adds.len - head) == 0);
        CHECK(log_append(m->writer, true, &payload, NULL) == 0);
        log_bytes_deinit(&payload);
    } else {
        CHECK(log_append(m->writer, false, &m->adds, NULL) == 0);
    }
    m->next_control += m->nrecords;
    m->nrecords = m->records.len = m->adds.len = 0;
}

static void next_process(struct maker *m)
{
    struct log_writer_info info;

    end_frame(m);
    CHECK(log_writer_sync(m->writer, NULL) == 0);
    log_writer_info(m->writer, &info);
    log_writer_destroy(m->writer);
    if (info.segment)
        m->next_segment = info.segment + 1;
    open_writer(m, info.sequence + 1);
}

/* Contents of a layer that no adds can produce. */
static void fill_anything(struct maker *m, struct log_control *control)
{
    static unsigned char bytes[64];
    struct recipe *r = m->recipe;
    unsigned nwords = 1 + (unsigned)recipe_below(r, 4);
    unsigned char *at = bytes;

    *at++ = (unsigned char)recipe_below(r, 3);
    *at++ = 1;
    *at++ = (unsigned char)(1 + recipe_below(r, BLOOM_MAX_K));
    *at++ = (unsigned char)nwords;
    memset(at, (int)recipe_byte(r), 8 * nwords);
    at = varint_put(at + 8 * nwords, recipe_number(r));
    control->kind = LOG_FILLED;
    control->params = params[recipe_below(r, sizeof(params) / sizeof(*params))];
    unsigned name = (unsigned)recipe_below(r, NAMES);
    control->name = names[name].ptr;
    control->name_len = names[name].len;
    control->record = (const char *)bytes;
    control->record_len = (size_t)(at - bytes);
}

/* Records that the decoder accepts and no daemon writes. */
static void note_anything(struct maker *m)
{
    struct recipe *r = m->recipe;
    unsigned name = (unsigned)recipe_below(r, NAMES);
    struct log_control control = {.kind = (enum log_control_kind)(1 + recipe_below(r, 9)), .id = recipe_number(r)};
    unsigned how;

    m->wild = true;
    switch (control.kind) {
    case LOG_CREATE:
        control.params = params[recipe_below(r, sizeof(params) / sizeof(*params))];
        control.params.capacity += recipe_number(r);
        control.shape =
            (struct bloom_shape){1 + recipe_number(r), (uint8_t)(1 + recipe_below(r, 21)), (uint8_t)recipe_below(r, 3)};
        control.expires_ms = (int64_t)recipe_number(r);
        control.name = names[name].ptr;
        control.name_len = names[name].len;
        control.replaced_id = recipe_number(r);
        break;
    case LOG_RENAME:
        control.name = names[name].ptr;
        control.name_len = names[name].len;
        control.replaced_id = recipe_number(r);
        break;
    case LOG_EXPIRY:
        control.expires_ms = (int64_t)recipe_number(r);
        break;
    case LOG_GROW:
        control.layer = (unsigned)recipe_below(r, BLOOM_MAX_LAYERS);
        control.shape =
            (struct bloom_shape){1 + recipe_number(r), (uint8_t)(1 + recipe_below(r, 21)), (uint8_t)recipe_below(r, 3)};
        break;
    case LOG_LOADED:
        control.record = "filter id=1 name=a capacity=1 error-rate=0.5 expansion=0 variant=na expires-ms=0 layers=1\n"
                         "layer k=1 words=1 items=0 xxh3=0000000000000000 file=1\n";
        control.record_len = strlen(control.record);
        how = recipe_byte(r);
        control.id = how & 1 ? 1 : control.id;
        if (how & 2)
            fill_anything(m, &control);
        break;
    default:
        break;
    }
    note(m, &control);
}

/* ---- filters ---- */

static void drop(struct filter *filter)
{
    if (!filter->filter)
        return;
    bloom_filter_deinit(filter->filter);
    free(filter->filter);
    memset(filter, 0, sizeof(*filter));
}

/* The filter with the name; NULL: none. */
static struct filter *holder(struct maker *m, unsigned name)
{
    for (size_t i = 0; i < FILTERS; i++)
        if (m->filters[i].filter && m->filters[i].name == name)
            return &m->filters[i];
    return NULL;
}

/* Takes the name from its holder; returns the holder's id. */
static uint64_t displace(struct maker *m, unsigned name)
{
    struct filter *old = holder(m, name);
    uint64_t id = old ? old->id : 0;

    if (old)
        drop(old);
    return id;
}

static struct filter *make(struct maker *m, uint64_t *replaced_out)
{
    unsigned name = (unsigned)recipe_below(m->recipe, NAMES);
    const struct bloom_params *p = &params[recipe_below(m->recipe, sizeof(params) / sizeof(*params))];
    struct bloom_class *class;
    struct filter *filter = m->filters;

    *replaced_out = displace(m, name);
    while (filter < m->filters + FILTERS - 1 && filter->filter)
        filter++;
    drop(filter); /* there are as many names as places, so one is free */
    CHECK(bloom_class_get(m->pool, p, NULL, &class, NULL) == 0);
    filter->filter = aligned_alloc(64, (bloom_filter_bytes(class) + 63) & ~(size_t)63);
    CHECK(filter->filter && bloom_filter_init(filter->filter, class, NULL) == 0);
    bloom_class_release(class);
    filter->id = m->next_id++;
    filter->name = name;
    filter->dirty = true;
    return filter;
}

static void create(struct maker *m)
{
    uint64_t replaced;
    struct filter *filter = make(m, &replaced);
    struct bloom_layer_view view;

    bloom_filter_layer(filter->filter, 0, &view);
    note(m, &(struct log_control){.kind = LOG_CREATE,
                                  .id = filter->id,
                                  .replaced_id = replaced,
                                  .name = names[filter->name].ptr,
                                  .name_len = names[filter->name].len,
                                  .params = *bloom_filter_params(filter->filter),
                                  .shape = view.shape});
}

static void fill(struct maker *m, struct filter *filter, size_t n, const struct bloom_journal *journal)
{
    for (; n > 0; n--) {
        m->items++;
        (void)bloom_filter_add_journaled(filter->filter, murmur3_hash(&m->items, sizeof(m->items)), journal, NULL);
    }
    filter->dirty = true;
}

static void add(struct maker *m, struct filter *filter)
{
    static const struct bloom_journal_ops ops = {on_add, on_grow};
    const struct bloom_journal journal = {&ops, m, filter->id};

    fill(m, filter, 1 + recipe_below(m->recipe, 80), &journal);
}

static void note_files(struct maker *m, const struct filter *filter, uint64_t replaced)
{
    struct store_record record;
    struct errbuf err = {""};
    const struct store_item item = {.id = filter->id,
                                    .name = names[filter->name].ptr,
                                    .name_len = names[filter->name].len,
                                    .filter = filter->filter};

    CHECK(store_write(m->store, &item, &record, &err) == 0);
    note(m, &(struct log_control){.kind = LOG_LOADED,
                                  .id = filter->id,
                                  .replaced_id = replaced,
                                  .record = record.text,
                                  .record_len = record.len});
    note(m, &(struct log_control){.kind = LOG_EXPIRY, .id = filter->id});
    store_published(m->store, filter->id);
    free(record.text);
}

/* False: they are too large for that. */
static bool note_contents(struct maker *m, const struct filter *filter, uint64_t replaced)
{
    struct log_bytes contents = {0};
    int rc = log_contents_encode(&contents, filter->filter, LOG_CONTENTS_MAX);

    if (rc == LOG_CONTENTS_LARGE)
        return false;
    CHECK(rc == 0);
    note(m, &(struct log_control){.kind = LOG_FILLED,
                                  .id = filter->id,
                                  .replaced_id = replaced,
                                  .name = names[filter->name].ptr,
                                  .name_len = names[filter->name].len,
                                  .params = *bloom_filter_params(filter->filter),
                                  .record = (const char *)contents.ptr,
                                  .record_len = contents.len});
    log_bytes_deinit(&contents);
    return true;
}

/* A filter that is created with contents: in files, or in the log. */
static void publish(struct maker *m, bool in_log)
{
    uint64_t replaced;
    struct filter *filter = make(m, &replaced);

    fill(m, filter, recipe_below(m->recipe, 60), NULL);
    filter->dirty = in_log && note_contents(m, filter, replaced);
    if (!filter->dirty)
        note_files(m, filter, replaced);
}

static void rename_filter(struct maker *m, struct filter *filter)
{
    unsigned name = (unsigned)recipe_below(m->recipe, NAMES);

    if (name == filter->name)
        return;
    note(m, &(struct log_control){.kind = LOG_RENAME,
                                  .id = filter->id,
                                  .replaced_id = displace(m, name),
                                  .name = names[name].ptr,
                                  .name_len = names[name].len});
    filter->name = name;
}

/* ---- saves ---- */

static int on_next(void *ctx, struct store_item *item_out)
{
    struct maker *m = ctx;

    while (m->walked < FILTERS && !m->filters[m->walked].filter)
        m->walked++;
    if (m->walked == FILTERS)
        return 0;
    struct filter *filter = &m->filters[m->walked++];
    *item_out = (struct store_item){.id = filter->id,
                                    .name = names[filter->name].ptr,
                                    .name_len = names[filter->name].len,
                                    .filter = filter->filter,
                                    .dirty = filter->dirty,
                                    .expires_ms = filter->expires_ms};
    filter->dirty = false;
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)ctx, (void)item;
}

static uint64_t on_next_id(void *ctx)
{
    return ((struct maker *)ctx)->next_id;
}

static int on_checkpoint(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err)
{
    struct maker *m = ctx;
    struct log_writer_info info;
    int rc = log_writer_sync(m->writer, err);

    log_writer_info(m->writer, &info);
    *checkpoint_out =
        (struct store_checkpoint){.log = m->segment, .control = m->next_control - 1, .frame = info.synced};
    return rc;
}

static void save(struct maker *m)
{
    static const uint64_t limits[] = {16384, 0, 200};
    unsigned how = recipe_byte(m->recipe);
    struct errbuf err = {""};
    struct store_save_summary summary;
    const struct store_source source = {.next = on_next,
                                        .release = on_release,
                                        .next_id = on_next_id,
                                        .checkpoint = on_checkpoint,
                                        .ctx = m,
                                        .pack_limit = limits[how % 3]};

    end_frame(m);
    CHECK(log_writer_rotate(m->writer, &m->segment, &err) == 0);
    m->walked = 0;
    CHECK(store_save(m->store, &source, &summary, &err) == 0);
    if (how & 0x80)
        CHECK(log_delete_before(fsops_posix(), m->dir, m->segment, &err) == 0);
}

/* ---- the whole ---- */

static struct bloom_filter *no_filter(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                      void **user_out, struct errbuf *err)
{
    (void)ctx, (void)info, (void)class, (void)user_out, (void)err;
    return NULL;
}

static void open_all(struct maker *m)
{
    const struct store_loader loader = {.alloc = no_filter};
    struct store_load_summary summary;
    struct errbuf err = {""};

    CHECK(bloom_pool_create(&m->pool) == 0);
    bloom_pool_set_limits(m->pool, FILTER_BYTES_MAX, 0); /* late layers of the smallest filters would be gigabytes */
    CHECK(store_open(m->dir, NULL, &m->store, &err) == 0);
    CHECK(store_load(m->store, m->pool, 1, &loader, &summary, &err) == 0); /* there are none yet */
    m->next_id = m->next_control = m->next_segment = 1;
    open_writer(m, 1);
}

/* The steps of one filter. */
static void step_filter(struct maker *m, struct filter *filter, unsigned what)
{
    if (what <= 13) {
        note(m, &(struct log_control){.kind = LOG_DELETE, .id = filter->id});
        drop(filter);
    } else if (what <= 16) {
        rename_filter(m, filter);
    } else if (what == 17) {
        filter->expires_ms = recipe_byte(m->recipe) % 4 == 1 ? GONE_MS : LATER_MS;
        note(m, &(struct log_control){.kind = LOG_EXPIRY, .id = filter->id, .expires_ms = filter->expires_ms});
    } else {
        add(m, filter);
    }
}

/* The numbers are in the kept recipes: their meanings must not change. */
static bool step(struct maker *m)
{
    unsigned what = (unsigned)recipe_below(m->recipe, 32), which = (unsigned)recipe_below(m->recipe, FILTERS);
    struct filter *filter = &m->filters[which];

    if (!filter->filter)
        filter = m->filters[0].filter ? &m->filters[0] : NULL;
    if (what == 0)
        return false;
    if (what == 1) {
        note_anything(m);
    } else if (what == 2) {
        publish(m, which % 2 == 1);
    } else if (what <= 6) {
        save(m);
    } else if (what <= 9) {
        end_frame(m);
    } else if (what == 10) {
        next_process(m);
    } else if (what == 11) {
        note(m, &(struct log_control){.kind = LOG_CLEAR});
        for (size_t i = 0; i < FILTERS; i++)
            drop(&m->filters[i]);
    } else if (what > 24) {
        create(m);
    } else if (filter) {
        step_filter(m, filter, what);
    }
    return true;
}

void datadir_make(const char *dir, struct recipe *recipe, struct made *made_out)
{
    struct maker m = {.recipe = recipe, .dir = dir};

    memset(long_names[0], 'n', sizeof(long_names[0]));
    memset(long_names[1], 'm', sizeof(long_names[1]));
    open_all(&m);
    for (int i = 0; i < STEPS && recipe_more(recipe) && step(&m); i++)
        ;
    end_frame(&m);
    if (recipe_byte(recipe) & 1)
        CHECK(log_writer_sync(m.writer, NULL) == 0);
    *made_out = (struct made){.wild = m.wild};
    for (size_t i = 0; i < FILTERS; i++) {
        const struct filter *f = &m.filters[i];
        if (f->filter && f->expires_ms != GONE_MS) {
            made_out->digest += datadir_digest(f->id, names[f->name].ptr, names[f->name].len, f->expires_ms, f->filter);
            made_out->filters++;
        }
        drop(&m.filters[i]);
    }
    log_writer_destroy(m.writer);
    log_bytes_deinit(&m.records);
    log_bytes_deinit(&m.adds);
    store_close(m.store);
    bloom_pool_destroy(m.pool);
}
