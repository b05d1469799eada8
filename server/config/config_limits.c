/* Values of the type CONFIG_OUTPUT_LIMITS: "<class> <hard> <soft> <soft seconds>", for one class or several. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "config_value.h"

/* CONFIG GET of Redis still says "slave"; both words are accepted. */
static const char *const class_names[CONFIG_CLIENT_CLASSES] = {"normal", "slave", "pubsub"};

static bool parse_class(struct slice word, enum config_client_class *class_out)
{
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        if (word.len == strlen(class_names[i]) && strncasecmp(word.ptr, class_names[i], word.len) == 0) {
            *class_out = (enum config_client_class)i;
            return true;
        }
    }
    *class_out = CONFIG_CLIENT_REPLICA;
    return word.len == strlen("replica") && strncasecmp(word.ptr, "replica", word.len) == 0;
}

enum config_fault config_limits_parse(struct slice text, struct config_output_limits *value)
{
    static const struct config_row bytes = {.type = CONFIG_BYTES, .max = INT64_MAX};
    static const struct config_row seconds = {.type = CONFIG_INTEGER, .max = INT32_MAX};
    struct config_output_limits limits = *value;
    struct slice word;
    size_t n = 0;

    for (; config_next_word(&text, &word); n++) {
        enum config_client_class class;
        struct config_output_limit limit;

        if (!parse_class(word, &class))
            return FAULT_CLASS;
        if (!config_next_word(&text, &word))
            return FAULT_FORM;
        if (config_value_parse(&bytes, word, &limit.hard) != FAULT_NONE)
            return FAULT_RANGE;
        if (!config_next_word(&text, &word))
            return FAULT_FORM;
        if (config_value_parse(&bytes, word, &limit.soft) != FAULT_NONE)
            return FAULT_RANGE;
        if (!config_next_word(&text, &word))
            return FAULT_FORM;
        if (config_value_parse(&seconds, word, &limit.soft_seconds) != FAULT_NONE)
            return FAULT_RANGE;
        limits.classes[class] = limit;
    }
    if (n == 0)
        return FAULT_FORM;
    *value = limits;
    return FAULT_NONE;
}

void config_limits_format(const struct config_output_limits *value, struct buf *out)
{
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        const struct config_output_limit *limit = &value->classes[i];

        buf_appendf(out, "%s%s %" PRIu64 " %" PRIu64 " %" PRId64, i > 0 ? " " : "", class_names[i], limit->hard,
                    limit->soft, limit->soft_seconds);
    }
}
