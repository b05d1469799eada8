/* A payload is read front to back, once. Its items have the form in which workers record them. */
#include "log_payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "cuckoo.h"
#include "database.h"
#include "filterdb.h"
#include "log_payload_internal.h"
#include "manifest.h"
#include "bloom_layout.h"

#define BYTES_MIN_SIZE 4096

/* ---- bytes ---- */

int log_bytes_reserve(struct log_bytes *bytes, size_t more)
{
    size_t size = bytes->size ? bytes->size : BYTES_MIN_SIZE;

    if (more > SIZE_MAX / 4 - bytes->len)
        return -ENOMEM;
    if (bytes->size - bytes->len >= more)
        return 0;
    while (size - bytes->len < more)
        size *= 2;
    unsigned char *ptr = realloc(bytes->ptr, size);
    if (!ptr)
        return -ENOMEM;
    bytes->ptr = ptr;
    bytes->size = size;
    return 0;
}

int log_bytes_append(struct log_bytes *bytes, const void *from, size_t len)
{
    int rc = log_bytes_reserve(bytes, len);

    if (rc == 0 && len) {
        memcpy(bytes->ptr + bytes->len, from, len);
        bytes->len += len;
    }
    return rc;
}

void log_bytes_deinit(struct log_bytes *bytes)
{
    free(bytes->ptr);
    *bytes = (struct log_bytes){0};
}

/* ---- parameters of filters, and shapes of layers ---- */

#define LOG_SHAPE_MAX  64                          /* bytes of a shape */
#define LOG_PARAMS_MAX (48 + 8 + BLOOM_SEED_BYTES) /* bytes of parameters */
#define LOG_TURN_MAX   32                          /* bytes of a turn */

#define HAS_LEVEL  0x80 /* in the byte of the layout: a level follows the words */
#define HAS_WINDOW 0x80 /* in the byte of RedisBloom's options: a window follows */
/* There, too: a key's id follows the window; then tightening ratio and seed, and iterations of a cuckoo filter. */
#define HAS_KEY 0x40

static unsigned char *put_shape(unsigned char *at, const struct bloom_shape *shape)
{
    *at++ = shape->k;
    *at++ = (unsigned char)(shape->variant | (shape->level ? HAS_LEVEL : 0));
    at = varint_put(at, shape->nwords);
    if (shape->level)
        at = varint_put(at, shape->level);
    if (!bloom_layout_of(shape->variant)->own_numbers)
        return at;
    *at++ = shape->n2;
    *at++ = shape->spare_bytes;
    at = varint_put(at, shape->capacity);
    at = le_double_put(at, shape->error_rate);
    return le_double_put(at, shape->bpe);
}

static unsigned char *put_params(unsigned char *at, const struct bloom_params *params)
{
    at = varint_put(at, params->capacity);
    at = le_double_put(at, params->error_rate);
    at = varint_put(at, params->expansion);
    *at++ = (unsigned char)(params->redisbloom | (params->window ? HAS_WINDOW : 0) | (params->key ? HAS_KEY : 0));
    if (params->window) {
        *at++ = params->window_flags;
        *at++ = (unsigned char)params->window_parts;
        at = varint_put(at, params->window);
    }
    if (params->key)
        at = le64_put(at, params->key);
    if (bloom_params_have_seed(params)) {
        at = le_double_put(at, params->tightening);
        memcpy(at, &params->seed, BLOOM_SEED_BYTES);
        at += BLOOM_SEED_BYTES;
    }
    return bloom_params_is_cuckoo(params) ? varint_put(at, params->iterations) : at;
}

static unsigned char *put_turn(unsigned char *at, const struct bloom_turn *turn)
{
    at = varint_put(at, turn->number);
    at = varint_put(at, turn->base);
    return varint_put(at, (uint64_t)turn->started_us);
}

static void get_shape(struct cursor *c, struct bloom_shape *shape)
{
    *shape = (struct bloom_shape){.k = cursor_byte(c)};
    uint8_t variant = cursor_byte(c);
    shape->variant = variant & (HAS_LEVEL - 1);
    shape->nwords = cursor_number(c);
    if (variant & HAS_LEVEL) {
        uint64_t level = cursor_number(c);
        c->bad |= level < 1 || level >= BLOOM_MAX_LAYERS;
        shape->level = (uint16_t)level;
    }
    if (bloom_layout_of(shape->variant)->own_numbers) {
        shape->n2 = cursor_byte(c);
        shape->spare_bytes = cursor_byte(c);
        shape->capacity = cursor_number(c);
        shape->error_rate = cursor_double(c);
        shape->bpe = cursor_double(c);
    }
    c->bad = c->bad || !bloom_shape_valid(shape, NULL);
}

