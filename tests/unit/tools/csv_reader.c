/* csv_reader: the same records and errors for any pieces of the input. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "csv_reader.h"

TestSuite(csv_reader, .timeout = 60);

/* The items as "[a][b]", and the error after them. Each call gets `piece` more bytes than the last one. */
static const char *read_all(const char *table, const char *column, size_t piece)
{
    static char out[1024];
    struct csv_reader csv;
    struct errbuf err = {{0}};
    enum csv_status status;
    size_t total = strlen(table), begin = 0, there = 0;
    char *bytes = malloc(total + 1), *item;

    memcpy(bytes, table, total + 1);
    out[0] = '\0';
    csv_reader_init(&csv, column);
    do {
        size_t taken = 0, len = 0;
        status = csv_next(&csv, bytes + begin, there - begin, there == total, &taken, &item, &len, &err);
        if (status == CSV_NEED_MORE) {
            cr_assert_lt(there, total, "it needs more than there is: %s", table);
            there = piece < total - there ? there + piece : total;
        }
        if (status == CSV_RECORD) {
            strcat(out, "[");
            strncat(out, item, len);
            strcat(out, "]");
        }
        begin += taken;
    } while (status != CSV_END && status != CSV_BAD);
    cr_assert(status == CSV_BAD || begin == total);
    free(bytes);
    return strcat(out, err.text);
}

static const struct {
    const char *table, *column, *items;
} cases[] = {
    {"a\n", "a", ""},
    {"a", "a", ""},
    {"a\n\n\n", "a", "[][]"},
    {"a\n\"\"", "a", "[]"},
    {"a,b\n1,2\n3,4", "b", "[2][4]"},
    {"a,b\n1,\n3,", "b", "[][]"},
    {"a,b\r\n1,2\r\n3,\"4\"\r\n", "b", "[2][4]"},
    {"a,b\r\n1,2\r\n,", "1", "[1][]"},
    {"\"a\"\"b\",\"c\"\n\"\"\"1\"\"\",\"2\"", "a\"b", "[\"1\"]"},
    {"a,b\n\"1,\n,\"\"\r\n\",2\nx,y\n", "a", "[1,\n,\"\r\n][x]"},
    {"a,b\n x ,\" y \"\n", "b", "[ y ]"},
    {"a,b\n x ,\" y \"\n", "a", "[ x ]"},
    {"\xef\xbb\xbf"
     "a,b\n1,2\n",
     "a", "[1]"},
    {"\xef\xbb\xbf\"a\",b\n1,2\n", "a", "[1]"},
    {"2,1\nx,y\n", "1", "[y]"},
    {"2,1\nx,y\n", "2", "[x]"},
    {"b,1\nx,y\n", "2", "[y]"},
    {"a,b,c\n1,2,3\n", "3", "[3]"},
    {"", "a", "line 1: the header is missing"},
    {"a,b\n", "0", "line 1: no column '0'; the header has 2: a,b"},
    {"a,b\n", "3", "line 1: no column '3'; the header has 2: a,b"},
    {"\xef\xbb\xbf"
     "name,\"b\"\r\n",
     "nme", "line 1: no column 'nme'; the header has 2: name,\"b"},
    {"a,a\n", "a", "line 1: two columns have the name 'a'; use the column's number"},
    {"a,a\n1,2\n", "2", "[2]"},
    {"a,b\n1,2\n3", "a", "[1]line 3: the record has 1 fields, the header 2"},
    {"a,b\n1,2\n3,4,5\n", "a", "[1]line 3: the record has 3 fields, the header 2"},
    {"a\n\"\n\n\"\n\"", "a", "[\n\n]line 5: a quote is not closed"},
    {"a\n\"\n\n\"\n\"\n\n\n", "a", "[\n\n]line 5: a quote is not closed"},
    {"a\n1\nx\"\n", "a", "[1]line 3: a quote in a field that does not begin with one"},
    {"a\n\"1\n\"x\n", "a", "line 3: text after a closing quote"},
    {"a\n1\rx\n", "a", "line 2: a carriage return outside of quotes"},
    {"a\n\"1\"\rx\n", "a", "line 2: a carriage return outside of quotes"},
    {"a\n1\r", "a", "line 2: a carriage return outside of quotes"},
};

Test(csv_reader, in_pieces_of_any_size)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t piece = 1; piece <= strlen(cases[i].table) + 1; piece++) {
            const char *items = read_all(cases[i].table, cases[i].column, piece);
            cr_expect_str_eq(items, cases[i].items, "case %zu in pieces of %zu: %s", i, piece, items);
        }
    }
}
