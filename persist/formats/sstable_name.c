/* Versions are letters, comparable only within one family of formats. "big" (and the names before formats had one) is a
 * series from "a" to "oa"; "bti" has Cassandra's da and DataStax's aa..cc. So every version is looked up, none is
 * guessed from its neighbours: an unknown version may have any layout. */
#include "sstable_name.h"

#include <ctype.h>
#include <string.h>

#include "filterdb.h"
#include "fsops.h"
#include "key_file.h"

struct version {
    const char *name;
    enum bloom_variant variant;
};

static const struct version big_versions[] = {
    {"ia", BLOOM_KA}, {"ib", BLOOM_KA}, {"ic", BLOOM_KA}, {"ja", BLOOM_KA}, {"jb", BLOOM_KA},
    {"ka", BLOOM_KA}, {"la", BLOOM_KA}, {"lb", BLOOM_KA}, {"ma", BLOOM_ME}, {"mb", BLOOM_ME},
    {"mc", BLOOM_ME}, {"md", BLOOM_ME}, {"me", BLOOM_ME}, {"ms", BLOOM_ME}, {"mt", BLOOM_ME},
    {"na", BLOOM_NA}, {"nb", BLOOM_NA}, {"nc", BLOOM_NA}, {"oa", BLOOM_NA}, {NULL, BLOOM_NA},
};

static const struct version bti_versions[] = {
    {"aa", BLOOM_ME}, {"ac", BLOOM_ME}, {"ad", BLOOM_ME}, {"ab", BLOOM_NA}, {"b", BLOOM_NA},  {"ba", BLOOM_NA},
    {"bb", BLOOM_NA}, {"ca", BLOOM_NA}, {"cb", BLOOM_NA}, {"cc", BLOOM_NA}, {"da", BLOOM_NA}, {NULL, BLOOM_NA},
};

static bool part_is(struct slice part, const char *text)
{
    return slice_equal(part, slice_of(text));
}

static bool part_is_version(struct slice part)
{
    if (part.len < 1 || part.len > 2)
        return false;
    for (size_t i = 0; i < part.len; i++)
        if (!islower((unsigned char)part.ptr[i]))
            return false;
    return true;
}

/* A generation is a number, or since Cassandra 4.1 an identifier of letters, digits and underscores. */
static bool part_is_generation(struct slice part)
{
    for (size_t i = 0; i < part.len; i++)
        if (!isalnum((unsigned char)part.ptr[i]) && part.ptr[i] != '_')
            return false;
    return part.len > 0;
}

/* The part of [begin, end) after the last `separator`. */
static struct slice last_part(const char *begin, const char *end, char separator)
{
    const char *p = end;

    while (p > begin && p[-1] != separator)
        p--;
    return (struct slice){p, (size_t)(end - p)};
}

/* Takes the last part off [begin, *end) with the separator before it. An empty part when there is none left. */
static struct slice take_last(const char *begin, const char **end, char separator)
{
    struct slice part = last_part(begin, *end, separator);

    *end = part.ptr > begin ? part.ptr - 1 : begin;
    return part;
}

/* ---- the file's name ---- */

/* Names before 2.2: "<keyspace>-<table>[.<index>]" before the version. Names of keyspaces and tables have no dash. */
static bool split_owner(const char *begin, const char *end, struct sstable_name *name)
{
    struct slice table = take_last(begin, &end, '-');

    if (part_is(table, "tmp") || part_is(table, "tmplink")) {
        name->place = SSTABLE_UNSEALED;
        table = take_last(begin, &end, '-');
    }
    name->keyspace = (struct slice){begin, (size_t)(end - begin)};
    const char *dot = memchr(table.ptr, '.', table.len);
    name->table = table;
    if (dot) {
        name->table.len = (size_t)(dot - table.ptr);
        name->index = (struct slice){dot + 1, (size_t)(table.ptr + table.len - dot - 1)};
    }
    return name->table.len > 0 && name->keyspace.len > 0;
}