static void get_params(struct cursor *c, struct bloom_params *params)
{
    *params = (struct bloom_params){.capacity = cursor_number(c)};
    params->error_rate = cursor_double(c);
    uint64_t expansion = cursor_number(c);
    c->bad |= expansion > UINT32_MAX;
    params->expansion = (uint32_t)expansion;
    uint8_t options = cursor_byte(c);
    params->redisbloom = options & (HAS_KEY - 1);
    if (options & HAS_WINDOW) {
        params->window_flags = cursor_byte(c);
        params->window_parts = cursor_byte(c);
        params->window = cursor_number(c);
        c->bad |= params->window == 0;
    }
    if (options & HAS_KEY) {
        params->key = cursor_u64(c);
        c->bad |= params->key == 0;
    }
    if (bloom_params_have_seed(params)) {
        params->tightening = cursor_double(c);
        const unsigned char *seed = cursor_bytes(c, BLOOM_SEED_BYTES);
        if (seed)
            memcpy(&params->seed, seed, BLOOM_SEED_BYTES);
    }
    if (bloom_params_is_cuckoo(params)) {
        uint64_t iterations = cursor_number(c);
        c->bad |= iterations > UINT16_MAX;
        params->iterations = (uint16_t)iterations;
    }
    c->bad = c->bad || !bloom_params_valid(params, NULL);
}

static void get_turn(struct cursor *c, struct bloom_turn *turn)
{
    turn->number = cursor_number(c);
    turn->base = cursor_number(c);
    turn->started_us = (int64_t)cursor_number(c);
    c->bad = c->bad || !bloom_turn_valid(turn);
}

/* ---- contents ---- */

#define LAYER_HEAD_MAX (LOG_SHAPE_MAX + VARINT_MAX + LOG_TURN_MAX) /* shape, count of items, turn */
#define HEAD_MAX       VARINT_MAX                                  /* count of layers */
#define TURNS_HEAD     4096                                        /* above any count of layers: they have turns */

int log_contents_encode(struct log_bytes *bytes, const struct bloom_filter *filter, size_t max_bytes)
{
    unsigned nlayers = bloom_filter_nlayers(filter); /* it may grow meanwhile; the log has the growth */
    bool turns = bloom_params_have_turns(bloom_filter_params(filter));
    struct bloom_layer_view view;
    uint64_t words = 0;

    for (unsigned i = 0; i < nlayers; i++) {
        bloom_filter_layer(filter, i, &view);
        words += view.shape.nwords;
    }
    if (words > max_bytes / 8)
        return LOG_CONTENTS_LARGE;
    TRY(log_bytes_reserve(bytes, HEAD_MAX + nlayers * LAYER_HEAD_MAX + (size_t)words * 8));
    unsigned char *at = bytes->ptr + bytes->len;
    at = varint_put(at, nlayers + (turns ? TURNS_HEAD : 0));
    for (unsigned i = 0; i < nlayers; i++) {
        bloom_filter_layer(filter, i, &view);
        const struct bloom_turn turn = bloom_layer_turn(&view); /* before the bits */
        at = put_shape(at, &view.shape);
        filterdb_encode_words(BLOOM_NA, view.words, (size_t)view.shape.nwords, at);
        at += view.shape.nwords * 8;
        atomic_thread_fence(memory_order_acquire); /* an add takes its place, then sets its bits */
        bloom_filter_layer(filter, i, &view);
        at = varint_put(at, view.ordinal);
        if (turns)
            at = put_turn(at, &turn);
    }
    bytes->len = (size_t)(at - bytes->ptr);
    return 0;
}

static void decode_layer(struct cursor *c, bool turns, struct log_layer *layer)
{
    layer->turn = (struct bloom_turn){0};
    get_shape(c, &layer->shape);
    c->bad |= layer->shape.nwords > LOG_CONTENTS_MAX / 8;
    layer->words = c->bad ? NULL : cursor_bytes(c, layer->shape.nwords * 8);
    layer->items = cursor_number(c);
    if (turns)
        get_turn(c, &layer->turn);
}

