#include "check_keys.h"

#include <stdint.h>
#include <stdio.h>

#include "fsops.h"
#include "key_file.h"
#include "log_text.h"
#include "manifest.h"
#include "tool.h"

struct need {
    const struct key_file *keys; /* NULL: none */
    uint64_t without;
};

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct need *need = ctx;
    bool has = filter->params.key == 0;

    (void)err;
    for (size_t i = 0; need->keys && i < need->keys->n; i++)
        has |= need->keys->secrets[i].id == filter->params.key;
    need->without += !has;
    return 0;
}

int check_keys(const char *datadir, bool print, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    struct key_file *keys = NULL;
    struct need need = {0};
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = &need};
    struct fs_stat found;
    struct path path;
    int rc = path_format(&path, err, "%s/" KEY_FILE_NAME, datadir);

    if (rc == 0 && fs->stat(fs->ctx, path.text, &found) == 0)
        rc = key_file_read(fs, path.text, &keys, err);
    need.keys = keys;
    if (rc == 0)
        (void)tool_read_manifest(datadir, &sink, NULL, &(struct errbuf){{0}}); /* other checks report its damage */
    key_file_free(keys);
    if (print && need.without)
        printf("keys: %s without a key in KEYS: queries get errors unless bf-key-file has it\n",
               log_count(need.without, "KEYED filter").text);
    return rc;
}
