#include "dump_window.h"

#include "bytes.h"
#include "clock.h"

void dump_write_window(const struct dump_plan *plan, unsigned char *at)
{
    at = le64_put(at, plan->params.window);
    at = le32_put(at, plan->params.window_parts);
    at = le32_put(at, plan->params.window_flags);
    at = le64_put(at, (uint64_t)plan->taken_ms);
    for (unsigned i = 0; i < plan->nlayers; i++) {
        at = le64_put(at, plan->turns[i].number);
        at = le64_put(at, plan->turns[i].age_us);
    }
}

void dump_read_window(const unsigned char *at, struct bloom_params *params)
{
    uint32_t parts = le32_get(at + 8), flags = le32_get(at + 12);

    params->window = le64_get(at);
    params->window_parts = parts <= UINT16_MAX ? (uint16_t)parts : 0; /* 0 is none, which a window cannot have */
    params->window_flags = flags <= UINT8_MAX ? (uint8_t)flags : UINT8_MAX;
}

/* Part of a plan, whose numbers of layers and of bytes have been checked. DUMP_OK or DUMP_BAD. */
int dump_read_turns(const unsigned char *at, struct dump_plan *plan, struct errbuf *err)
{
    plan->taken_ms = (int64_t)le64_get(at + 16);
    at += DUMP_WINDOW_BYTES;
    for (unsigned i = 0; i < plan->nlayers; i++, at += DUMP_TURN_BYTES) {
        plan->turns[i] = (struct dump_turn){le64_get(at), le64_get(at + 8)};
        const struct bloom_turn turn = {.number = plan->turns[i].number, .started_us = (int64_t)plan->turns[i].age_us};
        if (!bloom_turn_valid(&turn) || plan->taken_ms < 0) {
            errbuf_set(err, "the turn of layer %u is not valid", i);
            return DUMP_BAD;
        }
    }
    return DUMP_OK;
}

/* Parts are as old as they were at the dump, plus the age of the dump. A dump from the future counts as a dump of
 * now. */
void dump_take_turns(const struct dump_plan *plan, struct bloom_filter *filter)
{
    int64_t now_us = bloom_window_now_us(filter), since_ms = clock_unix_ms() - plan->taken_ms;
    int64_t at_us = now_us - (since_ms > 0 ? since_ms * 1000 : 0);

    for (unsigned i = 0; i < plan->nlayers; i++) {
        int64_t started_us = at_us - (int64_t)plan->turns[i].age_us;
        const struct bloom_turn turn = {.number = plan->turns[i].number, .started_us = started_us > 0 ? started_us : 0};
        bloom_window_set_turn(filter, i, &turn);
    }
}