bool log_contents_decode(const void *bytes, size_t len, struct log_contents *contents_out)
{
    struct log_layer *layers = contents_out->layers;
    struct cursor c = cursor_of(bytes, len);
    uint64_t words = 0, nlayers = cursor_number(&c);

    contents_out->turns = nlayers > TURNS_HEAD;
    nlayers -= contents_out->turns ? TURNS_HEAD : 0;
    if (c.bad || nlayers < 1 || nlayers > BLOOM_MAX_LAYERS)
        return false;
    for (unsigned i = 0; !c.bad && i < nlayers; i++) {
        decode_layer(&c, contents_out->turns, &layers[i]);
        c.bad |= layers[i].shape.variant != layers[0].shape.variant;
        words += layers[i].shape.nwords;
    }
    contents_out->nlayers = (unsigned)nlayers;
    return !c.bad && c.at == c.end && words <= LOG_CONTENTS_MAX / 8;
}

int log_contents_fill(const struct log_contents *contents, struct bloom_filter *filter, struct errbuf *err)
{
    if (contents->turns != bloom_params_have_turns(bloom_filter_params(filter)))
        return errbuf_fail(err, BLOOM_REFUSED, "its layers have %s", contents->turns ? "turns" : "no turns");
    for (unsigned i = 0; i < contents->nlayers; i++) {
        const struct log_layer *layer = &contents->layers[i];
        struct bloom_layer_view view;
        int rc = i > 0 ? bloom_filter_append_layer(filter, &layer->shape, err) : 0;

        if (rc == -ENOMEM)
            errbuf_set(err, "out of memory");
        if (rc != 0)
            return rc;
        bloom_filter_layer(filter, i, &view);
        filterdb_decode_words(BLOOM_NA, layer->words, (size_t)layer->shape.nwords, view.words);
        bloom_filter_set_items(filter, i, layer->items);
        if (contents->turns)
            bloom_filter_set_turn(filter, i, &layer->turn);
    }
    if (bloom_params_is_cuckoo(bloom_filter_params(filter)))
        cuckoo_recount(filter);
    return 0;
}

/* ---- the fields of a kind ---- */

#define OF(kind)    (1u << (kind))
#define OF_NO_ID    (OF(LOG_CLEAR) | OF(LOG_BREAK) | OF(LOG_CLEAR_DATABASE) | OF(LOG_SWAP))
#define OF_REPLACED (OF(LOG_CREATE) | OF(LOG_LOADED) | OF(LOG_RENAME) | OF(LOG_FILLED))
#define OF_NAME     (OF(LOG_CREATE) | OF(LOG_RENAME) | OF(LOG_FILLED))
#define OF_EXPIRY   (OF(LOG_CREATE) | OF(LOG_EXPIRY) | OF(LOG_FILLED))
#define OF_PARAMS   (OF(LOG_CREATE) | OF(LOG_FILLED))
#define OF_LAYER    (OF(LOG_GROW) | OF(LOG_TURN))
#define OF_SHAPE    (OF(LOG_CREATE) | OF(LOG_GROW) | OF(LOG_TURN))
#define OF_TURN     OF(LOG_TURN)
#define OF_RECORD   (OF(LOG_LOADED) | OF(LOG_FILLED))
#define OF_DATABASE OF(LOG_CLEAR_DATABASE)
#define OF_SWAP     OF(LOG_SWAP)

static bool has(const struct log_control *control, unsigned kinds)
{
    return OF(control->kind) & kinds;
}

/* ---- encoding ---- */

static unsigned char *put_string(unsigned char *at, const char *ptr, size_t len)
{
    at = varint_put(at, len);
    if (len)
        memcpy(at, ptr, len);
    return at + len;
}