static bool parse_file(const char *file, struct sstable_name *name)
{
    const char *begin = file, *end = file + strlen(file);
    bool has_format;

    name->component = take_last(begin, &end, '-');
    struct slice last = take_last(begin, &end, '-');
    name->bti = part_is(last, "bti");
    has_format = name->bti || part_is(last, "big");
    name->generation = has_format ? take_last(begin, &end, '-') : last;
    name->version = take_last(begin, &end, '-');
    if (name->component.len == 0 || !part_is_generation(name->generation) || !part_is_version(name->version))
        return false;
    if (!has_format)
        return end > begin && split_owner(begin, end, name);
    /* The format came together with short names: before the version is only the mark of a temporary file. */
    if (end > begin) {
        const struct slice mark = {begin, (size_t)(end - begin)};
        name->place = SSTABLE_UNSEALED;
        return part_is(mark, "tmp") || part_is(mark, "tmplink");
    }
    return true;
}

/* ---- the directories ---- */

static const struct {
    const char *name;
    enum sstable_place place;
} places[] = {
    {"backups", SSTABLE_BACKUP},        {"staging", SSTABLE_STAGING},        {"upload", SSTABLE_UPLOAD},
    {"quarantine", SSTABLE_QUARANTINE}, {"pending_delete", SSTABLE_DELETED},
};

static bool ends_with(struct slice part, const char *end)
{
    size_t len = strlen(end);

    return part.len > len && memcmp(part.ptr + part.len - len, end, len) == 0;
}

/* The next directory upwards; empty ones ("a//b") and "." are passed over. */
static struct slice take_directory(const char *begin, const char **end)
{
    struct slice part;

    do {
        part = take_last(begin, end, '/');
    } while (*end > begin && (part.len == 0 || part_is(part, ".")));
    return part_is(part, ".") ? (struct slice){part.ptr, 0} : part;
}

/* "-" and 32 hexadecimal digits, or a UUID as it is usually written. */
static size_t table_id_length(struct slice directory)
{
    static const size_t lengths[] = {32, 36};

    for (size_t i = 0; i < 2; i++) {
        const char *id = directory.ptr + directory.len - lengths[i];
        size_t digits = 0, dashes = 0;
        if (directory.len < lengths[i] + 2 || id[-1] != '-')
            continue;
        for (size_t j = 0; j < lengths[i]; j++) {
            digits += isxdigit((unsigned char)id[j]) != 0;
            dashes += id[j] == '-' && (j == 8 || j == 13 || j == 18 || j == 23);
        }
        if (digits == 32 && digits + dashes == lengths[i])
            return lengths[i];
    }
    return 0;
}

/* Whether snapshots/<directory> is a snapshot, and not a table of a keyspace named snapshots: a snapshot is inside a
 * table's directory. [begin, end) is the path before snapshots/. Without an id, names of before 2.2 tell the owner. In
 * other cases it counts as a snapshot. */
static bool is_snapshot(struct slice directory, const char *begin, const char *end, const struct sstable_name *name)
{
    struct slice above = take_directory(begin, &end);

    if (table_id_length(above) > 0)
        return true;
    if (table_id_length(directory) > 0)
        return false;
    return !part_is(name->keyspace, "snapshots") || !slice_equal(directory, name->table) ||
           slice_equal(above, name->table);
}

/* The state that a directory between the table's directory and the file stands for; false: the table's directory. */
static bool take_place(struct slice directory, const char *begin, const char **end, struct sstable_name *name)
{
    const char *above = *end;

    if (directory.len > 1 && directory.ptr[0] == '.' && directory.ptr[1] != '.') {
        name->index = (struct slice){directory.ptr + 1, directory.len - 1};
        return true;
    }
    if (ends_with(directory, ".sstable")) {
        name->place = SSTABLE_UNSEALED;
        return true;
    }
    if (part_is(take_directory(begin, &above), "snapshots") && is_snapshot(directory, begin, above, name)) {
        if (name->place != SSTABLE_UNSEALED)
            name->place = SSTABLE_SNAPSHOT;
        name->snapshot = directory;
        *end = above;
        return true;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (part_is(directory, places[i].name)) {
            if (name->place != SSTABLE_UNSEALED)
                name->place = places[i].place;
            return true;
        }
    }
    return false;
}

