/* The reasons why a value is refused, in Redis's words and in those of our own messages. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config_internal.h"

int config_shown_name(struct slice name)
{
    const struct config_row *rows;
    size_t n, len = 0;
    rows = config_table(&n);
    while (len < name.len && len < 64 && (isalnum((unsigned char)name.ptr[len]) || memchr("-_.|", name.ptr[len], 4)))
        len++;
    for (size_t i = 0; i < n; i++) {
        size_t known = strlen(rows[i].name);
        if (rows[i].flags & CONFIG_SECRET && len > known && strncasecmp(name.ptr, rows[i].name, known) == 0)
            len = known;
    }
    return (int)len;
}

/* "a, b, c" */
static void join_words(const struct config_row *row, char *text_out, size_t size)
{
    size_t len = 0;

    text_out[0] = '\0';
    for (size_t i = 0; row->words[i] && len < size; i++)
        len += (size_t)snprintf(text_out + len, size - len, "%s%s", i > 0 ? ", " : "", row->words[i]);
}

/* By type: our own words, and Redis's, where these are always the same. */
static const struct {
    const char *own, *redis;
} texts[] = {
    [CONFIG_BOOL] = {"must be 'yes' or 'no'", "argument must be 'yes' or 'no'"},
    [CONFIG_RULES] = {"must be pairs of seconds (at least 1) and changes", "Invalid save parameters"},
    [CONFIG_EVENTS] = {"must be letters out of Ag$lshzxeKEtmdn",
                       "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."},
    [CONFIG_USERS] = {"must be a name and rules, as for ACL SETUSER", NULL},
    [CONFIG_OUTPUT_LIMITS] = {"must be <normal|replica|pubsub> <hard bytes> <soft bytes> <seconds>, once or more",
                              "Wrong number of arguments in buffer limit configuration."},
};

static void redis_form_fault(const struct config_row *row, char *text_out, size_t size)
{
    char words[256];

    if (texts[row->type].redis) {
        snprintf(text_out, size, "%s", texts[row->type].redis);
    } else if (row->type == CONFIG_INTEGER) {
        snprintf(text_out, size, "argument couldn't be parsed %s",
                 row->flags & CONFIG_OCTAL ? "as an octal number" : "into an integer");
    } else if (row->type == CONFIG_BYTES) {
        snprintf(text_out, size, "argument must be a memory%s value",
                 row->flags & CONFIG_OR_SHARE ? " or percent" : "");
    } else if (row->type == CONFIG_WORD) {
        join_words(row, words, sizeof(words));
        snprintf(text_out, size, "argument(s) must be one of the following: %s", words);
    } else {
        snprintf(text_out, size, "argument ");
        config_fault_text(row, text_out + strlen(text_out), size - strlen(text_out));
    }
}

void config_fault_redis(const struct config_row *row, enum config_fault fault, char *text_out, size_t size)
{
    if (fault == FAULT_START_ONLY)
        snprintf(text_out, size, "can't set immutable config");
    else if (fault == FAULT_LENGTH)
        snprintf(text_out, size, "argument must have at most %d bytes", CONFIG_VALUE_MAX);
    else if (fault == FAULT_NO_MEMORY)
        snprintf(text_out, size, "out of memory");
    else if (fault == FAULT_SHARE)
        snprintf(text_out, size, "percentage argument must be less or equal to 100");
    else if (fault == FAULT_CLASS)
        snprintf(text_out, size, "Invalid client class specified in buffer limit configuration.");
    else if (fault == FAULT_RANGE && row->type == CONFIG_OUTPUT_LIMITS)
        snprintf(text_out, size, "Error in hard, soft or soft_seconds setting in buffer limit configuration.");
    else if (fault == FAULT_FORM || row->type == CONFIG_RATE || row->type == CONFIG_STRING ||
             row->type == CONFIG_PASSWORD)
        redis_form_fault(row, text_out, size);
    else if (row->flags & CONFIG_OCTAL)
        snprintf(text_out, size, "argument must be between %" PRIo64 " and %" PRIo64 " inclusive", row->min, row->max);
    else if (row->flags & CONFIG_OR_MINUS_1)
        snprintf(text_out, size, "argument must be between -1 and %" PRIu64 " inclusive", row->max);
    else
        snprintf(text_out, size, "argument must be between %" PRIu64 " and %" PRIu64 " inclusive", row->min, row->max);
}

static void bytes_fault_text(const struct config_row *row, char *text_out, size_t size)
{
    struct buf range;

    buf_init(&range, 256);
    config_append(&range, "must be a number of bytes (1024, 64kb, 1gb ...)");
    if (row->min > 0) {
        config_append(&range, " of at least ");
        config_format_bytes(row->min, &range);
    }
    if (row->max < INT64_MAX) {
        config_append(&range, row->min > 0 ? " and at most " : " of at most ");
        config_format_bytes(row->max, &range);
    }
    if (row->flags & CONFIG_OR_SHARE)
        config_append(&range, ", a percentage from 0% to 100%, or auto");
    if (buf_failed(&range))
        snprintf(text_out, size, "must be a number of bytes");
    else
        snprintf(text_out, size, "%.*s", (int)buf_len(&range), buf_head(&range));
    buf_deinit(&range);
}

void config_fault_text(const struct config_row *row, char *text_out, size_t size)
{
    char words[256];

    if (texts[row->type].own) {
        snprintf(text_out, size, "%s", texts[row->type].own);
    } else if (row->type == CONFIG_INTEGER && row->flags & CONFIG_OCTAL) {
        snprintf(text_out, size, "must be an octal number from %" PRIo64 " to %" PRIo64, row->min, row->max);
    } else if (row->type == CONFIG_INTEGER && row->min == row->max) {
        snprintf(text_out, size, "must be %" PRIu64, row->min);
    } else if (row->type == CONFIG_INTEGER) {
        snprintf(text_out, size, "must be an integer from %" PRIu64 " to %" PRIu64 "%s", row->min, row->max,
                 row->flags & CONFIG_OR_MINUS_1 ? ", or -1" : "");
    } else if (row->type == CONFIG_BYTES) {
        bytes_fault_text(row, text_out, size);
    } else if (row->type == CONFIG_RATE) {
        snprintf(text_out, size, "must be a number above %" PRIu64 " and below %" PRIu64, row->min, row->max);
    } else if (row->type == CONFIG_WORD) {
        join_words(row, words, sizeof(words));
        snprintf(text_out, size, row->words[1] ? "must be one of %s" : "must be %s", words);
    } else if (row->type == CONFIG_ADDRESSES) {
        snprintf(text_out, size, "must be at most %d numeric IP addresses, * or ::*", CONFIG_MAX_ADDRESSES);
    } else if (row->type == CONFIG_STRING && !(row->flags & CONFIG_SECRET)) {
        snprintf(text_out, size, "must not contain a NUL byte");
    } else {
        snprintf(text_out, size, "must have at most %d bytes%s", CONFIG_MAX_SECRET,
                 row->type == CONFIG_STRING ? " and no NUL byte" : "");
    }
}