int log_control_encode(struct log_bytes *bytes, const struct log_control *control)
{
    size_t most = 88 + LOG_PARAMS_MAX + LOG_SHAPE_MAX + LOG_TURN_MAX + control->name_len + control->record_len;
    TRY(log_bytes_reserve(bytes, most));
    unsigned char *begin = bytes->ptr + bytes->len, *at = begin + sizeof(struct log_control_head);
    *at++ = (unsigned char)control->kind;
    if (!has(control, OF_NO_ID))
        at = varint_put(at, control->id);
    if (has(control, OF_REPLACED))
        at = varint_put(at, control->replaced_id);
    if (has(control, OF_NAME))
        at = put_string(at, control->name, control->name_len);
    if (has(control, OF_EXPIRY))
        at = varint_put(at, (uint64_t)control->expires_ms);
    if (has(control, OF_PARAMS))
        at = put_params(at, &control->params);
    if (has(control, OF_LAYER))
        at = varint_put(at, control->layer);
    if (has(control, OF_SHAPE))
        at = put_shape(at, &control->shape);
    if (has(control, OF_TURN))
        at = put_turn(at, &control->turn);
    if (has(control, OF_RECORD))
        at = put_string(at, control->record, control->record_len);
    if (has(control, OF_DATABASE))
        at = varint_put(at, control->database);
    for (int i = 0; has(control, OF_SWAP) && i < 2; i++) {
        at = varint_put(at, control->swap[i].number);
        at = varint_put(at, control->swap[i].database);
    }
    const struct log_control_head head = {.len = (uint32_t)(at - begin - (ptrdiff_t)sizeof(head))};
    memcpy(begin, &head, sizeof(head));
    bytes->len = (size_t)(at - bytes->ptr);
    return 0;
}

int log_payload_controls(struct log_bytes *payload, uint64_t first_number, const struct log_bytes *records)
{
    const struct log_payload_head head = {.control_bytes = (uint32_t)records->len, .first_control = first_number};

    TRY(log_bytes_reserve(payload, sizeof(head) + records->len));
    TRY(log_bytes_append(payload, &head, sizeof(head)));
    return log_bytes_append(payload, records->ptr, records->len);
}

int log_payload_adds(struct log_bytes *payload, uint64_t id, unsigned layer, const struct bloom_replay_item *items,
                     size_t n)
{
    const struct log_payload_head head = {0};
    const struct log_group group = {id, layer, (uint32_t)n};

    TRY(log_bytes_reserve(payload, sizeof(head) + sizeof(group) + n * sizeof(*items)));
    if (payload->len == 0)
        TRY(log_bytes_append(payload, &head, sizeof(head)));
    TRY(log_bytes_append(payload, &group, sizeof(group)));
    return log_bytes_append(payload, items, n * sizeof(*items));
}

/* ---- decoding ---- */

uint64_t log_get_counted(struct cursor *c, uint64_t min)
{
    uint64_t value = cursor_number(c);

    c->bad |= value < min || value >= LOG_NUMBER_END;
    return value;
}

static const char *get_string(struct cursor *c, size_t *len_out)
{
    uint64_t len = cursor_number(c);
    const unsigned char *ptr = cursor_bytes(c, len);

    *len_out = ptr ? (size_t)len : 0;
    return (const char *)ptr;
}

static unsigned get_layer(struct cursor *c)
{
    uint64_t layer = cursor_number(c);

    c->bad |= layer >= BLOOM_MAX_LAYERS;
    return (unsigned)layer;
}

static unsigned get_database(struct cursor *c)
{
    uint64_t number = cursor_number(c);

    c->bad |= number >= DATABASES_MAX;
    return (unsigned)number;
}

void log_get_control(struct cursor *c, struct log_control *control)
{
    unsigned kind = cursor_byte(c);

    memset(control, 0, sizeof(*control));
    control->kind = (enum log_control_kind)kind;
    if (kind < LOG_CREATE || kind >= LOG_KINDS_END) {
        c->bad = true;
        return;
    }
    if (!has(control, OF_NO_ID))
        control->id = log_get_counted(c, 1);
    if (has(control, OF_REPLACED))
        control->replaced_id = log_get_counted(c, 0);
    if (has(control, OF_NAME))
        control->name = get_string(c, &control->name_len);
    if (has(control, OF_EXPIRY))
        control->expires_ms = (int64_t)cursor_number(c);
    if (has(control, OF_PARAMS))
        get_params(c, &control->params);
    if (has(control, OF_LAYER))
        control->layer = get_layer(c);
    if (has(control, OF_SHAPE))
        get_shape(c, &control->shape);
    if (has(control, OF_TURN))
        get_turn(c, &control->turn);
    c->bad |= has(control, OF_TURN) && control->turn.number == 0;
    if (has(control, OF_RECORD))
        control->record = get_string(c, &control->record_len);
    if (has(control, OF_DATABASE))
        control->database = get_database(c);
    for (int i = 0; has(control, OF_SWAP) && i < 2; i++) {
        control->swap[i].number = get_database(c);
        control->swap[i].database = get_database(c);
    }
    if (kind == LOG_FILLED) {
        struct log_contents contents;
        c->bad = c->bad || !log_contents_decode(control->record, control->record_len, &contents);
    }
    c->bad |= control->name_len > 65535 || control->expires_ms < 0;
}

