/* From an SSTable's file name to the variant of its Filter.db (docs/FORMAT.md section 2).
 *
 * Two forms of name: <version>-<generation>-<format>-Filter.db since Cassandra 2.2, and
 * <keyspace>-<table>-<version>-<generation>-Filter.db before. Versions are letters that only compare inside one family
 * of formats: "big" (and the names before formats had one) is a series from "a" to "oa"; "bti" has Cassandra's da and
 * DataStax's aa..cc. So every version is looked up, none is guessed from its neighbours: a version that is not known may
 * have any layout. */
#include "filterdb.h"

#include <ctype.h>
#include <string.h>

struct version {
    const char *name;
    enum bloom_variant variant;
};

static const struct version big_versions[] = {
    {"ia", BLOOM_KA}, {"ib", BLOOM_KA}, {"ic", BLOOM_KA}, {"ja", BLOOM_KA}, {"jb", BLOOM_KA}, {"ka", BLOOM_KA},
    {"la", BLOOM_KA}, {"lb", BLOOM_KA}, {"ma", BLOOM_ME}, {"mb", BLOOM_ME}, {"mc", BLOOM_ME}, {"md", BLOOM_ME},
    {"me", BLOOM_ME}, {"ms", BLOOM_ME}, {"mt", BLOOM_ME}, {"na", BLOOM_NA}, {"nb", BLOOM_NA}, {"nc", BLOOM_NA},
    {"oa", BLOOM_NA}, {NULL, BLOOM_NA},
};

static const struct version bti_versions[] = {
    {"aa", BLOOM_ME}, {"ac", BLOOM_ME}, {"ad", BLOOM_ME}, {"ab", BLOOM_NA}, {"b", BLOOM_NA},  {"ba", BLOOM_NA},
    {"bb", BLOOM_NA}, {"ca", BLOOM_NA}, {"cb", BLOOM_NA}, {"cc", BLOOM_NA}, {"da", BLOOM_NA}, {NULL, BLOOM_NA},
};

struct part {
    const char *ptr;
    size_t len;
};

static bool part_is(struct part part, const char *text)
{
    return part.len == strlen(text) && memcmp(part.ptr, text, part.len) == 0;
}

static bool part_is_version(struct part part)
{
    if (part.len < 1 || part.len > 2)
        return false;
    for (size_t i = 0; i < part.len; i++) {
        if (!islower((unsigned char)part.ptr[i]))
            return false;
    }
    return true;
}

/* A generation is a number, or since Cassandra 4.1 an identifier of letters, digits and underscores. */
static bool part_is_generation(struct part part)
{
    for (size_t i = 0; i < part.len; i++) {
        if (!isalnum((unsigned char)part.ptr[i]) && part.ptr[i] != '_')
            return false;
    }
    return part.len > 0;
}

/* The part that ends at `end` (exclusive), back to the dash before it or to `begin`. */
static struct part part_before(const char *begin, const char *end)
{
    const char *p = end;

    while (p > begin && p[-1] != '-')
        p--;
    return (struct part){p, (size_t)(end - p)};
}

static int look_up(const struct version *versions, const char *family, struct part version,
                   enum bloom_variant *variant_out, struct errbuf *err)
{
    for (; versions->name; versions++) {
        if (part_is(version, versions->name)) {
            *variant_out = versions->variant;
            return FILTERDB_OK;
        }
    }
    if (strcmp(family, "big") == 0 && version.ptr[0] < 'i')
        errbuf_set(err, "version '%.*s' is older than Cassandra 1.2 and hashes keys by Murmur2, which is not supported",
                   (int)version.len, version.ptr);
    else
        errbuf_set(err, "version '%.*s' of format %s is unknown", (int)version.len, version.ptr, family);
    return FILTERDB_MALFORMED;
}

int filterdb_variant_from_path(const char *path, enum bloom_variant *variant_out, struct errbuf *err)
{
    static const char suffix[] = "-Filter.db";
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t len = strlen(name);

    if (len < sizeof(suffix) || strcmp(name + len - (sizeof(suffix) - 1), suffix) != 0) {
        errbuf_set(err, "'%s' is not the name of an SSTable's filter (<version>-<generation>-<format>-Filter.db)", name);
        return FILTERDB_MALFORMED;
    }
    const char *end = name + len - (sizeof(suffix) - 1);
    struct part last = part_before(name, end);
    bool has_format = part_is(last, "big") || part_is(last, "bti");
    struct part generation = has_format && last.ptr > name ? part_before(name, last.ptr - 1) : last;
    struct part version = generation.ptr > name ? part_before(name, generation.ptr - 1) : (struct part){name, 0};

    if (!part_is_generation(generation) || !part_is_version(version) || (has_format && version.ptr != name) ||
        (!has_format && version.ptr == name)) {
        errbuf_set(err, "'%s' names no SSTable version where one is expected", name);
        return FILTERDB_MALFORMED;
    }
    if (part_is(last, "bti"))
        return look_up(bti_versions, "bti", version, variant_out, err);
    return look_up(big_versions, "big", version, variant_out, err);
}
