#include "accept.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The weight of a range of media types in thousandths, from its parameters: ";version=1.0.0;q=0.5". */
static int weight(const char *parameters, const char *end)
{
    for (const char *at = parameters; at < end; at++) {
        const char *name = at + 1;
        if (*at != ';')
            continue;
        name += strspn(name, " \t");
        if (end - name < 3 || strncasecmp(name, "q=", 2) != 0)
            continue;
        const char *digit = name + 2;
        int value = *digit == '1' ? 1000 : 0, place = 100;
        if (value == 0 && digit[1] == '.')
            for (digit += 2; digit < end && *digit >= '0' && *digit <= '9'; digit++, place /= 10)
                value += (*digit - '0') * place;
        return value;
    }
    return 1000;
}

/* The greatest weight of this type in the header; -1: it is not there. */
static int weight_of(const char *accept, const char *type)
{
    size_t len = strlen(type);
    int best = -1;
    while (*accept) {
        const char *end = accept + strcspn(accept, ",");
        accept += strspn(accept, " \t");
        if (accept < end && strncasecmp(accept, type, len) == 0 && strchr("; \t,", accept[len])) {
            int found = weight(accept + len, end);
            best = found > best ? found : best;
        }
        accept = *end ? end + 1 : end;
    }
    return best;
}

bool accept_prefers(const char *accept, const char *type, const char *other)
{
    int found = weight_of(accept, type);
    return found > 0 && found >= weight_of(accept, other);
}
