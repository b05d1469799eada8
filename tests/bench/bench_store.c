/* bench_store: the speed of saving and loading one large filter, beside the disk's speed in the same run, and the
 * time for many small filters. bench_store DIRECTORY [MEGABYTES [FILTERS]]
 *
 * One line per measurement: name, seconds, MB/s or filters/s; of loads the median of a few. Files are removed at the
 * end; the directory must not exist. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "store_loader.h"

#define PIECE     (4u << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define ROUNDS    5
#define THREADS   2 /* for loading */

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_store: %s\n", what);
    exit(1);
}

static void print_rate(const char *name, double seconds, double amount, const char *unit)
{
    printf("%-28s %8.3f s %10.0f %s\n", name, seconds, amount / seconds, unit);
    fflush(stdout);
}

/* With small pages direct I/O is half as fast. */
static unsigned char *make_buffer(void)
{
    unsigned char *buf = aligned_alloc(HUGE_PAGE, PIECE);

    demand(buf != NULL, "out of memory");
    (void)madvise(buf, PIECE, MADV_HUGEPAGE);
    memset(buf, 0x5a, PIECE);
    return buf;
}

/* Seconds to read a file past the page cache, one piece after the other into one buffer. */
static double read_directly(const char *path)
{
    unsigned char *buf = make_buffer();
    double start = now();
    int fd = open(path, O_RDONLY | O_DIRECT);
    ssize_t n;

    demand(fd >= 0, "cannot open a file past the page cache");
    while ((n = read(fd, buf, PIECE)) > 0)
        continue;
    demand(n == 0, "cannot read");
    close(fd);
    free(buf);
    return now() - start;
}

/* Seconds to get this much memory on huge pages. In a virtual machine whose host must find it first that can take
 * longer than to read a file. The memory given back here is available for a while; so a load that follows shows its
 * own time. */
static double get_memory(size_t len)
{
    double start = now();
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    demand(memory != MAP_FAILED, "out of memory");
    (void)madvise(memory, len, MADV_HUGEPAGE);
    for (size_t at = 0; at < len; at += 4096)
        ((volatile char *)memory)[at] = 1;
    double seconds = now() - start;
    munmap(memory, len);
    return seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

/* The disk's speed: aligned pieces past the page cache, and a plain sequential write. */
static void bench_disk(const char *path, uint64_t bytes)
{
    unsigned char *buf = make_buffer();
    const int flags[] = {O_DIRECT, 0};

    for (int i = 0; i < 2; i++) {
        double start = now();
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | flags[i], 0600);
        demand(fd >= 0, "cannot create the file for the disk's own speed");
        for (uint64_t done = 0; done < bytes; done += PIECE)
            demand(write(fd, buf, PIECE) == PIECE, "cannot write");
        demand(fdatasync(fd) == 0, "cannot sync");
        print_rate(i == 0 ? "disk write, direct" : "disk write, plain", now() - start, (double)bytes / 1e6, "MB/s");
        close(fd);
        unlink(path);
    }
    free(buf);
}

struct source {
    struct bloom_filter **filters;
    size_t count;
    size_t at;
    size_t stride; /* of those that have changed */
    char name[32];
};

static int on_next(void *ctx, struct store_item *item)
{
    struct source *source = ctx;

    if (source->at == source->count)
        return 0;
    int len = snprintf(source->name, sizeof(source->name), "filter%zu", source->at);
    *item = (struct store_item){.id = source->at + 1,
                                .name = source->name,
                                .name_len = (size_t)len,
                                .filter = source->filters[source->at],
                                .dirty = source->at % source->stride == 0};
    source->at++;
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)ctx, (void)item;
}

static struct bloom_filter *make_filter(struct bloom_class *class)
{
    struct bloom_filter *filter = aligned_alloc(64, (bloom_filter_bytes(class) + 63) & ~(size_t)63);

    demand(filter && bloom_filter_init(filter, class, NULL) == 0, "no memory for a filter");
    return filter;
}

static void drop_filter(struct bloom_filter *filter)
{
    bloom_filter_deinit(filter);
    free(filter);
}

static _Atomic(struct bloom_filter *) kept;

static struct bloom_filter *on_alloc(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                     void **user_out, struct errbuf *err)
{
    (void)ctx, (void)info, (void)user_out, (void)err;
    return make_filter(class);
}

static void on_loaded(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user)
{
    struct bloom_filter *none = NULL;
    (void)ctx, (void)info, (void)user;
    /* A large filter is kept for later: to give back its memory takes as long as a part of the load. */
    if (bloom_filter_memory(filter) < PIECE || !atomic_compare_exchange_strong(&kept, &none, filter))
        drop_filter(filter);
}

static void on_discard(void *ctx, struct bloom_filter *filter, void *user)
{
    (void)ctx, (void)filter, (void)user;
    demand(false, "a filter could not be loaded");
}

static void on_quarantined(void *ctx, const struct store_filter *info, const char *reason)
{
    (void)ctx, (void)info;
    demand(false, reason);
}

static struct store *open_store(const char *dir)
{
    struct store *store;
    struct errbuf err = {{0}};

    demand(store_open(dir, NULL, &store, &err) == 0, err.text);
    return store;
}

static void save(struct store *store, struct source *source, size_t stride, const char *name, double amount,
                 const char *unit)
{
    struct store_source functions = {.next = on_next, .release = on_release, .ctx = source, .pack_limit = 16384};
    struct errbuf err = {{0}};
    double start = now();

    source->at = 0;
    source->stride = stride;
    demand(store_save(store, &functions, NULL, &err) == 0, err.text);
    print_rate(name, now() - start, amount, unit);
}