static void parse_directories(const char *begin, const char *end, struct sstable_name *name)
{
    struct slice directory = take_directory(begin, &end);

    while (directory.len > 0 && take_place(directory, begin, &end, name))
        directory = take_directory(begin, &end);
    size_t id = table_id_length(directory);
    if (id > 0) {
        name->table_id = (struct slice){directory.ptr + directory.len - id, id};
        directory.len -= id + 1;
    }
    if (name->table.len > 0 || part_is(directory, ".."))
        return; /* the file's name has keyspace and table */
    name->table = directory;
    struct slice keyspace = take_directory(begin, &end);
    if (!part_is(keyspace, ".."))
        name->keyspace = keyspace;
}

int sstable_name_parse(const char *path, struct sstable_name *name_out, struct errbuf *err)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    struct sstable_name name = {.place = SSTABLE_LIVE};

    if (!parse_file(file, &name))
        return errbuf_fail(err, SSTABLE_OTHER,
                           "'%s' is not the name of an SSTable's file (<version>-<generation>-<format>-<component>)",
                           file);
    if (slash)
        parse_directories(path, slash, &name);
    *name_out = name;
    return SSTABLE_OK;
}

/* ---- properties that follow from the name ---- */

int sstable_name_variant(const struct sstable_name *name, enum bloom_variant *variant_out, struct errbuf *err)
{
    const struct version *known = name->bti ? bti_versions : big_versions;

    for (; known->name; known++) {
        if (part_is(name->version, known->name)) {
            *variant_out = known->variant;
            return SSTABLE_OK;
        }
    }
    if (!name->bti && name->version.ptr[0] < 'i')
        errbuf_set(err, "version '%.*s' is older than Cassandra 1.2 and hashes keys by Murmur2, which is not supported",
                   (int)name->version.len, name->version.ptr);
    else
        errbuf_set(err, "version '%.*s' of format %s is unknown", (int)name->version.len, name->version.ptr,
                   name->bti ? "bti" : "big");
    return SSTABLE_OTHER;
}

bool sstable_is_read(const struct sstable_name *name)
{
    return name->place == SSTABLE_LIVE || name->place == SSTABLE_STAGING || name->place == SSTABLE_QUARANTINE;
}

size_t sstable_sibling(const char *path, const struct sstable_name *name, const char *component, char *out, size_t size)
{
    size_t base = (size_t)(name->component.ptr - path), len = strlen(component);

    if (base + len < size) {
        memcpy(out, path, base);
        memcpy(out + base, component, len + 1);
    }
    return base + len;
}

uint64_t filterdb_key_of_path(const char *path, size_t *len_out)
{
    size_t len = strlen(path), end = sizeof(FILTERDB_KEYED_END) - 1 + KEY_ID_DIGITS;
    uint64_t id;

    *len_out = len;
    if (len <= end || memcmp(path + len - end, FILTERDB_KEYED_END, sizeof(FILTERDB_KEYED_END) - 1) != 0 ||
        !key_id_parse(path + len - KEY_ID_DIGITS, KEY_ID_DIGITS, &id))
        return 0;
    *len_out = len - end;
    return id;
}

int filterdb_variant_from_path(const char *path, enum bloom_variant *variant_out, struct errbuf *err)
{
    struct sstable_name name;
    struct path plain;
    size_t len;

    if (filterdb_key_of_path(path, &len) && path_format(&plain, err, "%.*s", (int)len, path) == 0)
        path = plain.text;
    if (sstable_name_parse(path, &name, err) != SSTABLE_OK)
        return FILTERDB_MALFORMED;
    if (!part_is(name.component, "Filter.db"))
        return errbuf_fail(err, FILTERDB_MALFORMED,
                           "'%.*s' is not the name of an SSTable's filter (<version>-<generation>-<format>-Filter.db)",
                           200, name.version.ptr);
    return sstable_name_variant(&name, variant_out, err) == SSTABLE_OK ? FILTERDB_OK : FILTERDB_MALFORMED;
}
