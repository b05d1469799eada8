#include "keys.h"

#include "engine.h"
#include "key_file.h"

static struct bloom_pool *keyed_pool;

bool keys_init(struct bloom_pool *pool, const char *path, struct errbuf *err)
{
    keyed_pool = pool;
    return keys_read(path, err);
}

bool keys_are_ready(void)
{
    return keyed_pool != NULL;
}

bool keys_read(const char *path, struct errbuf *err)
{
    struct key_file *file = NULL;
    struct errbuf text;
    if (path[0] && key_file_read(fsops_posix(), path, &file, err) != 0)
        return false;
    int rc = bloom_keyring_set(keyed_pool, file ? file->secrets : NULL, file ? file->n : 0);
    key_file_free(file);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    if (rc == 0 && path[0] && engine.Log && key_file_is_exposed(path, &text))
        engine.Log(NULL, "warning", "bloomery: %s", text.text);
    return rc == 0;
}

uint64_t keys_first(void)
{
    return bloom_keyring_first(keyed_pool);
}
