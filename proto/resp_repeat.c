#include "resp_repeat.h"

#include <stdint.h>

#include "bytes.h"

#define TAIL_MIN 7 /* a length of up to three digits and its line end, and two bytes more, are in bounds at least */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool resp_repeat_note(struct resp_repeat *repeat, const struct resp_command *cmd)
{
    if (cmd->argc < 2 || cmd->base[0] != '*')
        return false;
    const char *at = resp_arg(cmd, cmd->argc - 1).ptr, *first = cmd->base;
    if (at - first < RESP_REPEAT_MIN_HEAD + 3 || at[-1] != '\n' || at[-2] != '\r')
        return false;
    for (at -= 3; at > first && is_digit(*at); at--)
        ;
    size_t len = (size_t)(at + 1 - first);
    if (*at != '$' || len < RESP_REPEAT_MIN_HEAD || len > RESP_REPEAT_MAX_HEAD)
        return false;
    memcpy(repeat->head, first, len);
    repeat->len = len;
    return true;
}

typedef uint64_t pair __attribute__((vector_size(16)));

static inline pair load_pair(const char *p)
{
    pair x;
    memcpy(&x, p, sizeof(x));
    return x;
}

/* memcmp() == 0 for at least RESP_REPEAT_MIN_HEAD bytes; without a call and without a branch for each piece. */
static inline bool same(const char *a, const char *b, size_t len)
{
    pair difference = load_pair(a + len - 16) ^ load_pair(b + len - 16);
    for (size_t i = 0; i + 16 < len; i += 16)
        difference |= load_pair(a + i) ^ load_pair(b + i);
    return (difference[0] | difference[1]) == 0;
}

/* The length of an item as written in the request, "16\r\n". Most items of a pipeline have the same length, so its text
 * is compared with the previous one as one word, which delays to two digits. */
struct length {
    uint32_t word, mask; /* the four bytes; mask 0 and word 1 never match: a longer length, or none yet */
    uint32_t item;       /* the value */
    uint32_t digits;     /* with the line end */
};

/* Reads a different length; TAIL_MIN bytes are readable. False if the form is unusual. */
static bool read_length(struct length *length, const char *at)
{
    uint32_t n = 1;
    *length = (struct length){.word = 1, .item = (uint32_t)(at[0] - '0')};
    if (!is_digit(at[0]) || at[0] == '0')
        return false;
    for (; n < 3 && is_digit(at[n]); n++)
        length->item = length->item * 10 + (uint32_t)(at[n] - '0');
    if (at[n] != '\r' || at[n + 1] != '\n')
        return false;
    length->digits = n + 2;
    if (n <= 2) {
        static const char ones[2][4] = {"\xff\xff\xff", {'\xff', '\xff', '\xff', '\xff'}};
        length->mask = bytes_word(ones[n - 1]);
        length->word = bytes_word(at) & length->mask;
    }
    return true;
}

size_t resp_repeat_match(const struct resp_repeat *repeat, const char *data, size_t len, size_t max_bulk,
                         struct slice *last_out, size_t max, size_t *consumed_out)
{
    const char *at = data, *end = data + len;
    const size_t head = repeat->len;
    struct length length = {.word = 1};
    size_t n = 0;

    *consumed_out = 0;
    if (head == 0)
        return 0;
    for (; n < max && (size_t)(end - at) >= head + TAIL_MIN && same(repeat->head, at, head); n++) {
        const char *item = at + head;
        if ((bytes_word(item) & length.mask) != length.word && (!read_length(&length, item) || length.item > max_bulk))
            break;
        item += length.digits;
        if ((size_t)(end - item) < length.item + (size_t)2 || item[length.item] != '\r' ||
            item[length.item + 1] != '\n')
            break;
        last_out[n] = (struct slice){item, length.item};
        at = item + length.item + 2;
    }
    *consumed_out = (size_t)(at - data);
    return n;
}
