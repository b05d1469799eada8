/* Rules of users. The input is lines: as rules of one user, each line a word; and as a file of users. Accepted rules
 * are the same after they have been written and read again; checks by them neither crash nor contradict each other. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "check.h"
#include "config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_WORDS 64

static size_t split(struct slice text, char end, struct slice *words)
{
    size_t n = 0;
    while (n < MAX_WORDS && text.len > 0) {
        const char *found = memchr(text.ptr, end, text.len);
        size_t len = found ? (size_t)(found - text.ptr) : text.len, taken = len + (found != NULL);
        words[n++] = (struct slice){text.ptr, len};
        text = (struct slice){text.ptr + taken, text.len - taken};
    }
    return n;
}

static void describe(const struct acl_user *user, struct buf *out)
{
    buf_init(out, SIZE_MAX);
    acl_user_describe(user, ACL_STORED, out);
    CHECK(!buf_failed(out));
}

static void check_same(const struct acl_user *a, const struct acl_user *b)
{
    struct buf x, y;
    describe(a, &x);
    describe(b, &y);
    CHECK(buf_len(&x) == buf_len(&y) && memcmp(buf_head(&x), buf_head(&y), buf_len(&x)) == 0);
    CHECK(a->unrestricted == b->unrestricted && a->nselectors == b->nselectors && a->npasswords == b->npasswords);
    for (size_t i = 0; i < a->nselectors; i++)
        CHECK(memcmp(a->selectors[i].allowed, b->selectors[i].allowed, sizeof(a->selectors[i].allowed)) == 0);
    buf_deinit(&x);
    buf_deinit(&y);
}

/* As a line of a file of users, and as a line of the settings. */
static void check_read_back(const struct acl_user *user, struct config *config)
{
    struct buf text, errors;
    struct acl_list list;
    describe(user, &text);
    buf_init(&errors, SIZE_MAX);
    struct buf line;
    buf_init(&line, SIZE_MAX);
    buf_appendf(&line, "user bob ");
    buf_append(&line, buf_head(&text), buf_len(&text));
    CHECK(acl_text_read("f", (struct slice){buf_head(&line), buf_len(&line)}, config, &list, &errors) == CONFIG_OK);
    CHECK(list.n == 2);
    check_same(user, list.users[0]);
    acl_list_free(&list);
    buf_deinit(&line);
    buf_deinit(&errors);
    buf_deinit(&text);
}

static void try_checks(const struct acl_user *user, struct slice word)
{
    static const char *const commands[] = {"bf.exists",  "bf.add",  "bf.merge", "del",
                                           "psubscribe", "publish", "bf.find"};
    char bytes[256];
    size_t len = word.len < 64 ? word.len : 64;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct slice name = {commands[i], strlen(commands[i])};
        struct resp_span spans[4] = {{0, (uint32_t)name.len}};
        memcpy(bytes, name.ptr, name.len);
        for (uint32_t j = 1; j < 4; j++) {
            uint32_t off = (uint32_t)(name.len + (j - 1) * len);
            if (len > 0)
                memcpy(bytes + off, word.ptr, len);
            spans[j] = (struct resp_span){off, (uint32_t)len};
        }
        struct resp_command args = {.base = bytes, .spans = spans, .argc = 4};
        const struct command *row = command_row((size_t)command_find(name));
        size_t at = 0;
        enum acl_verdict verdict = acl_check(user, row, &args, 0, &at);
        CHECK(at < 4);
        CHECK(!user->unrestricted || verdict == ACL_ALLOWED);
        CHECK(verdict != ACL_ALLOWED || acl_allows_command(user, command_index(row)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data, size}, words[MAX_WORDS], fault, bob = {"bob", 3};
    struct config config;
    struct acl_list list;
    struct buf scratch, errors;
    CHECK(config_init(&config) == 0);
    buf_init(&scratch, SIZE_MAX);
    buf_init(&errors, SIZE_MAX);
    size_t n = split(text, '\n', words);
    struct acl_user *user = acl_user_create(bob, false);
    CHECK(user != NULL);
    for (size_t i = 0; i < n; i++) /* one by one: the wrong ones are left out */
        (void)acl_user_apply_words(user, words + i, 1, false, &scratch, &fault);
    check_read_back(user, &config);
    struct acl_user *copy = acl_user_copy(user);
    CHECK(copy != NULL);
    check_same(user, copy);
    (void)acl_user_apply_words(copy, words, n, true, &scratch, &fault);
    check_read_back(copy, &config);
    for (size_t i = 0; i < n && i < 4; i++)
        try_checks(copy, words[i]);
    if (acl_text_read("f", text, &config, &list, &errors) == CONFIG_OK) {
        for (size_t i = 1; i < list.n; i++)
            CHECK(strcmp(list.users[i - 1]->name, list.users[i]->name) < 0);
        acl_list_free(&list);
    }
    acl_user_unref(copy);
    acl_user_unref(user);
    buf_deinit(&scratch);
    buf_deinit(&errors);
    config_deinit(&config);
    return 0;
}
