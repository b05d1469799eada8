#include "item_input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cql_key.h"
#include "output.h"

#define BUF_BYTES   (1u << 20) /* read at once; grows if an item is longer */
#define PREFIX_SIZE 4

static int failed(const struct item_input *input, const char *reason)
{
    return tool_failed(input->command, "%s: %s", input->path, reason);
}

/* ---- opening ---- */

static int read_options(struct item_input *input, const struct tool_args *args, bool has_field)
{
    const char *command = args->command->name;

    input->form.prefixed = tool_option(args, "--length-prefixed") != NULL;
    input->form.nul = tool_option(args, "-0") != NULL;
    input->form.keys = tool_option(args, "--keys") != NULL;
    input->form.separator = '\t';
    if (input->form.nul && input->form.prefixed)
        return tool_misused(command, "-0 and --length-prefixed exclude each other");
    if (!has_field)
        return TOOL_OK;
    const char *field = tool_option(args, "--field"), *separator = tool_option(args, "--separator");
    if (tool_number(args, "--field", 1, UINT32_MAX, &input->form.field) != TOOL_OK)
        return TOOL_USAGE;
    if (separator && strlen(separator) != 1)
        return tool_misused(command, "--separator '%s' is not one character", separator);
    if (separator && !field)
        return tool_misused(command, "--separator needs --field");
    if (field && input->form.prefixed)
        return tool_misused(command, "--field and --length-prefixed exclude each other");
    if (separator)
        input->form.separator = separator[0];
    return TOOL_OK;
}

static bool is_standard(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

static void init(struct item_input *input, const char *path, const struct tool_args *args)
{
    *input = (struct item_input){
        .fd = -1, .command = args->command->name, .path = is_standard(path) ? "the standard input" : path};
}

static int open_bytes(struct item_input *input, bool standard)
{
    struct stat st;
    const char *path = input->path;

    input->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0 || fstat(input->fd, &st) != 0)
        return failed(input, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        item_input_close(input);
        return failed(input, strerror(EISDIR));
    }
    input->start = S_ISREG(st.st_mode) ? lseek(input->fd, 0, SEEK_CUR) : -1;
    input->can_rewind = input->start >= 0;
    if (input->can_rewind && st.st_size > input->start)
        input->size = (uint64_t)(st.st_size - input->start);
    input->buf_size = BUF_BYTES;
    input->buf = malloc(input->buf_size);
    if (input->form.keys)
        input->key_bytes = malloc((size_t)BLOOM_BATCH * CQL_KEY_MAX);
    if (!input->buf || (input->form.keys && !input->key_bytes)) {
        item_input_close(input);
        return failed(input, strerror(ENOMEM));
    }
    return TOOL_OK;
}

int item_input_open(struct item_input *input, const char *path, const struct tool_args *args, bool has_field)
{
    init(input, path, args);
    int rc = read_options(input, args, has_field);
    STEP(rc, key_option_read(args, 0, NULL, &input->secret));
    return rc == TOOL_OK ? open_bytes(input, is_standard(path)) : rc;
}

int item_input_open_as(struct item_input *input, const char *path, const struct tool_args *args,
                       const struct item_form *form)
{
    init(input, path, args);
    input->form = *form;
    return open_bytes(input, is_standard(path));
}

void item_input_close(struct item_input *input)
{
    if (input->returns)
        fprintf(stderr,
                "bloomery %s: warning: %s: lines that end with a carriage return, as those of Windows: %" PRIu64
                " of %" PRIu64 "; it is a part of the items; tr -d '\\r' removes it\n",
                input->command, input->path, input->returns, input->items);
    input->returns = 0;
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    input->fd = -1;
    free(input->buf);
    free(input->key_bytes);
    explicit_bzero(&input->secret, sizeof(input->secret));
    input->buf = NULL;
    input->key_bytes = NULL;
}

int item_input_rewind(struct item_input *input)
{
    if (lseek(input->fd, input->start, SEEK_SET) != input->start)
        return tool_failed(input->command, "%s: %s", input->path, strerror(errno));
    input->begin = input->end = 0;
    input->at_end = false;
    input->done = input->items = input->returns = 0;
    return TOOL_OK;
}

/* ---- bytes ---- */

/* Makes room after the unread bytes, and reads. False after a message. */
static bool fill(struct item_input *input)
{
    memmove(input->buf, input->buf + input->begin, input->end - input->begin);
    input->end -= input->begin;
    input->begin = 0;
    if (input->end == input->buf_size) {
        char *larger = input->buf_size < 2 * (size_t)ITEM_INPUT_MAX ? realloc(input->buf, 2 * input->buf_size) : NULL;
        if (!larger) {
            failed(input, "an item is too long: more than 512 MB, or more than the memory");
            return false;
        }
        input->buf = larger;
        input->buf_size *= 2;
    }
    ssize_t n;
    do {
        n = read(input->fd, input->buf + input->end, input->buf_size - input->end);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        failed(input, strerror(errno));
        return false;
    }
    input->at_end = n == 0;
    input->end += (size_t)n;
    return true;
}

/* The next line or prefixed item within the buffer: the bytes it takes, 0 if it is missing whole. `*from` and `*len`
 * are the item. */
