/* `@each CMD key p A B`: CMD key pI for each I, one after another; the replies are summed up. */
#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corpus_internal.h"

struct sum {
    struct lines distinct; /* replies */
    unsigned counts[64];
    EVP_MD_CTX *digest; /* of all replies, with a line's end in between */
};

static void count_reply(struct sum *sum, const char *reply, bool first)
{
    size_t i = 0;

    while (i < sum->distinct.count && strcmp(sum->distinct.items[i], reply) != 0)
        i++;
    if (i == sum->distinct.count)
        lines_add(&sum->distinct, reply, strlen(reply));
    cr_assert_lt(i, sizeof(sum->counts) / sizeof(sum->counts[0]), "too many different replies");
    sum->counts[i]++;
    cr_assert(first || EVP_DigestUpdate(sum->digest, "\n", 1) == 1);
    cr_assert_eq(EVP_DigestUpdate(sum->digest, reply, strlen(reply)), 1);
}

/* The lines of one reply, with spaces in between. False: none. */
static bool take_joined(struct wire *wire, char *out, size_t size)
{
    struct lines reply = {NULL, 0, 0};
    bool taken = wire_reply(wire, WIRE_PATIENCE_MS, &reply) == WIRE_OK;
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < reply.count; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? " " : "", reply.items[i]);
    cr_assert_lt(len, size);
    lines_deinit(&reply);
    return taken;
}

static void add_line(struct lines *out, const char *mark, const char *text)
{
    char line[512];

    cr_assert_lt(snprintf(line, sizeof(line), "%s%s", mark, text), (int)sizeof(line));
    lines_add(out, line, strlen(line));
}

/* In the order of the replies. */
static void add_sum(struct sum *sum, const char *mark, struct lines *out)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len;
    char text[400];

    for (size_t n = 0; n < sum->distinct.count; n++) {
        size_t least = SIZE_MAX;
        for (size_t i = 0; i < sum->distinct.count; i++)
            if (sum->counts[i] && (least == SIZE_MAX || strcmp(sum->distinct.items[i], sum->distinct.items[least]) < 0))
                least = i;
        snprintf(text, sizeof(text), "%u x %s", sum->counts[least], sum->distinct.items[least]);
        sum->counts[least] = 0;
        add_line(out, mark, text);
    }
    cr_assert_eq(EVP_DigestFinal_ex(sum->digest, digest, &len), 1);
    size_t at = (size_t)snprintf(text, sizeof(text), "@sha256-of-sequence ");
    for (unsigned i = 0; i < len; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%02x", digest[i]);
    add_line(out, mark, text);
}

void corpus_each(struct wire *wire, const char *text, const char *mark, struct lines *out)
{
    struct sum sum = {.digest = EVP_MD_CTX_new()};
    struct word words[8];
    char *bytes, item[64], reply[300];
    size_t n;

    cr_assert(corpus_split(text, words, 8, &n, &bytes) && n == 5 && words[2].len < 32, "@each %s", text);
    cr_assert(sum.digest && EVP_DigestInit_ex(sum.digest, EVP_sha256(), NULL) == 1);
    long from = strtol(words[3].ptr, NULL, 10), to = strtol(words[4].ptr, NULL, 10);
    for (long i = from; i < to; i++) {
        int len = snprintf(item, sizeof(item), "%.*s%ld", (int)words[2].len, words[2].ptr, i);
        struct word command[3] = {words[0], words[1], {item, (size_t)len}};
        wire_send_command(wire, command, 3);
        if (!take_joined(wire, reply, sizeof(reply)))
            break;
        count_reply(&sum, reply, i == from);
    }
    add_sum(&sum, mark, out);
    EVP_MD_CTX_free(sum.digest);
    lines_deinit(&sum.distinct);
    free(bytes);
}
