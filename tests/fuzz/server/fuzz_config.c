/* The configuration file. An accepted file has the same meaning when it is printed or rewritten, and read again;
 * each line is also tried as an argument of CONFIG SET. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "config_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
FILE *__real_fopen(const char *path, const char *mode); /* NOLINT: the linker's names for it */
FILE *__wrap_fopen(const char *path, const char *mode); /* NOLINT */

static bool trying;

FILE *__wrap_fopen(const char *path, const char *mode) /* NOLINT */
{
    if (!trying)
        return __real_fopen(path, mode); /* the input itself */
    errno = ENOENT;
    return NULL;
}

/* All values; unlike config_print(), without their documentation. */
static void print(const struct config *cfg, struct buf *out)
{
    size_t n;
    const struct config_row *rows = config_table(&n);

    buf_init(out, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        config_get(cfg, &rows[i], out);
        buf_append(out, "\n", 1);
    }
    CHECK(!buf_failed(out));
}

/* The text sets the same values as `expected`. */
static void check_sets(struct slice text, const struct buf *expected)
{
    struct config cfg;
    struct errbuf err = {""};
    struct buf printed;

    CHECK(config_init(&cfg) == 0);
    CHECK(config_load_text(&cfg, "text", text, &err) == CONFIG_OK);
    print(&cfg, &printed);
    CHECK(buf_len(&printed) == buf_len(expected) &&
          memcmp(buf_head(&printed), buf_head(expected), buf_len(expected)) == 0);
    buf_deinit(&printed);
    config_deinit(&cfg);
}

static void try_file(struct slice text)
{
    struct config cfg, copy;
    struct errbuf err = {""};
    struct buf printed, rewritten;

    CHECK(config_init(&cfg) == 0);
    int status = config_load_text(&cfg, "text", text, &err);
    CHECK(status == CONFIG_OK || err.text[0] != '\0'); /* valid files may have settings that have no effect */
    if (status == CONFIG_OK) {
        print(&cfg, &printed);
        buf_init(&rewritten, SIZE_MAX);
        config_print(&cfg, &rewritten);
        check_sets((struct slice){buf_head(&rewritten), buf_len(&rewritten)}, &printed);
        buf_truncate(&rewritten, 0);
        CHECK(config_clone(&cfg, &copy) == 0);
        CHECK(config_rewrite_text(&copy, "text", text, &rewritten, &err) == CONFIG_OK);
        check_sets((struct slice){buf_head(&rewritten), buf_len(&rewritten)}, &printed);
        /* The file with other settings is rewritten with these. */
        buf_truncate(&rewritten, 0);
        config_deinit(&copy);
        CHECK(config_init(&copy) == 0);
        CHECK(config_rewrite_text(&copy, "text", text, &rewritten, &err) == CONFIG_OK);
        struct buf defaults;
        print(&copy, &defaults);
        check_sets((struct slice){buf_head(&rewritten), buf_len(&rewritten)}, &defaults);
        buf_deinit(&defaults);
        buf_deinit(&rewritten);
        config_deinit(&copy);
        buf_deinit(&printed);
    }
    config_deinit(&cfg);
}

/* `name value` a line: a refused one leaves the settings unchanged. */
static void try_set(struct slice text)
{
    struct config cfg;

    CHECK(config_init(&cfg) == 0);
    for (int lines = 0; lines < 16 && text.len > 0; lines++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        const char *blank = memchr(text.ptr, ' ', len);
        size_t name_len = blank ? (size_t)(blank - text.ptr) : len;
        struct slice name = {text.ptr, name_len};
        struct slice value = {text.ptr + name_len + (blank != NULL), len - name_len - (blank != NULL)};
        struct errbuf err = {""};
        struct buf before, after;

        print(&cfg, &before);
        int status = config_set(&cfg, name, value, CONFIG_RUNTIME, &err);
        CHECK((status == CONFIG_OK) == (err.text[0] == '\0'));
        print(&cfg, &after);
        CHECK(status == CONFIG_OK || (buf_len(&before) == buf_len(&after) &&
                                      memcmp(buf_head(&before), buf_head(&after), buf_len(&before)) == 0));
        buf_deinit(&before);
        buf_deinit(&after);
        len += end != NULL;
        text = (struct slice){text.ptr + len, text.len - len};
    }
    int status = config_check(&cfg, CONFIG_RUNTIME, NULL);
    CHECK(status == CONFIG_OK || status == CONFIG_REFUSED);
    config_deinit(&cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data, size};

    trying = true;
    try_file(text);
    try_set(text);
    trying = false;
    return 0;
}
