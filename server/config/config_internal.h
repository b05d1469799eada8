/* config_internal: shared by the files of the configuration only. */
#ifndef BLOOMERY_CONFIG_INTERNAL_H
#define BLOOMERY_CONFIG_INTERNAL_H

#include "config.h"

/* State between the lines of one source (a file with its includes, or the arguments). */
struct config_merge {
    bool save_seen; /* a `save` line has replaced the rules; further ones add to them */
    bool located;   /* the error names file and line already: including files add nothing */
};

/* Applies `name value ...`, whose values are words already. Statuses as config_set(). */
int config_apply(struct config *cfg, struct config_merge *merge, struct slice name, const struct slice *values,
                 size_t n, enum config_source source, struct errbuf *err);

/* How many bytes of the name of an unknown setting a message may repeat: what follows could be a password, as in
 * `requirepass=secret` or `requirepass"secret"`. */
int config_shown_name(struct slice name);

/* Appends the line `name value` of a file, with its end. */
void config_print_setting(const struct config *cfg, const struct config_row *row, struct buf *out);

/* Whether a value's words may be written without quotes. */
static inline bool config_takes_words(const struct config_row *row)
{
    return row->type == CONFIG_ADDRESSES || row->type == CONFIG_RULES || row->type == CONFIG_OUTPUT_LIMITS ||
           row->type == CONFIG_USERS || row->flags & CONFIG_SEVERAL;
}

/* Appends a number of bytes in the largest unit that divides it: "512mb", "1000". */
void config_format_bytes(uint64_t bytes, struct buf *out);

void config_append(struct buf *out, const char *text);

#endif
