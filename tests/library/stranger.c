/* libbloomery as a program of others sees it: its header, the C library, and nothing of this project. It is compiled as
 * C and as C++, in the build and against an installed prefix.
 *
 *   stranger GOLDEN DIRECTORY    exits 0, or names what is wrong */
#include <bloomery.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *golden, *directory;
static char reason[BLOOMERY_TEXT];

#define TEXT reason, sizeof(reason)

static void demand(int condition, const char *what, int line)
{
    if (condition)
        return;
    fprintf(stderr, "stranger.c:%d: not so: %s (%s)\n", line, what, reason);
    exit(1);
}
#define DEMAND(condition) demand((condition) != 0, #condition, __LINE__)

static char *path_of(const char *folder, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* A whole file; to be freed. */
static unsigned char *load(const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = (unsigned char *)malloc(size + 1);
    DEMAND(bytes && fread(bytes, 1, size, file) == size);
    bytes[size] = 0;
    fclose(file);
    *size_out = size;
    return bytes;
}

/* ---- files of Cassandra ---- */

static void rewrites(const bloomery_filter *filter, const unsigned char *bytes, size_t size)
{
    unsigned char *written = (unsigned char *)malloc(size + 1);
    size_t read_again;

    DEMAND(bloomery_bytes(filter) == size);
    DEMAND(bloomery_write(filter, written, size - 1, TEXT) == BLOOMERY_REFUSED && strstr(reason, "bytes, not"));
    DEMAND(bloomery_write(filter, written, size, TEXT) == BLOOMERY_OK && memcmp(written, bytes, size) == 0);
    free(written);
    DEMAND(bloomery_save(filter, path_of(directory, "rewritten"), TEXT) == BLOOMERY_OK);
    written = load(path_of(directory, "rewritten"), &read_again);
    DEMAND(read_again == size && memcmp(written, bytes, size) == 0);
    free(written);
}

/* A field of hexadecimal digits is replaced by its bytes, in place. */
static size_t unhex(char *digits)
{
    size_t n = strlen(digits) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        DEMAND(sscanf(digits + 2 * i, "%2x", &byte) == 1);
        digits[i] = (char)byte;
    }
    return n;
}

/* Calls `ask` for each line of a file that does not begin with '#', with its first two fields. */
static void for_lines(const char *path, void (*ask)(void *ctx, char *item, const char *second), void *ctx)
{
    size_t size;
    char *text = (char *)load(path, &size), *end;

    for (char *line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        char *tab = strchr(line, '\t');
        if (*line == '#')
            continue;
        if (tab)
            *tab++ = 0;
        ask(ctx, line, tab);
    }
    free(text);
}

static void is_there(void *ctx, char *item, const char *second)
{
    size_t n = unhex(item);
    (void)second;
    DEMAND(bloomery_has((const bloomery_filter *)ctx, item, n) == 1);
}

