/* The bound on large work: small work always, large work by two at a time. */
#include <criterion/criterion.h>
#include <string.h>

#include "content.h"

Test(content, large_work_is_bounded)
{
    static struct server server;
    struct buf out;
    buf_init(&out, 4096);
    struct command_job job = {.server = &server, .reply = {.buf = &out, .version = 2}};
    uint64_t large = CONTENT_LARGE_BYTES + 1;

    for (int i = 0; i < CONTENT_LARGE_JOBS; i++)
        cr_assert(content_large_begin(&job, large));
    cr_assert_eq(buf_len(&out), 0);
    cr_assert_not(content_large_begin(&job, large));
    cr_assert_eq(strncmp(buf_head(&out), "-TRYAGAIN ", 10), 0);
    cr_assert(content_large_begin(&job, CONTENT_LARGE_BYTES));
    content_large_end(&job, CONTENT_LARGE_BYTES);
    content_large_end(&job, large);
    cr_assert(content_large_begin(&job, large), "the refused one must not count");
    buf_deinit(&out);
}
