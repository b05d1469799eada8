#include "compat.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts the next cell off a table row: the text up to the next '|' without the spaces around it. NULL at the end. */
static char *next_cell(char **row)
{
    char *cell = *row, *end = strchr(cell, '|');

    if (end == NULL)
        return NULL;
    *row = end + 1;
    while (*cell == ' ')
        cell++;
    while (end > cell && end[-1] == ' ')
        end--;
    *end = '\0';
    return cell;
}

static bool lists_file(const char *files, const char *file)
{
    const char *found = strstr(files, file);

    return found != NULL && (found == files || found[-1] == ' ') && (found[2] == ' ' || found[2] == '\0');
}

static enum compat_kind kind_of(const char *reason)
{
    static const struct {
        const char *beginning;
        enum compat_kind kind;
    } kinds[] = {
        {"one number: ", COMPAT_ONE_NUMBER},
        {"a dump: ", COMPAT_DUMP},
        {"more words: ", COMPAT_MORE_WORDS},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(reason, kinds[i].beginning, strlen(kinds[i].beginning)) == 0)
            return kinds[i].kind;
    return COMPAT_ANY;
}

static void add_row(struct compat *compat, const char *command, size_t len, const char *reason, unsigned line)
{
    bool prefix = len > 0 && command[len - 1] == '*';
    struct compat_row *row;

    compat->rows = realloc(compat->rows, (compat->count + 1) * sizeof(*compat->rows));
    cr_assert_not_null(compat->rows);
    row = &compat->rows[compat->count++];
    *row = (struct compat_row){
        .command = strndup(command, len - prefix),
        .prefix = prefix,
        .kind = kind_of(reason),
        .line = line,
    };
    cr_assert_not_null(row->command);
}

static void read_row(struct compat *compat, char *text, const char *file, unsigned line)
{
    char *files, *command, *reason;
    size_t len;

    text++;
    files = next_cell(&text);
    if (files == NULL || !isdigit((unsigned char)files[0]))
        return; /* a heading, a rule, or another table */
    command = next_cell(&text);
    reason = next_cell(&text);
    len = command == NULL ? 0 : strlen(command);
    cr_assert(len > 2 && command[0] == '`' && command[len - 1] == '`' && reason != NULL && reason[0] != '\0',
              "line %u of the table is not `| files | command | reason |`", line);
    cr_assert_eq(strspn(files, "0123456789 "), strlen(files), "line %u of the table: files '%s'", line, files);
    if (lists_file(files, file))
        add_row(compat, command + 1, len - 2, reason, line);
}

void compat_add(struct compat *compat, const char *path, const char *section, const char *file)
{
    FILE *stream = fopen(path, "r");
    bool inside = section == NULL;
    char *text = NULL;
    size_t size = 0;

    cr_assert_not_null(stream, "%s: %s", path, strerror(errno));
    for (unsigned line = 1; getline(&text, &size, stream) > 0; line++) {
        text[strcspn(text, "\n")] = '\0';
        if (section && text[0] == '#')
            inside = strcmp(text, section) == 0;
        if (inside && text[0] == '|')
            read_row(compat, text, file, line);
    }
    free(text);
    fclose(stream);
}

void compat_load(struct compat *compat, const char *path, const char *file)
{
    *compat = (struct compat){NULL, 0};
    compat_add(compat, path, NULL, file);
}

void compat_deinit(struct compat *compat)
{
    for (size_t i = 0; i < compat->count; i++)
        free(compat->rows[i].command);
    free(compat->rows);
    *compat = (struct compat){NULL, 0};
}

struct compat_row *compat_find(struct compat *compat, const char *command)
{
    struct compat_row *best = NULL;

    for (size_t i = 0; i < compat->count; i++) {
        struct compat_row *row = &compat->rows[i];
        size_t len = strlen(row->command);

        if (row->prefix ? strncmp(command, row->command, len) != 0 : strcmp(command, row->command) != 0)
            continue;
        if (best == NULL || !row->prefix || (best->prefix && len > strlen(best->command)))
            best = row;
    }
    return best;
}
