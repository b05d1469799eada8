/* dump_window: the part of a dump's header that only windows have (docs/DUMP.md). Internal to the dumps. Thread: any.
 */
#ifndef BLOOMERY_DUMP_WINDOW_H
#define BLOOMERY_DUMP_WINDOW_H

#include "dump.h"

#define DUMP_WINDOW_BYTES 24 /* the window; then */
#define DUMP_TURN_BYTES   16 /* for each layer */

void dump_write_window(const struct dump_plan *plan, unsigned char *at);

/* Reads the window, which may be an impossible one; then, once the rest of the plan has been checked, the turns. */
void dump_read_window(const unsigned char *at, struct bloom_params *params);
int dump_read_turns(const unsigned char *at, struct dump_plan *plan, struct errbuf *err); /* DUMP_OK or DUMP_BAD */

/* Gives the layers of the filter, which has the dump's bits and counts, their turns. */
void dump_take_turns(const struct dump_plan *plan, struct bloom_filter *filter);

#endif