static double load(const char *dir, struct bloom_pool *pool)
{
    struct store_loader loader = {
        .alloc = on_alloc, .loaded = on_loaded, .discard = on_discard, .quarantined = on_quarantined};
    struct store *store = open_store(dir);
    struct errbuf err = {{0}};
    double start = now();

    demand(store_load(store, pool, THREADS, &loader, NULL, &err) == 0, err.text);
    double seconds = now() - start;
    store_close(store);
    if (kept)
        drop_filter(kept);
    kept = NULL;
    return seconds;
}

static void bench_load_of_many(const char *dir, struct bloom_pool *pool, double filters)
{
    double loads[ROUNDS];

    for (int i = 0; i < ROUNDS; i++)
        loads[i] = load(dir, pool);
    print_rate("load", median(loads, ROUNDS), filters, "filters/s");
}

/* The path of the one Filter.db file. */
static void find_filter(const char *dir, char *path, size_t size)
{
    char filters[4096];
    unsigned n = 0;
    snprintf(filters, sizeof(filters), "%s/filters", dir);
    DIR *listing = opendir(filters);
    demand(listing != NULL, "no directory of filters");
    for (const struct dirent *file; (file = readdir(listing));) {
        size_t len = strlen(file->d_name), end = strlen("-Filter.db");
        if (len < end || strcmp(file->d_name + len - end, "-Filter.db") != 0)
            continue;
        demand(snprintf(path, size, "%s/%s", filters, file->d_name) < (int)size, "a long path");
        n++;
    }
    closedir(listing);
    demand(n == 1, "not one file");
}

/* Beside the speed of disk and memory in the same rounds, since both change from one moment to the next. */
static void bench_load_of_one(const char *dir, struct bloom_pool *pool, double bytes)
{
    double reads[ROUNDS], memory[ROUNDS], loads[ROUNDS], shares[ROUNDS];
    char path[4096];

    find_filter(dir, path, sizeof(path));
    for (int i = 0; i < ROUNDS; i++) {
        reads[i] = read_directly(path);
        memory[i] = get_memory((size_t)bytes);
        loads[i] = load(dir, pool);
        shares[i] = reads[i] / loads[i];
    }
    print_rate("the file read, direct", median(reads, ROUNDS), 1e-6 * bytes, "MB/s");
    print_rate("memory for it", median(memory, ROUNDS), 1e-6 * bytes, "MB/s");
    print_rate("load", median(loads, ROUNDS), 1e-6 * bytes, "MB/s");
    double share = median(shares, ROUNDS); /* the call sorts them */
    printf("%-28s %8.0f %%, %.0f to %.0f\n", "load, of reading", 100 * share, 100 * shares[0],
           100 * shares[ROUNDS - 1]);
}

/* Saves `count` filters of one class, twice, and loads them. The directory is empty afterwards. */
static void bench_filters(const char *dir, const struct bloom_params *params, const struct bloom_shape *shape,
                          size_t count, double amount, const char *unit)
{
    struct source source = {.filters = malloc(count * sizeof(*source.filters)), .count = count};
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct errbuf err = {{0}};
    struct store *store = open_store(dir);

    demand(source.filters && bloom_pool_create(&pool) == 0, "out of memory");
    demand(bloom_class_get(pool, params, shape, &class, &err) == 0, err.text);
    for (size_t i = 0; i < count; i++) {
        struct bloom_layer_view view;
        source.filters[i] = make_filter(class);
        bloom_filter_layer(source.filters[i], 0, &view);
        for (uint64_t w = 0; w < view.shape.nwords; w++)
            atomic_store_explicit(&view.words[w], w * UINT64_C(0x9e3779b97f4a7c15) | 1, memory_order_relaxed);
    }
    save(store, &source, 1, "first save", amount, unit);
    save(store, &source, 1, "second save", amount, unit);
    if (count >= 100) {
        save(store, &source, 100, "save, 1 % changed", amount, unit);
        save(store, &source, count, "save, one changed", amount, unit);
    }
    for (size_t i = 0; i < count; i++)
        drop_filter(source.filters[i]);
    store_close(store);
    if (count == 1)
        bench_load_of_one(dir, pool, 8.0 * (double)shape->nwords);
    else
        bench_load_of_many(dir, pool, (double)count);
    store = open_store(dir);
    source.count = 0;
    save(store, &source, 1, "removal", amount, unit);
    store_close(store);
    free(source.filters);
    bloom_class_release(class);
    bloom_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    static const struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
    uint64_t megabytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 1200;
    size_t filters = argc > 3 ? (size_t)strtoull(argv[3], NULL, 10) : 100000;
    struct bloom_shape shape = {.nwords = megabytes * 125000, .k = 7, .variant = BLOOM_NA};
    char path[4096];

    demand(argc > 1, "usage: bench_store DIRECTORY [MEGABYTES [FILTERS]]");
    store_close(open_store(argv[1]));
    snprintf(path, sizeof(path), "%s/speed", argv[1]);
    bench_disk(path, megabytes * 1000000 / PIECE * PIECE);
    if (megabytes > 0)
        bench_filters(argv[1], &params, &shape, 1, 1e-6 * (double)(8 * shape.nwords), "MB/s");
    if (filters > 0)
        bench_filters(argv[1], &params, NULL, filters, (double)filters, "filters/s");
    snprintf(path, sizeof(path), "rm -r '%s'", argv[1]);
    return system(path) == 0 ? 0 : 1;
}