int log_payload_damaged(const struct cursor *c, const char *what, struct errbuf *err)
{
    return errbuf_fail(err, LOG_DAMAGED, "%s at byte %zu of the payload is invalid", what, (size_t)(c->at - c->begin));
}

static int decode_controls(struct cursor *c, const struct log_payload_head *head, const struct log_visitor *visitor,
                           struct errbuf *err)
{
    const unsigned char *end = c->at + head->control_bytes;
    uint64_t number = head->first_control;

    if (number == 0 || number >= LOG_NUMBER_END)
        return log_payload_damaged(c, "the number of a control record", err);
    for (; c->at < end; number++) {
        struct cursor part = {.at = c->at, .begin = c->begin, .end = end};
        struct log_control_head one = {0};
        struct log_control control;

        cursor_get(&part, &one, sizeof(one));
        if (part.bad || one.len > (size_t)(end - part.at))
            return log_payload_damaged(&part, "the length of a control record", err);
        c->at = part.end = part.at + one.len;
        log_get_control(&part, &control);
        if (part.bad || part.at != part.end)
            return log_payload_damaged(&part, "a control record", err);
        int rc = visitor->on_control ? visitor->on_control(visitor->ctx, number, &control, err) : 0;
        if (rc != 0)
            return rc;
    }
    return LOG_OK;
}

static int decode_group(struct cursor *c, const struct log_visitor *visitor, struct errbuf *err)
{
    struct bloom_replay_item items[LOG_ADDS_BATCH];
    struct log_group group = {0};

    cursor_get(c, &group, sizeof(group));
    if (c->bad || group.id == 0 || group.id >= LOG_NUMBER_END || group.layer >= BLOOM_MAX_LAYERS || group.n == 0 ||
        group.n > (size_t)(c->end - c->at) / sizeof(items[0]))
        return log_payload_damaged(c, "a group of adds", err);
    for (size_t left = group.n, n; left; left -= n) {
        n = left < LOG_ADDS_BATCH ? left : LOG_ADDS_BATCH;
        const unsigned char *bytes = cursor_bytes(c, n * sizeof(items[0]));
        CHECK(bytes); /* their number was compared with what is left */
        memcpy(items, bytes, n * sizeof(items[0]));
        for (size_t i = 0; i < n; i++)
            items[i].ordinal &= LOG_ORDINAL_MASK;
        int rc = visitor->on_adds ? visitor->on_adds(visitor->ctx, group.id, group.layer, items, n) : 0;
        if (rc != 0)
            return rc;
    }
    return LOG_OK;
}

int log_payload_decode(const unsigned char *bytes, size_t len, bool has_controls, const struct log_visitor *visitor,
                       struct errbuf *err)
{
    struct cursor c = cursor_of(bytes, len);
    struct log_payload_head head = {0};
    struct log_place place;
    int rc = LOG_OK;

    cursor_get(&c, &head, sizeof(head));
    size_t left = (size_t)(c.end - c.at);
    if (c.bad || has_controls != (head.control_bytes != 0) || head.nplaces > left / sizeof(place) ||
        head.control_bytes > left - head.nplaces * sizeof(place))
        return log_payload_damaged(&c, "the head", err);
    for (uint32_t i = 0; rc == LOG_OK && i < head.nplaces; i++) {
        cursor_get(&c, &place, sizeof(place));
        rc = visitor->on_place ? visitor->on_place(visitor->ctx, &place) : LOG_OK;
    }
    if (rc == LOG_OK && has_controls)
        rc = decode_controls(&c, &head, visitor, err);
    while (rc == LOG_OK && c.at < c.end)
        rc = decode_group(&c, visitor, err);
    return rc;
}
