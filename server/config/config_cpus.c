/* Values of the type CONFIG_CPUS: processors as taskset lists them. */
#include "config.h"

/* Takes the digits of a processor's number off the front of the text. */
static bool take_number(struct slice *text, unsigned *number_out)
{
    unsigned number = 0;
    size_t n = 0;

    while (n < text->len && text->ptr[n] >= '0' && text->ptr[n] <= '9' && number < CPU_SETSIZE)
        number = number * 10 + (unsigned)(text->ptr[n++] - '0');
    if (n == 0 || number >= CPU_SETSIZE)
        return false;
    *text = (struct slice){text->ptr + n, text->len - n};
    *number_out = number;
    return true;
}

static bool take_char(struct slice *text, char c)
{
    if (text->len == 0 || text->ptr[0] != c)
        return false;
    *text = (struct slice){text->ptr + 1, text->len - 1};
    return true;
}

static bool take_range(struct slice *text, cpu_set_t *set)
{
    unsigned first, last, step = 1;

    if (!take_number(text, &first))
        return false;
    last = first;
    if (take_char(text, '-')) {
        if (!take_number(text, &last) || last < first)
            return false;
        if (take_char(text, ':') && (!take_number(text, &step) || step == 0))
            return false;
    }
    for (unsigned cpu = first; cpu <= last; cpu += step)
        CPU_SET(cpu, set);
    return true;
}

bool config_cpus(struct slice text, cpu_set_t *set_out)
{
    CPU_ZERO(set_out);
    if (text.len == 0)
        return true;
    do {
        if (!take_range(&text, set_out))
            return false;
    } while (take_char(&text, ','));
    return text.len == 0;
}
