#include "log_contents.h"

#include <errno.h>

#include "filterdb.h"
#include "log_shape.h"
#include "log_varint.h"
#include "try.h"

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
        at = log_shape_put(at, &view.shape);
        filterdb_encode_words(BLOOM_NA, view.words, (size_t)view.shape.nwords, at);
        at += view.shape.nwords * 8;
        atomic_thread_fence(memory_order_acquire); /* an add takes its place, then sets its bits */
        bloom_filter_layer(filter, i, &view);
        at = varint_put(at, view.ordinal);
        if (turns)
            at = log_turn_put(at, &turn);
    }
    bytes->len = (size_t)(at - bytes->ptr);
    return 0;
}

static void decode_layer(struct cursor *c, bool turns, struct log_layer *layer)
{
    layer->turn = (struct bloom_turn){0};
    log_shape_get(c, &layer->shape);
    c->bad |= layer->shape.nwords > LOG_CONTENTS_MAX / 8;
    layer->words = c->bad ? NULL : cursor_bytes(c, layer->shape.nwords * 8);
    layer->items = cursor_number(c);
    if (turns)
        log_turn_get(c, &layer->turn);
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
    if (contents->turns != bloom_params_have_turns(bloom_filter_params(filter))) {
        errbuf_set(err, "its layers have %s", contents->turns ? "turns" : "no turns");
        return BLOOM_REFUSED;
    }
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
    return 0;
}
