/* config_internal: shared by the files of the configuration only. */
#pragma once

#include "config.h"

/* State between the lines of one source (a file with its includes, or the arguments). */
struct config_merge {
    bool save_seen; /* a `save` line has replaced the rules; further ones add to them */
    bool located;   /* the error names file and line already: including files add nothing */
};

/* Applies `name value ...`, whose values are words already. Statuses as config_set(). */
int config_apply(struct config *cfg, struct config_merge *merge, struct slice name, const struct slice *values,
                 size_t n, enum config_source source, struct errbuf *err);

/* Settings of earlier versions have no effect, so that their files and arguments still start. The note is behind the
 * text that is in `err`; the status stays CONFIG_OK. */
bool config_is_retired(struct slice name);
void config_note_retired(const char *place, struct slice name, struct errbuf *err);

/* How many bytes of the name of an unknown setting a message may repeat: what follows could be a password, as in
 * `requirepass=secret` or `requirepass"secret"`. */
int config_shown_name(struct slice name);

/* Appends the line `name value` of a file, with its end. */
void config_print_setting(const struct config *cfg, const struct config_row *row, struct buf *out);

/* Whether a value's words may be written without quotes. */
static inline bool config_takes_words(const struct config_row *row)
{
    return row->type == CONFIG_ADDRESSES || row->type == CONFIG_RULES || row->type == CONFIG_OUTPUT_LIMITS ||
           row->type == CONFIG_USERS;
}

/* Appends a number of bytes in the largest unit that divides it: "512mb", "1000". */
void config_format_bytes(uint64_t bytes, struct buf *out);

void config_append(struct buf *out, const char *text);

/* ---- the value of one setting, by the type in its row ---- */

#define CONFIG_MAX_ADDRESSES 16 /* each is a socket per address; Redis's limit */

union config_value {
    bool boolean;
    int64_t integer;
    uint64_t bytes;
    double rate;
    int word;
    char *string;
    struct slice password;
    struct config_list list;
    struct config_rules rules;
    unsigned events;
    struct config_output_limits limits;
};

enum config_fault {
    FAULT_NONE = 0,
    FAULT_FORM,  /* not of the type at all */
    FAULT_RANGE, /* of the type, but outside its range */
    FAULT_SHARE, /* CONFIG_OR_SHARE: more than 100% */
    FAULT_CLASS, /* CONFIG_OUTPUT_LIMITS: not the name of a class of clients */
    FAULT_START_ONLY,
    FAULT_LENGTH, /* at run time more than CONFIG_VALUE_MAX bytes */
    FAULT_NO_MEMORY,
};

/* CONFIG SET reads values on an event loop. None that makes sense has this many bytes. */
#define CONFIG_VALUE_MAX 65536

/* Writes the value on FAULT_NONE only and does not free the old one. CONFIG_OUTPUT_LIMITS keeps the classes that the
 * text does not name. Never returns FAULT_START_ONLY or FAULT_LENGTH. */
enum config_fault config_value_parse(const struct config_row *row, struct slice text, void *value_out);

/* Appends the value in the form of CONFIG GET. */
void config_value_format(const struct config_row *row, const void *value, struct buf *out);

bool config_value_copy(const struct config_row *row, const void *value, void *copy_out); /* false: out of memory */
void config_value_free(const struct config_row *row, void *value);                       /* a zeroed value is fine */

/* The fault as Redis words it: "argument must be a memory value". */
void config_fault_text(const struct config_row *row, enum config_fault fault, char *text_out, size_t size);