static size_t whole_item(const struct item_input *input, size_t *from, size_t *len)
{
    const char *at = input->buf + input->begin;
    size_t there = input->end - input->begin;

    *from = *len = 0;
    if (input->form.prefixed) {
        if (there < PREFIX_SIZE)
            return 0;
        const unsigned char *p = (const unsigned char *)at;
        size_t n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        *from = PREFIX_SIZE;
        *len = n;
        return there - PREFIX_SIZE < n ? 0 : PREFIX_SIZE + n;
    }
    const char *end = memchr(at, input->form.nul ? '\0' : '\n', there);
    *len = end ? (size_t)(end - at) : there;
    return end ? *len + 1 : input->at_end ? there : 0;
}

/* The field of a line; false when it has fewer. */
static bool take_field(const struct item_input *input, struct bloom_item *item)
{
    for (uint64_t i = 1; i < input->form.field; i++) {
        const char *separator = memchr(item->ptr, input->form.separator, item->len);
        if (!separator)
            return false;
        item->len -= (size_t)(separator + 1 - item->ptr);
        item->ptr = separator + 1;
    }
    const char *end = memchr(item->ptr, input->form.separator, item->len);
    if (end)
        item->len = (size_t)(end - item->ptr);
    return true;
}

/* Turns the item, the text of a key, into its bytes. */
static bool read_key(struct item_input *input, struct bloom_item *item, unsigned char bytes[CQL_KEY_MAX])
{
    bool lines = !input->form.prefixed && !input->form.nul;
    const char *unit = lines ? "line" : "item";
    struct errbuf err = {{0}};
    size_t len;

    if (!input->form.prefixed && item->len > 0 && item->ptr[item->len - 1] == '\r')
        tool_failed(input->command,
                    "%s: %s %" PRIu64 " ends with a carriage return, as lines of Windows do: remove it with tr -d "
                    "'\\r'; a key with one is written as blob:...",
                    input->path, unit, input->items);
    else if (lines && !input->form.field && item->len == 0)
        tool_failed(input->command,
                    "%s: line %" PRIu64
                    " is empty, and a partition key never is: write a key there, or remove empty lines with sed "
                    "'/^$/d'",
                    input->path, input->items);
    else if (cql_key_parse(item->ptr, item->len, bytes, &len, &err) != CQL_KEY_OK)
        tool_failed(input->command, "%s: %s %" PRIu64 ": %s", input->path, unit, input->items, err.text);
    else
        *item = (struct bloom_item){(const char *)bytes, len};
    return item->ptr == (const char *)bytes;
}

static bool finish_item(struct item_input *input, struct item_batch *batch)
{
    struct bloom_item *item = &batch->items[batch->n];

    input->items++;
    if (input->form.field && !take_field(input, item)) {
        tool_failed(input->command, "%s: line %" PRIu64 " has no field %" PRIu64, input->path, input->items,
                    input->form.field);
        return false;
    }
    if (!input->form.prefixed && !input->form.nul && item->len > 0 && item->ptr[item->len - 1] == '\r')
        input->returns++;
    if (input->form.keys && !read_key(input, item, input->key_bytes + batch->n * CQL_KEY_MAX))
        return false;
    if (input->secret.id) {
        siphash(&input->secret.items, item->ptr, item->len, input->keyed[batch->n]);
        *item = (struct bloom_item){(const char *)input->keyed[batch->n], SIPHASH_BYTES};
    }
    batch->n++;
    return true;
}

int item_input_next(struct item_input *input, struct item_batch *batch)
{
    batch->n = 0;
    while (batch->n < BLOOM_BATCH) {
        size_t from, len, taken = whole_item(input, &from, &len);
        if (taken == 0) {
            if (batch->n > 0)
                break; /* the buffer moves when it is filled */
            if (input->at_end && input->begin == input->end)
                return TOOL_OK;
            if (input->at_end)
                return failed(input, "ends within an item");
            if (input->form.prefixed && len > ITEM_INPUT_MAX)
                return failed(input, "an item is longer than 512 MB; is this length-prefixed input?");
            if (!fill(input))
                return TOOL_FAILED;
            continue;
        }
        batch->lines[batch->n] = (struct bloom_item){input->buf + input->begin, taken};
        batch->items[batch->n] = (struct bloom_item){input->buf + input->begin + from, len};
        input->begin += taken;
        input->done += taken;
        if (!finish_item(input, batch))
            return TOOL_FAILED;
    }
    return TOOL_OK;
}

int item_input_each(struct item_input *input, const char *what, item_take_fn *take, void *ctx)
{
    struct item_batch batch;
    struct progress progress;
    int rc;

    progress_begin(&progress, what, input->size);
    while ((rc = item_input_next(input, &batch)) == TOOL_OK && batch.n > 0) {
        rc = take ? take(ctx, &batch) : TOOL_OK;
        if (rc != TOOL_OK)
            break;
        progress_update(&progress, input->done);
    }
    progress_end(&progress);
    return rc;
}

bool item_input_pauses(const struct item_input *input)
{
    struct pollfd fd = {.fd = input->fd, .events = POLLIN};

    return !input->at_end && poll(&fd, 1, 0) == 0;
}