/* Items of the files are present in a new filter, too. */
static void is_added(void *ctx, char *item, const char *second)
{
    size_t n = unhex(item);
    (void)second;
    DEMAND(bloomery_add((bloomery_filter *)ctx, item, n, NULL, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_has((const bloomery_filter *)ctx, item, n) == 1);
}

struct probe {
    const bloomery_filter *filter;
    int column;
};

static void is_answered(void *ctx, char *item, const char *answers)
{
    const struct probe *probe = (const struct probe *)ctx;
    size_t n = unhex(item);

    for (int i = 0; i < probe->column; i++) {
        answers = strchr(answers, '\t');
        DEMAND(answers != NULL);
        answers++;
    }
    DEMAND(bloomery_has(probe->filter, item, n) == (*answers == '1'));
}

static const char *const layouts[] = {"na", "me", "ka"};

static void reads_files_of_cassandra(const char *folder)
{
    char name[256];
    bloomery_filter *first = NULL;

    for (int i = 0; i < 3; i++) {
        bloomery_filter *filter, *opened;
        size_t size;
        snprintf(name, sizeof(name), "built/%s/Filter.%s.db", folder, layouts[i]);
        unsigned char *bytes = load(path_of(golden, name), &size);
        DEMAND(bloomery_read(bytes, size, layouts[i], 1, &filter, TEXT) == BLOOMERY_OK);
        DEMAND(bloomery_open(path_of(golden, name), layouts[i], &opened, TEXT) == BLOOMERY_OK);
        DEMAND(strcmp(bloomery_layout(filter), layouts[i]) == 0 && bloomery_layers(filter) == 1);
        DEMAND(bloomery_layer_hashes(filter, 0) == bytes[3] && bloomery_layer_bits(filter, 0) == 8 * (size - 8));
        DEMAND(bloomery_layer_bits(filter, 1) == 0 && bloomery_layer_hashes(filter, 1) == 0);
        DEMAND(bloomery_bits_set(filter) <= 8 * (size - 8) && bloomery_rate(filter) <= 1);
        rewrites(filter, bytes, size);
        rewrites(opened, bytes, size);
        snprintf(name, sizeof(name), "built/%s/keys.hex", folder);
        for_lines(path_of(golden, name), is_there, opened);
        struct probe probe = {filter, i};
        snprintf(name, sizeof(name), "built/%s/probes.tsv", folder);
        for_lines(path_of(golden, name), is_answered, &probe);
        /* Layouts na and me have equal bits, ka has others. */
        if (first)
            DEMAND(bloomery_merge(first, filter, TEXT) == (i == 1 ? BLOOMERY_OK : BLOOMERY_REFUSED));
        else
            first = opened;
        if (first != opened)
            bloomery_free(opened);
        bloomery_free(filter);
        free(bytes);
    }
    bloomery_free(first);
}

/* ---- operations of an own filter ---- */

static void name_item(char *out, size_t size, unsigned i)
{
    snprintf(out, size, "item:%u", i);
}

static void copies(const bloomery_filter *filter, const char *layout)
{
    bloomery_filter *other;
    size_t size = (size_t)bloomery_bytes(filter);
    unsigned char *bytes = (unsigned char *)malloc(size);
    DEMAND(bloomery_write(filter, bytes, size, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_read(bytes, size, layout, -1, &other, TEXT) == BLOOMERY_OK);
    rewrites(other, bytes, size);
    DEMAND(bloomery_bits_set(other) == bloomery_bits_set(filter));
    bloomery_free(other);
    free(bytes);
}

/* A union has the items of both: the filter the first N items, the other one some of the next. */
static void unites(const bloomery_filter *filter, const char *layout, const struct bloomery_item *items, unsigned n)
{
    static unsigned char answers[20000];
    bloomery_filter *other;
    DEMAND(bloomery_create(0.01, n, layout, &other, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_add_many(other, items + n, 100, NULL, NULL, TEXT) == BLOOMERY_OK);
    if (layout[0] == 'v') { /* each has a seed of its own */
        DEMAND(bloomery_merge(other, filter, TEXT) == BLOOMERY_REFUSED && strstr(reason, "seeds differ"));
        bloomery_free(other);
        return;
    }
    DEMAND(bloomery_merge(other, filter, TEXT) == BLOOMERY_OK);
    bloomery_has_many(other, items, n + 100, answers);
    for (unsigned i = 0; i < n + 100; i++)
        DEMAND(answers[i] == 1);
    bloomery_free(other);
    DEMAND(bloomery_create(0.01, n / 2, layout, &other, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_merge(other, filter, TEXT) == BLOOMERY_REFUSED && strstr(reason, "only equal ones have a union"));
    bloomery_free(other);
}

static void fills(const char *layout)
{
    enum { N = 10000 };
    static char names[2 * N][16];
    static struct bloomery_item items[2 * N];
    static unsigned char answers[2 * N];
    bloomery_filter *filter;
    size_t done = 0;
    uint64_t added = 0;
    unsigned present = 0;
    int once = 7;

    for (unsigned i = 0; i < 2 * N; i++) {
        name_item(names[i], sizeof(names[i]), i);
        items[i].data = names[i];
        items[i].size = strlen(names[i]);
    }
    DEMAND(bloomery_create(0.01, N, layout, &filter, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_bits_set(filter) == 0 && bloomery_rate(filter) == 0 && bloomery_estimate(filter) == 0);
    bloomery_has_many(filter, items, 0, NULL);
    bloomery_has_many(filter, items, 2 * N, answers);
    for (unsigned i = 0; i < 2 * N; i++)
        DEMAND(answers[i] == 0);
    DEMAND(bloomery_add(filter, items[0].data, items[0].size, &once, TEXT) == BLOOMERY_OK && once == 1);
    DEMAND(bloomery_add(filter, items[0].data, items[0].size, &once, TEXT) == BLOOMERY_OK && once == 0);
    DEMAND(bloomery_add_many(filter, items, N, &done, &added, TEXT) == BLOOMERY_OK && done == N && added < N);
    DEMAND(added > N - N / 50);
    bloomery_has_many(filter, items, 2 * N, answers);
    for (unsigned i = 0; i < 2 * N; i++) {
        DEMAND(answers[i] == bloomery_has(filter, items[i].data, items[i].size));
        DEMAND(answers[i] == 1 || i >= N);
        present += answers[i];
    }
    DEMAND(present < N + N / 50 && bloomery_rate(filter) < 0.011 && bloomery_rate(filter) > 0.005);
    DEMAND(bloomery_estimate(filter) > 0.97 * N && bloomery_estimate(filter) < 1.03 * N);

    /* Full after as many items as its capacity; refused items have left no trace. */
    DEMAND(bloomery_add_many(filter, items, 2 * N, &done, &added, TEXT) == BLOOMERY_FULL && strstr(reason, "full"));
    DEMAND(done >= N && done < 2 * N && added < N / 50);

    copies(filter, layout);
    unites(filter, layout, items, N);
    bloomery_free(filter);
}

/* Layers one after the other are one filter; no layers at all are a window that has forgotten all items. */
static void chains(const char *layout)
{
    bloomery_filter *one, *two, *chain;
    size_t first, second;
    unsigned char bytes[4096];

    DEMAND(bloomery_create(0.01, 100, layout, &one, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_create(0.001, 200, layout, &two, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_add(one, "a", 1, NULL, TEXT) == BLOOMERY_OK &&
           bloomery_add(two, "b", 1, NULL, TEXT) == BLOOMERY_OK);
    first = (size_t)bloomery_bytes(one);
    second = (size_t)bloomery_bytes(two);
    DEMAND(first + second <= sizeof(bytes));
    DEMAND(bloomery_write(one, bytes, first, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_write(two, bytes + first, second, TEXT) == BLOOMERY_OK);
    bloomery_free(two);
    /* RedisBloom has a flag for filters that do not grow, and growth next to it. */
    for (size_t at = 0; layout[0] == 'r' && at < first + second; at += first) {
        bytes[at + 12] = 5;
        bytes[at + 16] = 2;
    }
    if (layout[0] == 'v') { /* growth, and one seed for all layers */
        bytes[16] = bytes[first + 16] = 2;
        DEMAND(bloomery_read(bytes, first + second, layout, 2, &chain, TEXT) == BLOOMERY_MALFORMED &&
               strstr(reason, "seed"));
        memcpy(bytes + first + 80, bytes + 80, 32);
        DEMAND(bloomery_read(bytes + first, second, layout, 1, &two, TEXT) == BLOOMERY_OK);
        DEMAND(bloomery_add(two, "b", 1, NULL, TEXT) == BLOOMERY_OK);
        DEMAND(bloomery_write(two, bytes + first, second, TEXT) == BLOOMERY_OK);
        bloomery_free(two);
    }
    DEMAND(bloomery_read(bytes, first + second, layout, 2, &chain, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_layers(chain) == 2 && bloomery_has(chain, "a", 1) && bloomery_has(chain, "b", 1));
    DEMAND(!bloomery_has(chain, "c", 1) && !bloomery_has(one, "b", 1));
    rewrites(chain, bytes, first + second);
    DEMAND(bloomery_add(chain, "c", 1, NULL, TEXT) == BLOOMERY_OK && bloomery_has(chain, "c", 1));
    bloomery_free(chain);
    DEMAND(bloomery_read(bytes, first + second, layout, 1, &chain, TEXT) == BLOOMERY_MALFORMED);
    DEMAND(strcmp(reason, "the bytes have 2 layers, not 1") == 0);
    DEMAND(bloomery_read(bytes, first + second - 1, layout, 2, &chain, TEXT) == BLOOMERY_MALFORMED);
    DEMAND(strncmp(reason, "the layer at byte ", 18) == 0);

    DEMAND(bloomery_read(NULL, 0, layout, 0, &chain, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_layers(chain) == 0 && bloomery_bytes(chain) == 0 && bloomery_rate(chain) == 0);
    struct bloomery_item item = {"a", 1};
    unsigned char answer = 1;
    bloomery_has_many(chain, &item, 1, &answer);
    DEMAND(!answer && !bloomery_has(chain, "a", 1) && bloomery_write(chain, bytes, 0, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_add(chain, "a", 1, NULL, TEXT) == BLOOMERY_REFUSED && strstr(reason, "no layers"));
    DEMAND(bloomery_merge(one, chain, TEXT) == BLOOMERY_OK && bloomery_merge(chain, one, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_read(bytes, 0, layout, -1, &two, TEXT) == BLOOMERY_MALFORMED);
    bloomery_free(chain);
    bloomery_free(one);
}

/* ---- refusals ---- */

static void refuses_files(void)
{
    static const char *const names[] = {"body_half.db",      "body_missing.db",   "empty_file.db",
                                        "header_4_bytes.db", "header_7_bytes.db", "k_0.db",
                                        "k_22.db",           "words_neg1.db",     "trailing_5_bytes.db",
                                        "words_0.db",        "words_5_for_4.db",  "words_int_max.db"};
    char name[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bloomery_filter *filter = NULL;
        snprintf(name, sizeof(name), "malformed/%s", names[i]);
        reason[0] = 0;
        DEMAND(bloomery_open(path_of(golden, name), "na", &filter, TEXT) == BLOOMERY_MALFORMED && !filter && reason[0]);
    }
    bloomery_filter *filter = NULL;
    DEMAND(bloomery_open(path_of(golden, "malformed/ok_4_words.db"), "na", &filter, TEXT) == BLOOMERY_OK);
    bloomery_free(filter);
    filter = NULL;
    DEMAND(bloomery_open(path_of(directory, "none"), "na", &filter, TEXT) == BLOOMERY_SYSTEM && strstr(reason, "open"));
    DEMAND(bloomery_open(directory, "na", &filter, TEXT) == BLOOMERY_SYSTEM);
    DEMAND(bloomery_open(path_of(directory, "none"), NULL, &filter, TEXT) == BLOOMERY_REFUSED &&
           strstr(reason, "layout"));
    DEMAND(bloomery_open("na-0-big-Filter.db.keyed-0123456789abcdef", NULL, &filter, TEXT) == BLOOMERY_KEYED);
    DEMAND(strstr(reason, "KEYED with the key 0123456789abcdef") && !filter);
    DEMAND(bloomery_open("", "na", &filter, NULL, 0) == BLOOMERY_SYSTEM);
}

/* A layer of RedisBloom with each byte of its header changed is refused, or read with the changed value. */
static void refuses_headers(void)
{
    bloomery_filter *made, *filter;
    unsigned char bytes[4096];

    DEMAND(bloomery_create(0.01, 100, "redisbloom", &made, TEXT) == BLOOMERY_OK);
    size_t size = (size_t)bloomery_bytes(made);
    DEMAND(size <= sizeof(bytes) && bloomery_write(made, bytes, size, TEXT) == BLOOMERY_OK);
    bloomery_free(made);
    DEMAND(bloomery_read(bytes, size, "redisbloom32", 1, &filter, TEXT) == BLOOMERY_MALFORMED &&
           strstr(reason, "not redisbloom32"));
    DEMAND(bloomery_read(bytes, size, "na", 1, &filter, TEXT) == BLOOMERY_MALFORMED);
    for (size_t n = 0; n < size; n++)
        DEMAND(bloomery_read(bytes, n, "redisbloom", 1, &filter, TEXT) == BLOOMERY_MALFORMED);
    for (size_t at = 0; at < 72; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1u << bit);
            int status = bloomery_read(bytes, size, "redisbloom", 1, &filter, TEXT);
            DEMAND(status == BLOOMERY_OK || status == BLOOMERY_MALFORMED);
            if (status == BLOOMERY_OK) {
                bloomery_has(filter, "a", 1);
                bloomery_free(filter);
            }
            bytes[at] ^= (unsigned char)(1u << bit);
        }
    }
}

/* A read filter is written again unchanged: so no number is accepted that would be lost. */
static void refuses_the_expansion_of_a_fixed_size(void)
{
    bloomery_filter *made, *filter = NULL;
    unsigned char bytes[4096];

    DEMAND(bloomery_create(0.01, 100, "redisbloom", &made, TEXT) == BLOOMERY_OK);
    size_t size = (size_t)bloomery_bytes(made);
    DEMAND(size <= sizeof(bytes) && bloomery_write(made, bytes, size, TEXT) == BLOOMERY_OK);
    bloomery_free(made);
    bytes[16] = 2;
    DEMAND(bloomery_read(bytes, size, "redisbloom", 1, &filter, TEXT) == BLOOMERY_MALFORMED && !filter);
    DEMAND(strcmp(reason, "expansion 2 in a filter of fixed size: must be 0") == 0);
}

static void refuses_arguments(void)
{
    static const double rates[] = {0, 1, -1, 2};
    bloomery_filter *filter = NULL;
    char five[5];

    for (int i = 0; i < 4; i++) {
        DEMAND(bloomery_create(rates[i], 100, "na", &filter, TEXT) == BLOOMERY_REFUSED);
        DEMAND(bloomery_create(rates[i], 100, "redisbloom", &filter, TEXT) == BLOOMERY_REFUSED);
    }
    DEMAND(bloomery_create(0.01, 0, "na", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, 0, "redisbloom", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, UINT64_MAX, "na", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, UINT64_MAX, "redisbloom", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, 100, "redisbloom32", &filter, TEXT) == BLOOMERY_REFUSED &&
           strstr(reason, "only read"));
    DEMAND(bloomery_create(0.01, 100, "cuckoo", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, 100, "cuckoo-rate", &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_create(0.01, 100, NULL, &filter, TEXT) == BLOOMERY_REFUSED);
    DEMAND(bloomery_read("", 0, "nb", 0, &filter, five, sizeof(five)) == BLOOMERY_REFUSED && strcmp(five, "the ") == 0);
    DEMAND(filter == NULL);
    bloomery_free(NULL);
    DEMAND(bloomery_create(0.01, 100, "na", &filter, TEXT) == BLOOMERY_OK);
    DEMAND(bloomery_save(filter, path_of(directory, "no/such/place"), TEXT) == BLOOMERY_SYSTEM && reason[0]);
    DEMAND(bloomery_save(filter, directory, TEXT) == BLOOMERY_SYSTEM);
    DEMAND(bloomery_add(filter, NULL, 0, NULL, NULL, 0) == BLOOMERY_OK && bloomery_has(filter, NULL, 0) == 1);
    bloomery_free(filter);
}

int main(int argc, char **argv)
{
    static const char *const folders[] = {"emptykey_n1_p0.1",   "longkeys_p0.01",     "n10000_p0.01_int",
                                          "n1000_p0.05_uuid",   "n100_p0.01_mixed",   "n5000_p0.001_ascii",
                                          "nokeys_n1000_p0.01", "overfull_n100_p0.01"};
    bloomery_filter *filter;

    if (argc < 3)
        return 2;
    golden = argv[1];
    directory = argv[2];
    DEMAND(bloomery_version()[0] >= '0');
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        reads_files_of_cassandra(folders[i]);
    for (int i = 0; i < 3; i++) {
        fills(layouts[i]);
        chains(layouts[i]);
    }
    fills("redisbloom");
    chains("redisbloom");
    fills("valkey");
    chains("valkey");
    DEMAND(bloomery_create(0.01, 100, "na", &filter, TEXT) == BLOOMERY_OK);
    for_lines(path_of(golden, "built/n100_p0.01_mixed/keys.hex"), is_added, filter);
    bloomery_free(filter);
    refuses_files();
    refuses_headers();
    refuses_the_expansion_of_a_fixed_size();
    refuses_arguments();
    printf("all is well with %s\n", bloomery_version());
    return 0;
}
