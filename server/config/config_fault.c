/* The reasons why a value is refused, in Redis's words. */
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

static void form_fault(const struct config_row *row, char *text_out, size_t size)
{
    static const char *const texts[] = {
        [CONFIG_BOOL] = "argument must be 'yes' or 'no'",
        [CONFIG_RULES] = "Invalid save parameters",
        [CONFIG_EVENTS] = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
        [CONFIG_STRING] = "argument must not contain a NUL byte",
        [CONFIG_USERS] = "argument must be a name and rules, as for ACL SETUSER",
        [CONFIG_OUTPUT_LIMITS] = "Wrong number of arguments in buffer limit configuration.",
    };
    char words[256];

    switch (row->type) {
    case CONFIG_INTEGER:
        snprintf(text_out, size, "argument couldn't be parsed %s",
                 row->flags & CONFIG_OCTAL ? "as an octal number" : "into an integer");
        break;
    case CONFIG_BYTES:
        snprintf(text_out, size, "argument must be a memory%s value",
                 row->flags & CONFIG_OR_SHARE ? " or percent" : "");
        break;
    case CONFIG_WORD:
        join_words(row, words, sizeof(words));
        snprintf(text_out, size, "argument(s) must be one of the following: %s", words);
        break;
    case CONFIG_RATE:
        snprintf(text_out, size, "argument must be a number above %" PRIu64 " and below %" PRIu64, row->min, row->max);
        break;
    case CONFIG_ADDRESSES:
        snprintf(text_out, size, "argument must be at most %d numeric IP addresses, * or ::*", CONFIG_MAX_ADDRESSES);
        break;
    default:
        snprintf(text_out, size, "%s", texts[row->type]);
    }
}

void config_fault_text(const struct config_row *row, enum config_fault fault, char *text_out, size_t size)
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
    else if (fault == FAULT_FORM || row->type == CONFIG_RATE)
        form_fault(row, text_out, size);
    else if (row->type == CONFIG_OUTPUT_LIMITS)
        snprintf(text_out, size, "Error in hard, soft or soft_seconds setting in buffer limit configuration.");
    else if (row->type == CONFIG_STRING || row->type == CONFIG_PASSWORD)
        snprintf(text_out, size, "argument must have at most %d bytes", CONFIG_MAX_SECRET);
    else if (row->flags & CONFIG_OCTAL)
        snprintf(text_out, size, "argument must be between %" PRIo64 " and %" PRIo64 " inclusive", row->min, row->max);
    else if (row->flags & CONFIG_OR_MINUS_1)
        snprintf(text_out, size, "argument must be between -1 and %" PRIu64 " inclusive", row->max);
    else
        snprintf(text_out, size, "argument must be between %" PRIu64 " and %" PRIu64 " inclusive", row->min, row->max);
}
