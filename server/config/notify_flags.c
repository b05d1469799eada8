#include "notify_flags.h"

static const struct {
    char letter;
    unsigned flags;
} letters[] = {
    {'A', NOTIFY_ALL},    {'g', NOTIFY_GENERIC}, {'$', NOTIFY_STRING},   {'l', NOTIFY_LIST},     {'s', NOTIFY_SET},
    {'h', NOTIFY_HASH},   {'z', NOTIFY_ZSET},    {'x', NOTIFY_EXPIRED},  {'e', NOTIFY_EVICTED},  {'t', NOTIFY_STREAM},
    {'d', NOTIFY_MODULE}, {'n', NOTIFY_NEW},     {'K', NOTIFY_KEYSPACE}, {'E', NOTIFY_KEYEVENT}, {'m', NOTIFY_KEY_MISS},
};

#define NLETTERS (sizeof(letters) / sizeof(letters[0]))

bool notify_flags_parse(struct slice text, unsigned *flags_out)
{
    unsigned flags = 0;

    for (size_t i = 0; i < text.len; i++) {
        size_t j = 0;

        while (j < NLETTERS && letters[j].letter != text.ptr[i])
            j++;
        if (j == NLETTERS)
            return false;
        flags |= letters[j].flags;
    }
    *flags_out = flags;
    return true;
}

void notify_flags_format(unsigned flags, char text_out[NOTIFY_FLAGS_TEXT])
{
    unsigned shown = 0;
    char *out = text_out;

    /* 'A' comes first and replaces the letters of its classes. */
    for (size_t j = 0; j < NLETTERS; j++) {
        if ((flags & letters[j].flags) == letters[j].flags && (letters[j].flags & ~shown) != 0) {
            *out++ = letters[j].letter;
            shown |= letters[j].flags;
        }
    }
    *out = '\0';
}
